"""The contract with the user: the shape of `.servegate.yml`, field by field.

Each field's description is what `servegate config schema` prints. Frozen; unknown keys are errors. The models hold what
the user declared and the defaults; loading (YAML, line numbers, nearest keys) is `config.load`. Nothing here touches a
file, and nothing here measures or decides.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from servegate_action.records import Side


class Model(BaseModel):
    """Base of every configuration model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, defer_build=True)


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(=.*)?$")]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]


# ---------------------------------------------------------------- the model


class ServedModel(Model):
    """Which model both stacks serve."""

    name: str = Field(min_length=1, description="the model's name; also the default of `served_model` in requests")
    path: str | None = Field(default=None, description="weights on disk (a file or a folder); hashed")
    revision: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{40}$", description="pinned 40-hex commit, taken as declared"
    )
    quantization: str | None = Field(default=None, description="declared weight quantization, e.g. bf16, fp8, q4_1")
    batch_size: PositiveInt | None = Field(default=None, description="how many requests both servers may run at once")


# ---------------------------------------------------------------- stacks


class Engine(StrEnum):
    """Which read-back a stack understands."""

    AUTO = "auto"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama.cpp"
    OTHER = "other"


class ProcessStack(Model):
    """A stack started as a child process. `{port}` in command, env and health stands for the free port it is given."""

    command: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None


class ContainerStack(Model):
    """A stack started as a sibling container through the Docker Engine API."""

    image: str = Field(min_length=1, description="by digest (name@sha256:…) unless `allow_tag: true`")
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    volumes: tuple[str, ...] = Field(default=(), description="host:container[:ro]")
    gpus: Literal["all", "none"] | int | tuple[str, ...] = Field(
        default="none", description="all, none, a count, or UUIDs"
    )
    port: PositiveInt = Field(default=8000, description="the port that the server listens on inside the container")
    shm_size: str = "16g"
    ipc_host: bool = False
    user: str | None = None
    allow_tag: bool = Field(default=False, description="accept an image by tag, as one that is built on the machine")

    @model_validator(mode="after")
    def _pinned(self) -> ContainerStack:
        if "@sha256:" not in self.image and not self.allow_tag:
            raise ValueError(
                f"the image {self.image} is named by a tag, which may be another image tomorrow: name it by digest "
                "(name@sha256:…), or set `allow_tag: true` beside `image` for one that is built here"
            )
        return self


class EndpointStack(Model):
    """A stack that already runs and is not launched by servegate."""

    url: str = Field(pattern=r"^https?://[^\s/?#]+(:\d+)?(/[^\s?#]*)?$")
    launches: Literal["unknown", "fixed"] = Field(
        default="unknown",
        description="`fixed`: these two launches are what will serve; without it at best INCONCLUSIVE",
    )
    api_key_env: EnvName | None = Field(default=None, description="name of the variable that holds the bearer token")


class Stack(Model):
    """One way to serve the model behind an OpenAI-compatible API: exactly one of process, container, endpoint."""

    label: str = Field(min_length=1, max_length=80)
    process: ProcessStack | None = None
    container: ContainerStack | None = None
    endpoint: EndpointStack | None = None
    engine: Engine = Engine.AUTO
    served_model: str | None = Field(
        default=None, description="model name in requests; default: model.name or /v1/models"
    )
    env: tuple[EnvName, ...] = Field(default=(), description="NAME (passed on, masked) or NAME=value")
    gpu_count: PositiveInt = Field(default=1, description="accelerators that this stack holds")
    gpu_uuids: tuple[str, ...] = Field(default=(), description="their UUIDs; default: all that are visible")
    gpu_pool: str | None = Field(default=None, description="pool or node type, when the two stacks need different ones")
    quantization: str | None = Field(default=None, description="declared for this stack where it cannot be read back")
    batch_size: PositiveInt | None = Field(
        default=None, description="declared for this stack where it cannot be read back"
    )
    health: str | None = Field(default=None, description="path that answers 200 once healthy, e.g. /health")
    ready_timeout_s: Positive = 900.0
    stop_timeout_s: Positive = 30.0

    @model_validator(mode="after")
    def _exactly_one(self) -> Stack:
        given = [kind for kind in ("process", "container", "endpoint") if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"exactly one of process, container, endpoint is needed; found {found}")
        if self.process is not None and not any("{port}" in word for word in (*self.process.command, *self.env)):
            raise ValueError(
                "the process is not told its port: servegate picks a free one for each launch; say it in the command, as in "
                '[python, serve.py, --port, "{port}"], or in env, as in [PORT={port}]'
            )
        return self


