"""`rounds`, `limits` and `slo` of `.servegate.yml`: how often to measure, and what is still allowed.

The names of all gated metrics and their defaults live here. It refuses to compare a number with a limit (`analysis` does).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_serializer, model_validator

from servegate_action.config.base import Model, Positive


class Rounds(Model):
    """How many rounds, at which of them to look, and the budget. Looks happen after even rounds only."""

    min: Annotated[int, Field(ge=2, le=40)] = 4
    max: Annotated[int, Field(ge=2, le=40)] = 8
    budget_minutes: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Rounds:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if not self.looks:
            raise ValueError(
                f"no even number lies between min {self.min} and max {self.max}, and looks happen after even rounds only: "
                f"write {self.min + 1}"
            )
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """The even round counts from `min` to `max`."""
        return tuple(range(self.min + self.min % 2, self.max + 1, 2))


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


TAIL_SHARE = 0.05
"""What lies beyond a p95. Once more than this share of requests fails, the p95 itself is a failed request."""


def _below_the_tail(share: float) -> float:
    if share > TAIL_SHARE:
        raise ValueError(
            f"{share:g} is more than {TAIL_SHARE:.0%}: from there on a p95 lies on a failed request, whatever is allowed"
        )
    return share


_SHARE_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": TAIL_SHARE}, {"type": "string", "pattern": "^[0-9.]+%$"}]
}
Share = Annotated[
    float, Field(ge=0), AfterValidator(_below_the_tail), BeforeValidator(_parse_share), WithJsonSchema(_SHARE_SCHEMA)
]


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
    failed_share: Share = Field(default=0.0, description="largest share of failed requests, per cell: 5% at most")
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
        general = self.cells.default if in_cell else self.default
        return general or (DEFAULT_CELL_LIMITS if in_cell else DEFAULT_MIX_LIMITS)[metric]


class Slo(Model):
    """Absolute service levels of the candidate, per cell: broken means REJECT."""

    ttft_p95_ms: Positive | None = None
    tpot_p95_ms: Positive | None = None
