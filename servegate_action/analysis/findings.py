"""From what speaks against a run to a check: all findings that fit into a sentence, or what is good when there are none."""

from __future__ import annotations

from collections.abc import Sequence

from servegate_action.analysis.judgement import HardCheck

MOST_NAMED = 3


def named(findings: Sequence[str]) -> str:
    """The first few findings, and how many more there are."""
    more = len(findings) - MOST_NAMED
    return "; ".join(findings[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def invalid_if(name: str, findings: Sequence[str], *, good: str, advice: str) -> HardCheck:
    """A check that makes the run INVALID when anything was found."""
    if findings:
        return HardCheck(name=name, kind="invalid", ok=False, detail=named(findings), advice=advice)
    return HardCheck(name=name, kind="invalid", ok=True, detail=good)