class Stacks(Model):
    """The two sides of the comparison."""

    baseline: Stack
    candidate: Stack

    def of(self, side: Side) -> Stack:
        """The stack of one side."""
        return self.baseline if side is Side.BASELINE else self.candidate


# ---------------------------------------------------------------- workload


class Uniform(Model):
    """Lengths drawn evenly from [low, high]."""

    low: PositiveInt
    high: PositiveInt

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self


class Lognormal(Model):
    """Lengths whose logarithm is normal; `mean` is the mean length, `sigma` that of the logarithm."""

    mean: Positive
    sigma: Positive


def _parse_length(value: object) -> object:
    """`uniform(a, b)` and `lognormal(mean, sigma)` as written in the file; everything else is left to the models."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(uniform|lognormal)\s*\(\s*([0-9.]+)\s*,\s*([0-9.]+)\s*\)\s*", value)
    if match is None:
        raise ValueError(f"{value!r} is no length")
    kind, first, second = match.groups()
    if kind == "lognormal":
        return {"mean": float(first), "sigma": float(second)}
    if "." in first + second:
        raise ValueError(f"{value!r}: uniform takes two whole numbers")
    return {"low": int(first), "high": int(second)}


_LENGTH_SCHEMA = {
    "anyOf": [
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^(uniform|lognormal)\(.+,.+\)$"},
    ]
}
Length = Annotated[PositiveInt | Uniform | Lognormal, BeforeValidator(_parse_length), WithJsonSchema(_LENGTH_SCHEMA)]
LENGTH_ALLOWED = 'a whole number above 0, "uniform(a, b)", "lognormal(mean, sigma)"'


class Cell(Model):
    """One kind of request; a list of concurrencies makes one operating point of each."""

    name: Name
    prompt_tokens: Length = Field(description="a number, `uniform(a, b)` or `lognormal(mean, sigma)`")
    output_tokens: Length = Field(description="a number, `uniform(a, b)` or `lognormal(mean, sigma)`")
    concurrency: tuple[PositiveInt, ...] = Field(default=(), description="requests in flight (closed loop)")
    rate_per_second: Positive | None = Field(default=None, description="mean arrivals per second (open loop, Poisson)")
    weight: Positive = Field(default=1.0, description="share of the traffic, split evenly over the concurrencies")
    requests: PositiveInt = Field(default=200, description="measured requests per operating point and launch")
    warmup_requests: PositiveInt | None = Field(default=None, description="default: twice the concurrency, at least 2")
    shared_prefix_tokens: int = Field(default=0, ge=0, description="tokens that all prompts of the cell begin with")

    @field_validator("concurrency", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, list):
            return tuple(value)
        return (value,) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _loop(self) -> Cell:
        if bool(self.concurrency) == (self.rate_per_second is not None):
            raise ValueError("exactly one of concurrency (closed loop) and rate_per_second (open loop) is needed")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("the same concurrency is listed twice")
        return self


class Trace(Model):
    """Recorded traffic, replayed with its own arrival times and lengths (open loop)."""

    path: str = Field(
        description="JSONL (timestamp, input_length, output_length) or CSV (TIMESTAMP, ContextTokens, GeneratedTokens)"
    )
    speedup: Positive = 1.0
    start_s: float = Field(default=0.0, ge=0, description="where in the trace to begin")
    duration_s: Positive | None = Field(default=None, description="how much of it to replay; default: all")
    warmup_requests: PositiveInt = 8


class Workload(Model):
    """The fixed work that both stacks do: cells, or a trace."""

    seed: int = Field(default=0, ge=0)
    cells: tuple[Cell, ...] = ()
    trace: Trace | None = None
    api: Literal["completions", "chat"] = "completions"

    @model_validator(mode="after")
    def _one_kind(self) -> Workload:
        if bool(self.cells) == (self.trace is not None):
            raise ValueError("exactly one of cells and trace is needed")
        names = [cell.name for cell in self.cells]
        if len(set(names)) != len(names):
            raise ValueError("two cells have the same name")
        return self


# ---------------------------------------------------------------- rounds, limits, SLO


class Rounds(Model):
    """How many rounds, at which of them to look, and the budget. Looks happen after even rounds only."""

    min: Annotated[int, Field(ge=2, le=40)] = 4
    max: Annotated[int, Field(ge=2, le=40)] = 8
    budget_minutes: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Rounds:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """The even round counts from `min` (rounded up) to `max` (rounded down, but never below the first look)."""
        first = self.min + self.min % 2
        return tuple(range(first, max(first, self.max - self.max % 2) + 1, 2))


class Limit(Model):
    """The regression of one metric that is still allowed (its non-inferiority margin). `2%` or `2pp` in the file."""

    value: Positive = Field(description="a fraction for `ratio` (0.02 = 2 %), percentage points for `points`")
    unit: Literal["ratio", "points"] = "ratio"

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: object) -> object:
        if isinstance(value, int | float):
            raise ValueError(f"{value!r} has no unit")
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%|pp)\s*", value)
        if match is None:
            raise ValueError(f"{value!r} is no limit")
        number = float(match[1])
        if number == 0:
            raise ValueError(
                "a limit of 0 cannot be shown by any measurement; give the smallest change that matters to you"
            )
        return {"value": number / 100, "unit": "ratio"} if match[2] == "%" else {"value": number, "unit": "points"}

    @model_serializer
    def _write(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{round(self.value * 100, 9):g}%" if self.unit == "ratio" else f"{self.value:g}pp"


class MetricName(StrEnum):
    """Every metric that can be gated. In the file these are the keys of `limits`."""

    TOKENS_PER_GPU_HOUR = "tokens_per_gpu_hour"
    DECODE_TOKENS_PER_SECOND = "decode_tokens_per_second"
    TTFT_P95 = "ttft_p95"
    TPOT_P95 = "tpot_p95"
    TTFT_P95_WITH_COLD_STARTS = "ttft_p95_with_cold_starts"
    GPU_UTILIZATION = "gpu_utilization"
    COST_PER_1M_OUTPUT_TOKENS = "cost_per_1m_output_tokens"
    TOKENS_PER_SECOND = "tokens_per_second"


CELL_METRICS = (MetricName.TOKENS_PER_SECOND, MetricName.TTFT_P95, MetricName.TPOT_P95)
MIX_METRICS = tuple(name for name in MetricName if name is not MetricName.TOKENS_PER_SECOND)

DEFAULT_MIX_LIMITS: dict[MetricName, Limit] = {
    MetricName.TOKENS_PER_GPU_HOUR: Limit(value=0.02),
    MetricName.DECODE_TOKENS_PER_SECOND: Limit(value=0.02),
    MetricName.TTFT_P95: Limit(value=0.05),
    MetricName.TPOT_P95: Limit(value=0.03),
    MetricName.TTFT_P95_WITH_COLD_STARTS: Limit(value=0.05),
    MetricName.GPU_UTILIZATION: Limit(value=2.0, unit="points"),
    MetricName.COST_PER_1M_OUTPUT_TOKENS: Limit(value=0.02),
}
DEFAULT_CELL_LIMITS: dict[MetricName, Limit] = {
    MetricName.TOKENS_PER_SECOND: Limit(value=0.03),
    MetricName.TPOT_P95: Limit(value=0.05),
    MetricName.TTFT_P95: Limit(value=0.10),
}


LIMIT_SCHEMA = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(%|pp)$"}
LIMIT_ALLOWED = "a percentage such as 2%, or percentage points such as 2pp for gpu_utilization"
Margin = Annotated[Limit, WithJsonSchema(LIMIT_SCHEMA)]


def _parse_share(value: object) -> object:
    """`1%` or 0.01."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", value)):
        return float(match[1]) / 100
    return value


