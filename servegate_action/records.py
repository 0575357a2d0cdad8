"""The raw facts of a run, frozen and versioned: the seam between measuring and thinking.

Hands write these records to disk as they happen; thought reads them and computes everything else. Nothing in here is
derived from anything else in here. Times are integer nanoseconds of one monotonic clock (CLOCK_MONOTONIC of the
measuring host) unless the name says otherwise; one wall-clock anchor per run joins them to the calendar. A value that
could not be had is `Absent` with the reason: never 0, never NaN, never a missing key.

This module refuses to compute, to read files, and to know any other room.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of every record: immutable, and unknown keys are an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", allow_inf_nan=False, defer_build=True
    )


class Absent(Record):
    """A value that does not exist, with the reason why."""

    absent: str


MaybeInt = int | Absent
MaybeStr = str | Absent

Nanoseconds = Annotated[int, Field(ge=0)]


class Side(StrEnum):
    """Which of the two stacks."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.CANDIDATE if self is Side.BASELINE else Side.BASELINE


# ---------------------------------------------------------------- requests


class TokenSource(StrEnum):
    """Where a request's number of output tokens comes from."""

    USAGE = "usage"
    EVENTS = "events"


class RequestRecord(Record):
    """One attempted request, as the client saw it. One JSON line in `requests.jsonl.gz`.

    `token_ns` holds one stamp per *token event* (docs/measurement.md, definition 1), in order. `event_tokens` holds the
    number of tokens of each event when the server says so per event; otherwise `None` (one token per event is then only
    assumed for the first event, never for N). A failed request keeps what had arrived and says why in `error`.
    """

    id: str
    cell: str
    phase: Literal["warmup", "measured"]
    scheduled_ns: Nanoseconds
    sent_ns: Nanoseconds | None
    first_byte_ns: Nanoseconds | None
    token_ns: tuple[int, ...]
    event_tokens: tuple[int, ...] | None
    first_event_tokens: int | None = Field(
        default=None,
        description="tokens of the first event by its share of the text, where N is more than the events and nobody says whose",
    )
    first_answer_ns: Nanoseconds | None = Field(description="first token event that is not reasoning (TTFO)")
    end_ns: Nanoseconds
    requested_output_tokens: int
    prompt_tokens: int | None
    output_tokens: int | None
    token_source: TokenSource | None
    cached_tokens: int | None
    finish_reason: str | None
    events: int = Field(description="SSE events of any kind, [DONE] and comments included")
    coalesced_reads: int = Field(
        description="reads that held more than one token event, so that only the last is stamped"
    )
    slot: int | None = Field(description="closed loop: the slot (stream) that sent it")
    connection_reused: bool
    resent: bool = Field(
        default=False, description="sent again, because the connection had been closed before the request came"
    )
    ok: bool
    error: str | None
    text_sha256: str | None = Field(description="digest of the joined answer text; None when nothing arrived")


class StampSource(StrEnum):
    """Which clock stamped the arrivals, best first."""

    KERNEL = "kernel SO_TIMESTAMPING"
    USER = "user space, at the read"


class ClientHealth(Record):
    """How well the load generator itself did while it measured one cell."""

    processes: int
    stamp_source: StampSource
    reads: int
    reads_without_kernel_stamp: int
    coalesced_reads: int
    cpu_ns: int = Field(
        description="CPU time of all client processes between the first and the last request of the cell"
    )
    parse_cpu_ns: int
    wall_ns: int
    dispatch_lag_p99_ns: int = Field(
        description="sent − due: due is the schedule (open loop) or the hand-over of the slot"
    )
    clock_offset_drift_ns: int = Field(description="largest change of REALTIME − MONOTONIC seen")
    peak_rss_bytes: int


class Certificate(Record):
    """What the client measured of itself against its own fixed-pace server at one operating point."""

    concurrency: int
    events_per_second: float
    requests: int
    stamp_error_p99_ns: int
    ttft_error_p95_ns: int
    dispatch_lag_p99_ns: int
    cpu_share: float = Field(description="CPU seconds per second and client process, 1.0 = a whole core")
    coalesced_read_share: float
    processes: int
    stamp_source: StampSource
    passed: bool
    advice: str


class Dialect(Record):
    """What the server's API accepts; probed once, then the same request body is used on both stacks."""

    api: Literal["completions", "chat"]
    served_model: str
    stream_options: bool
    ignore_eos: bool
    min_tokens: bool
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"]
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- telemetry


class DeviceStatic(Record):
    """What does not change about one accelerator during a run."""

    uuid: str
    name: str
    memory_bytes: MaybeInt
    power_limit_mw: MaybeInt
    max_sm_clock_mhz: MaybeInt
    mig: MaybeStr
    ecc: MaybeStr


