"""`workload` of `.servegate.yml`: the fixed work that both stacks do.

A part of its own because `servegate load` needs it and nothing else of the configuration. It refuses to plan requests
(`servegate_action.workload` does).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from servegate_action.config.base import Model, Name, Positive, PositiveInt


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
    sigma: Annotated[float, Field(gt=0, le=5)]


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


def _one_or_many(value: object) -> object:
    """One number in flight needs no list."""
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


_STREAMS_SCHEMA = {"type": "integer", "exclusiveMinimum": 0}
_CONCURRENCY_SCHEMA = {"anyOf": [_STREAMS_SCHEMA, {"type": "array", "items": _STREAMS_SCHEMA}]}
Concurrency = Annotated[tuple[PositiveInt, ...], BeforeValidator(_one_or_many), WithJsonSchema(_CONCURRENCY_SCHEMA)]


class Cell(Model):
    """One kind of request; a list of concurrencies makes one operating point of each."""

    name: Name
    prompt_tokens: Length = Field(description="a number, `uniform(a, b)` or `lognormal(mean, sigma)`")
    output_tokens: Length = Field(description="a number, `uniform(a, b)` or `lognormal(mean, sigma)`")
    concurrency: Concurrency = Field(default=(), description="requests in flight (closed loop): one number, or a list")
    rate_per_second: Positive | None = Field(default=None, description="mean arrivals per second (open loop, Poisson)")
    weight: Positive = Field(default=1.0, description="share of the traffic, split evenly over the concurrencies")
    requests: PositiveInt = Field(default=200, description="measured requests per operating point and launch")
    warmup_requests: PositiveInt | None = Field(
        default=None, description="default: twice the concurrency; 8 in open loop"
    )
    shared_prefix_tokens: int = Field(default=0, ge=0, description="tokens that all prompts of the cell begin with")

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