_SHARE_SCHEMA = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": "^[0-9.]+%$"}]}
Share = Annotated[float, Field(ge=0, lt=1), BeforeValidator(_parse_share), WithJsonSchema(_SHARE_SCHEMA)]


class CellLimits(Model):
    """Limits of the metrics that are judged in every cell; each field is a `MetricName`."""

    default: Margin | None = None
    tokens_per_second: Margin | None = None
    ttft_p95: Margin | None = None
    tpot_p95: Margin | None = None


class Limits(Model):
    """Allowed regressions. Resolution for a metric: its own key, else `default` of its block, else the class default.

    The keys besides `default`, `cells`, `failed_share` and `advisory` are the `MetricName`s over the whole mix.
    """

    default: Margin | None = None
    tokens_per_gpu_hour: Margin | None = None
    decode_tokens_per_second: Margin | None = None
    ttft_p95: Margin | None = None
    tpot_p95: Margin | None = None
    ttft_p95_with_cold_starts: Margin | None = None
    gpu_utilization: Margin | None = Field(default=None, description="in percentage points, e.g. 2pp")
    cost_per_1m_output_tokens: Margin | None = None
    cells: CellLimits = CellLimits()
    failed_share: Share = Field(default=0.0, description="largest share of failed requests, per cell")
    advisory: tuple[MetricName, ...] = Field(default=(), description="measured and shown, never gated")

    @model_validator(mode="after")
    def _units(self) -> Limits:
        if self.gpu_utilization is not None and self.gpu_utilization.unit != "points":
            raise ValueError("gpu_utilization is limited in percentage points, e.g. 2pp")
        margins = {
            name: getattr(self, name) for name in ("default", *MIX_METRICS) if name != MetricName.GPU_UTILIZATION
        }
        margins |= {f"cells.{name}": getattr(self.cells, name) for name in ("default", *CELL_METRICS)}
        if wrong := [name for name, margin in margins.items() if margin is not None and margin.unit != "ratio"]:
            raise ValueError(f"{', '.join(wrong)}: limited in percent, e.g. 2%")
        return self

    def of(self, metric: MetricName, *, in_cell: bool) -> Limit:
        """The limit of one metric, over the whole mix or in a cell."""
        own: Limit | None = getattr(self.cells if in_cell else self, metric.value)
        if own is not None:
            return own
        if metric is MetricName.GPU_UTILIZATION:
            return DEFAULT_MIX_LIMITS[metric]
        general = (self.cells.default or self.default) if in_cell else self.default
        return general or (DEFAULT_CELL_LIMITS if in_cell else DEFAULT_MIX_LIMITS)[metric]


