"""From a seed and cells (or a trace) to planned requests and a digest: identical for both stacks.

Filled in by the lead. This file fixes the types that the load generator and the analysis see.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request as planned. `due_ns` is relative to the start of the cell in open loop, None in closed loop.

    The text sent is `nonce_text(...) + prompt` (see `workload.prompt_for_launch`): the nonce is the same for both stacks of
    a round and differs between rounds, so that no prefix cache hits by accident.
    """

    id: str
    prompt: str
    output_tokens: int
    due_ns: int | None


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One operating point with its requests, warm-up apart. Exactly one of concurrency and rate is set."""

    id: str
    name: str
    concurrency: int | None
    rate_per_second: float | None
    weight: float
    warmup: tuple[PlannedRequest, ...]
    measured: tuple[PlannedRequest, ...]