class TelemetryStatic(Record):
    """The counters that exist on this machine, by name, or why they do not. Written once per launch."""

    backend: Literal["nvidia", "cpu"]
    devices: tuple[DeviceStatic, ...]
    driver: MaybeStr
    cuda: MaybeStr
    energy_counter: MaybeStr
    power_counter: MaybeStr
    utilization_counter: MaybeStr
    memory_counter: MaybeStr
    throttle_counter: MaybeStr
    interval_ns: int
    notes: tuple[str, ...] = ()


class DeviceSample(Record):
    """One device at one moment. `None`: not read at this tick (the static record says whether it ever is)."""

    uuid: str
    power_mw: int | None = None
    energy_mj: int | None = None
    utilization_percent: float | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    ecc_uncorrected: int | None = None
    process_ids: tuple[int, ...] | None = None


class TelemetrySample(Record):
    """All devices at one moment. One JSON line in `telemetry.jsonl`. `error` says what could not be read and why."""

    t_ns: Nanoseconds
    devices: tuple[DeviceSample, ...]
    error: str | None = None
    others: tuple[DeviceSample, ...] | None = Field(
        default=None, description="visible GPUs that the stack is not declared to hold: memory and processes only"
    )
    stack_processes: tuple[int, ...] | None = Field(
        default=None, description="the stack's own host pids, when they are news and the sampler sees the host's pids"
    )


# ---------------------------------------------------------------- identity


class Evidence(StrEnum):
    """How well a fact is known, best first."""

    PROVEN = "proven"
    DECLARED = "declared"
    UNKNOWN = "unknown"


class Quantization(Record):
    """The quantization tuple. Names are lower case (`bf16`, `fp8_e4m3`, `q4_1`, `w4a16-awq` …)."""

    weights: MaybeStr
    activations: MaybeStr
    kv_cache: MaybeStr
    compute: MaybeStr
    evidence: Evidence
    source: str


class ModelIdentity(Record):
    """Which weights a stack serves."""

    name: str
    digest: MaybeStr = Field(
        description="sha256 over the sorted `path<TAB>size<TAB>sha256` lines, or a pinned revision"
    )
    files: int
    size_bytes: int
    evidence: Evidence
    source: str


class BatchIdentity(Record):
    """How many requests a stack may run at once."""

    cap: MaybeInt
    evidence: Evidence
    source: str


class StackIdentity(Record):
    """What a stack is, as far as it can be known."""

    engine: MaybeStr
    engine_version: MaybeStr
    model: ModelIdentity
    quantization: Quantization
    batch: BatchIdentity
    container_digest: MaybeStr
    command: tuple[str, ...] = Field(description="how it was started, secrets out")
    read_back: dict[str, str] = Field(description="what the server said of itself, flattened; foreign text")
    contradictions: tuple[str, ...] = Field(default=(), description="where what was found is not what is declared")


class LogprobComparison(Record):
    """Log-probabilities that both servers report for the same token after the same text. Natural logarithms."""

    tokens: int = Field(
        description="tokens compared: of each answer those up to the first that differs, that one included"
    )
    same_tokens: int = Field(description="how many of them both stacks chose")
    mean_difference: float = Field(description="mean absolute difference over the tokens that both chose")
    own_mean_difference: float = Field(description="the same of the baseline against itself")


class AnswersCompared(Record):
    """Greedy answers to the same prompts: the candidate's beside the baseline's, and the baseline's beside its own second ones."""

    prompts: int
    self_match: float = Field(description="exact-match rate of the baseline against itself")
    cross_match: float = Field(description="exact-match rate of the candidate against the baseline")
    self_agreement: float = Field(
        description="share of leading tokens (characters) that agree, baseline against itself"
    )
    cross_agreement: float
    first_divergence_median: MaybeInt = Field(
        description="characters before the first difference, over differing answers"
    )
    passed: bool
    reason: str


class NumericsProbe(Record):
    """Do the two stacks give the same answers? Fixed prompts, asked in three ways."""

    alone: AnswersCompared = Field(description="short prompts, one at a time")
    long: AnswersCompared | Absent = Field(description="prompts as long as the workload's longest, one at a time")
    together: AnswersCompared | Absent = Field(description="both kinds, as many at once as the workload asks for")
    logprobs: LogprobComparison | Absent = Field(description="of the short prompts; shown, never gated")


class Host(Record):
    """The machine that did the measuring."""

    hostname: str
    kernel: str
    cpu: str
    cpus: int
    memory_bytes: int
    cpu_governor: MaybeStr
    load_average: float
    python: str


# ---------------------------------------------------------------- launches and rounds