class Slo(Model):
    """Absolute service levels of the candidate, per cell: broken means REJECT."""

    ttft_p95_ms: Positive | None = None
    tpot_p95_ms: Positive | None = None


# ---------------------------------------------------------------- cost


class ScaleToZero(Model):
    """Release the GPU when idle for `after_s`, and start again on the next request."""

    after_s: Positive
    by: Literal["stop", "engine"] = Field(
        default="stop", description="`stop`: an autoscaler stops the stack; `engine`: it exits of itself when idle"
    )


class Idle(Model):
    """What a stack does without traffic: `keep_warm`, or `{scale_to_zero: {after_s: 300}}` in the file."""

    scale_to_zero: ScaleToZero | None = None

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: object) -> object:
        if value == "keep_warm":
            return {}
        if isinstance(value, str):
            raise ValueError(f"{value!r} is no idle policy")
        return value

    @property
    def keep_warm(self) -> bool:
        """True when the GPU is held through idle time."""
        return self.scale_to_zero is None


IDLE_ALLOWED = "keep_warm, or {scale_to_zero: {after_s: SECONDS}}"
_IDLE_SCHEMA = {
    "anyOf": [
        {"const": "keep_warm"},
        {
            "type": "object",
            "required": ["scale_to_zero"],
            "additionalProperties": False,
            "properties": {
                "scale_to_zero": {
                    "type": "object",
                    "required": ["after_s"],
                    "additionalProperties": False,
                    "properties": {
                        "after_s": {"type": "number", "exclusiveMinimum": 0},
                        "by": {"enum": ["stop", "engine"]},
                    },
                }
            },
        },
    ]
}
IdlePolicy = Annotated[Idle, WithJsonSchema(_IDLE_SCHEMA)]


class IdlePolicies(Model):
    """Idle policy of each side. In the file: `keep_warm` or `{scale_to_zero: {after_s: 300}}`."""

    baseline: IdlePolicy = Idle()
    candidate: IdlePolicy = Idle()

    def of(self, side: Side) -> Idle:
        """The policy of one side."""
        return self.baseline if side is Side.BASELINE else self.candidate


class Traffic(Model):
    """The arrivals that the money is computed for: exactly one of the three."""

    requests_per_hour: Positive | None = Field(default=None, description="Poisson arrivals at this mean rate")
    hourly_profile: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(), description="24 mean requests per hour, midnight first"
    )
    trace: str | None = Field(default=None, description="a file of arrival times, formats as for workload.trace")
    replicas: PositiveInt = Field(default=1, description="how many copies of the stack share the traffic")

    @model_validator(mode="after")
    def _one_kind(self) -> Traffic:
        given = [self.requests_per_hour is not None, bool(self.hourly_profile), self.trace is not None]
        if sum(given) != 1:
            raise ValueError("exactly one of requests_per_hour, hourly_profile, trace is needed")
        if self.hourly_profile and len(self.hourly_profile) != 24:
            raise ValueError(f"hourly_profile needs 24 numbers, found {len(self.hourly_profile)}")
        if self.hourly_profile and not any(self.hourly_profile):
            raise ValueError("hourly_profile is zero all day: cost per token is undefined without traffic")
        return self


