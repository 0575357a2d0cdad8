"""What the candidate must hold whatever the baseline does: failures, service levels, and room for the declared traffic.

These are absolute levels, held against the numbers that the report shows; no test is made. A baseline that fails is no
reference, which makes the comparison INVALID rather than the candidate bad.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from servegate_action.analysis.cells import CellMeasures
from servegate_action.analysis.findings import named
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import Evidence
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side


def failed_share_checks(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """Failed over attempted requests of each cell and side, over all rounds that count.

    Those of the warm-up too: they count in no latency, and a stack whose first requests fail has failed all the same.
    """
    if not evidence.rounds:
        return []
    return [
        _failed_in(config, cell.id, side, [one.metrics.mix.cells[cell.id] for one in evidence.of(side)])
        for cell in recording.plan.cells
        for side in Side
    ]


def _failed_in(config: Config, cell: str, side: Side, measures: Sequence[CellMeasures]) -> HardCheck:
    attempted = sum(one.attempted + one.warmup for one in measures)
    failed = sum(one.failed + one.warmup_failed for one in measures)
    allowed = config.limits.failed_share
    ok = failed <= allowed * attempted
    reasons: Counter[str] = Counter()
    for one in measures:
        reasons.update(dict(one.failures))
    why = f" ({named([f'{count}x {text}' for text, count in reasons.most_common()])})" if failed else ""
    return HardCheck(
        name="failed_share",
        kind="reject" if side is Side.CANDIDATE else "invalid",
        ok=ok,
        cell=cell,
        side=side,
        detail=f"{failed} of {attempted} requests failed{why}, allowed {allowed:.3g} of them",
        advice="" if ok else _failure_advice(side),
    )


def _failure_advice(side: Side) -> str:
    if side is Side.CANDIDATE:
        return "read server.log of the candidate's launches; a failed request counts as an infinite latency"
    return "mend the baseline or lower the load: a baseline that fails is no reference"


def slo_checks(config: Config, evidence: Evidence, cold_ttft_ms: float | Absent | None) -> list[HardCheck]:
    """Absolute levels of the candidate in each cell: geometric mean over rounds of the p95 of each launch.

    `cold_ttft_ms` is the candidate's p95 TTFT with cold starts, None where it does not sleep. Answers of one token have
    no TPOT, so that their cells have no level of it.
    """
    launches = [launch.metrics.mix.cells for launch in evidence.of(Side.CANDIDATE)]
    cells = {name: [one[name] for one in launches] for name in (launches[0] if launches else ())}
    checks: list[HardCheck] = []
    if config.slo.ttft_p95_ms is not None:
        level = _Level("slo_ttft_p95", "p95 TTFT", config.slo.ttft_p95_ms)
        checks += [level.check(typical([one.ttft.p95_ms for one in own]), cell=name) for name, own in cells.items()]
    if config.slo.tpot_p95_ms is not None:
        level = _Level("slo_tpot_p95", "p95 TPOT", config.slo.tpot_p95_ms)
        checks += [
            level.check(typical([one.tpot.p95_ms for one in own]), cell=name)
            for name, own in cells.items()
            if own[0].plan.output_tokens > 1
        ]
    if config.slo.ttft_p95_ms is not None and cold_ttft_ms is not None:
        level = _Level("slo_ttft_p95_with_cold_starts", "p95 TTFT with cold starts", config.slo.ttft_p95_ms)
        checks.append(level.check(cold_ttft_ms, cell=None))
    return checks


def typical(values: Sequence[float | Absent]) -> float | Absent:
    """Geometric mean over rounds; +inf as soon as one is, absent as soon as one is."""
    product = 1.0
    for value in values:
        if isinstance(value, Absent):
            return value
        product *= value ** (1.0 / len(values))
    return product


@dataclass(frozen=True, slots=True)
class _Level:
    """One declared service level, in ms."""

    name: str
    words: str
    most_ms: float

    def check(self, value: float | Absent, *, cell: str | None) -> HardCheck:
        """Held against a value; a level that cannot be read allows no PASS."""
        if isinstance(value, Absent):
            detail = f"{self.words} cannot be held against its level: {value.absent}"
            return self._made("inconclusive", detail, ok=False, cell=cell)
        shown = f"{value:.4g} ms" if math.isfinite(value) else "a failed request"
        detail = f"{self.words} is {shown}, its service level is {self.most_ms:g} ms"
        return self._made("reject", detail, ok=value <= self.most_ms, cell=cell)

    def _made(self, kind: Literal["reject", "inconclusive"], detail: str, *, ok: bool, cell: str | None) -> HardCheck:
        advice = "" if ok else "make it faster, lower the load per replica, or change the level in the gate's policy"
        return HardCheck(name=self.name, kind=kind, ok=ok, cell=cell, side=Side.CANDIDATE, detail=detail, advice=advice)


def capacity_checks(duty: Mapping[Side, float]) -> list[HardCheck]:
    """Can the declared traffic be served at all? Only the candidate's shortfall is the candidate's fault."""
    if not duty:
        return []
    baseline, candidate = duty[Side.BASELINE], duty[Side.CANDIDATE]
    return [
        HardCheck(
            name="capacity",
            kind="inconclusive" if baseline > 1.0 else "reject",
            ok=max(baseline, candidate) <= 1.0,
            detail=f"the declared traffic needs {baseline:.1%} of the baseline's time and {candidate:.1%} of the candidate's",
            advice="" if max(baseline, candidate) <= 1.0 else "declare more replicas, or the traffic of one replica",
        )
    ]
