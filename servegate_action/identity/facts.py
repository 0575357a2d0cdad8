"""What one source says of a stack's numbers: every part optional, each with where it was read.

Sources are merged by precedence: what the server says of itself, then the flags it was started with, then the files it
serves, then what the configuration declares. A found part that contradicts a declared one is a contradiction, in words.
"""

from __future__ import annotations

from dataclasses import dataclass

from servegate_action.identity.formats import normal
from servegate_action.records import Evidence


@dataclass(frozen=True, slots=True)
class Fact:
    """A value, how well it is known, and where it was read."""

    value: str
    evidence: Evidence
    source: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """The parts of a quantization tuple that one source knows. `auto` and `none` of an engine are not values."""

    weights: Fact | None = None
    activations: Fact | None = None
    kv_cache: Fact | None = None
    compute: Fact | None = None

    def over(self, other: Numbers) -> Numbers:
        """This source first, the other where this one says nothing."""
        return Numbers(
            weights=self.weights or other.weights,
            activations=self.activations or other.activations,
            kv_cache=self.kv_cache or other.kv_cache,
            compute=self.compute or other.compute,
        )


def proven(value: object, source: str) -> Fact | None:
    """A fact that was read, normalised; None for what an engine calls `auto`, `none` or nothing."""
    return _fact(value, Evidence.PROVEN, source)


def claimed(value: object, source: str) -> Fact | None:
    """A fact that somebody declares, or that only holds if a flag does what it says."""
    return _fact(value, Evidence.DECLARED, source)


def _fact(value: object, evidence: Evidence, source: str) -> Fact | None:
    if not isinstance(value, str) or normal(value) in ("", "auto", "none", "null"):
        return None
    name = normal(value)
    return Fact(
        "fp8_e4m3" if name == "fp8" else name, evidence, source
    )  # `fp8` of a flag is e4m3, in vLLM as in SGLang
