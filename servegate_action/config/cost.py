"""`cost` of `.servegate.yml`: prices, traffic, what a stack does when idle, and what moving to the candidate costs.

It refuses to compute money (`analysis` does).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, model_validator

from servegate_action.config.base import Model, Positive, PositiveInt
from servegate_action.records import Side


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