class ColdStart(Record):
    """One launch in phases, monotonic ns. `requested` is the moment servegate asked for the start."""

    requested_ns: Nanoseconds
    image_ready_ns: MaybeInt
    process_up_ns: MaybeInt
    port_open_ns: MaybeInt
    healthy_ns: MaybeInt
    first_token_ns: MaybeInt
    page_cache: Literal["dropped", "as found", "unknown"]


class Release(Record):
    """Whether a stopped (or idle) stack gave everything back, and when."""

    trigger: Literal["stop", "idle timeout"]
    waited_ns: int
    process_gone: bool
    port_closed: bool
    memory_released: bool | Absent
    power_released: bool | Absent
    real: bool
    reason: str


class CellRun(Record):
    """One cell measured on one launch. Its requests are in the launch's `requests.jsonl.gz`."""

    cell: str
    started_ns: Nanoseconds
    steady_start_ns: Nanoseconds
    steady_end_ns: Nanoseconds
    ended_ns: Nanoseconds
    requests: int
    client: ClientHealth
    server_metrics_before: dict[str, float] = Field(default_factory=dict)
    server_metrics_after: dict[str, float] = Field(default_factory=dict)


class LaunchState(StrEnum):
    """How a launch ended. Only `complete` launches are judged."""

    COMPLETE = "complete"
    RUNNING = "running"
    FAILED = "failed"
    VOIDED = "voided"


class IdleBlock(Record):
    """The stack ready, but without requests: its price for waiting."""

    started_ns: Nanoseconds
    ended_ns: Nanoseconds


class LaunchRecord(Record):
    """One start of a stack, the whole workload on it, and its stop."""

    round: int = Field(ge=1)
    side: Side
    position: Literal[1, 2] = Field(description="first or second in its round")
    attempt: int = Field(ge=1, description="more than 1 when an earlier attempt of this round was voided")
    directory: str = Field(
        pattern=r"^rounds/[0-9]{2,6}-(baseline|candidate)(-[0-9]{1,3})?$", description="relative to the run directory"
    )
    state: LaunchState
    reason: str | None = Field(description="why it failed or was voided")
    cold_start: ColdStart | None
    idle: IdleBlock | None
    cells: tuple[CellRun, ...]
    release: Release | None


class Failure(Record):
    """Why a run stopped before its end."""

    kind: Literal["could not measure", "cancelled"]
    what: str
    why: str
    next_step: str
    side: Side | None
    log_tail: tuple[str, ...] = ()


# ---------------------------------------------------------------- the run


class ClockAnchor(Record):
    """One moment on both clocks: monotonic ns and UTC wall-clock ns."""

    monotonic_ns: int
    wall_ns: int
    wall_iso: str


class CellPlan(Record):
    """One operating point of the workload, as planned."""

    id: str = Field(description="`name/concurrency`, `name@rate` or `trace`")
    name: str
    prompt_tokens: float = Field(description="mean, as planned")
    output_tokens: float = Field(description="mean, as planned")
    concurrency: int | None
    rate_per_second: float | None
    weight: float = Field(gt=0)
    requests: int
    warmup_requests: int


class Plan(Record):
    """What was fixed before the first launch."""

    cells: tuple[CellPlan, ...]
    looks: tuple[int, ...]
    order: tuple[tuple[Side, Side], ...] = Field(description="who goes first, per round")
    prompt_offset: float = Field(description="tokens of every prompt beside its words: begin-of-text, chat template")
    tokens_per_word: float = Field(description="of the prompts' words, as the baseline counts")
    workload_sha256: str
    config_sha256: str


class Change(Record):
    """The change that is being gated, when known."""

    repository: str
    head_sha: str
    base_sha: str | None
    number: int | None
    policy_from: str = Field(description="where workload, limits, prices and baseline were read")
    policy_edits: tuple[str, ...] = Field(default=(), description="keys of the policy that the change edits")


class Recording(Record):
    """`recording.json`: everything raw that is not in the per-launch files."""

    schema_version: Literal[1] = 1
    tool_version: str
    run_id: str
    gate: str
    anchor: ClockAnchor
    finished_ns: Nanoseconds | None
    operator: str
    run_url: str | None
    change: Change | None
    host: Host
    accelerator: Literal["nvidia", "cpu"]
    floor: TelemetrySample | None = Field(description="the accelerator before any launch: bare power P0 and memory M0")
    telemetry: TelemetryStatic | Absent
    plan: Plan
    dialect: Dialect | None
    identities: dict[Side, StackIdentity]
    numerics: NumericsProbe | Absent
    certificates: tuple[Certificate, ...]
    launches: tuple[LaunchRecord, ...]
    notes: tuple[str, ...]
    state: Literal["running", "finished", "failed", "cancelled"]
    failure: Failure | None