class Migration(Model):
    """What it costs once to move to the candidate, charged when driver, container or GPU pool differ."""

    hours: float = Field(default=0.0, ge=0)
    hourly_usd: float = Field(default=0.0, ge=0)
    dual_run_gpu_hours: float = Field(default=0.0, ge=0)
    horizon_months: Positive = 12.0


class Cost(Model):
    """Prices. Without this block the money of row 6 is not computed: it then says GPU-seconds per 1M tokens."""

    gpu_hour_usd: Positive | dict[Side, Positive]
    electricity_usd_per_kwh: float | None = Field(
        default=None, ge=0, description="left out when the GPU price contains power"
    )
    grid_efficiency: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None)
    pue: Annotated[float, Field(ge=1)] | None = None
    board_to_server: Annotated[float, Field(ge=1)] = Field(
        default=1.0, description="server energy over GPU board energy"
    )
    billing_granularity_s: float = Field(default=0.0, ge=0, description="held time is billed in steps of this")
    traffic: Traffic | None = None
    idle: IdlePolicies = IdlePolicies()
    migration: Migration | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Cost:
        if self.pue is not None and self.grid_efficiency is not None:
            raise ValueError(
                "pue and grid_efficiency both describe the way from the grid to the chip: give one, never both"
            )
        if isinstance(self.gpu_hour_usd, dict) and set(self.gpu_hour_usd) != set(Side):
            raise ValueError("gpu_hour_usd needs a number, or one for baseline and one for candidate")
        sleeps = not (self.idle.baseline.keep_warm and self.idle.candidate.keep_warm)
        if sleeps and self.traffic is None:
            raise ValueError("scale_to_zero needs traffic: without arrivals the idle time is unknown")
        return self

    def price(self, side: Side) -> float:
        """USD per GPU-hour of one side."""
        return self.gpu_hour_usd[side] if isinstance(self.gpu_hour_usd, dict) else self.gpu_hour_usd

    @property
    def efficiency(self) -> float:
        """Share of grid electricity that reaches the chip: `grid_efficiency`, 1/`pue`, or 1."""
        if self.grid_efficiency is not None:
            return self.grid_efficiency
        return 1.0 / self.pue if self.pue is not None else 1.0


# ---------------------------------------------------------------- the rest


class Load(Model):
    """The load generator."""

    processes: Literal["auto"] | PositiveInt = "auto"
    request_timeout_s: Positive = 600.0
    stall_timeout_s: Positive = Field(default=60.0, description="longest time without a byte once sent")


class Numerics(Model):
    """The numerics probe: do both stacks give the same answers?"""

    enabled: bool = True
    prompts: Annotated[int, Field(ge=1, le=500)] = 20
    output_tokens: PositiveInt = 32


class ReportOptions(Model):
    """How the report is written."""

    language: Literal["en", "es"] = "en"


class GitHubOptions(Model):
    """What is published."""

    comment: Literal["always", "changes", "failures", "never"] = "always"
    status: str | None = Field(default=None, max_length=255, description="status context; default servegate/<gate>")
    check_run: bool = False


class Config(Model):
    """The whole of `.servegate.yml`."""

    version: Literal[1]
    gate: Name
    model: ServedModel
    stacks: Stacks
    workload: Workload
    rounds: Rounds = Rounds()
    limits: Limits = Limits()
    slo: Slo = Slo()
    cost: Cost | None = None
    accelerator: Literal["auto", "nvidia", "cpu"] = "auto"
    calibration: str | None = Field(
        default=None,
        description="calibration.json that `servegate calibrate` wrote for this runner; default: the newest one",
    )
    load: Load = Load()
    numerics: Numerics = Numerics()
    report: ReportOptions = ReportOptions()
    github: GitHubOptions = GitHubOptions()

    @model_validator(mode="after")
    def _possible(self) -> Config:
        if self.cost is not None:
            for side in Side:
                if self.stacks.of(side).endpoint is not None and not self.cost.idle.of(side).keep_warm:
                    raise ValueError(
                        f"stacks.{side} is an endpoint, which servegate cannot stop: scale_to_zero cannot be shown"
                    )
        return self

    @property
    def status_context(self) -> str:
        """The context of the commit status."""
        return self.github.status or f"servegate/{self.gate}"
