"""What is shown beside the metrics: numbers of both sides that explain a row and decide nothing.

Each is the plain mean over the rounds that count, absent (with the reason) as soon as one round lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from servegate_action.analysis.books import seconds_to_first_token
from servegate_action.analysis.cells import CellMeasures
from servegate_action.analysis.compared import mean_utilization, saturating_cells
from servegate_action.analysis.metrics import MaybeFloat
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.analysis.row_lines import Sight
from servegate_action.analysis.signals import busy_power_w
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side

GIB = float(1 << 30)
NO_ROUND = Absent(absent="no complete round")


def sights(config: Config, recording: Recording, evidence: Evidence) -> dict[int, tuple[Sight, ...]]:
    """By row number."""
    look = _Look(recording, evidence)
    return {
        2: (
            *look.cells("input tok/s", "tok/s", lambda cell: cell.input_tokens_per_second),
            look.mix("goodput", "%", lambda launch: _scaled(launch.metrics.mix.goodput, 100.0), note="meets every slo"),
        ),
        3: _machine(look),
        4: (
            *look.cells("decode tok/s, server", "tok/s", lambda cell: cell.decode_tokens_per_second),
            *look.cells("decode tok/s per user", "tok/s", lambda cell: cell.decode_user_median, note="median"),
            *look.cells("decode tok/s per user", "tok/s", lambda cell: cell.decode_user_p5, note="p5"),
        ),
        5: _latencies(look),
        6: _starts(config, look),
    }


@dataclass(frozen=True, slots=True)
class _Look:
    """Both sides over the rounds that count."""

    recording: Recording
    evidence: Evidence

    def mix(self, label: str, unit: str, of: Callable[[Launch], MaybeFloat], *, note: str = "") -> Sight:
        ours, theirs = (_mean([of(launch) for launch in self.evidence.of(side)]) for side in Side)
        return Sight(label, unit, ours, theirs, note=note)

    def cells(
        self, label: str, unit: str, of: Callable[[CellMeasures], MaybeFloat], *, note: str = ""
    ) -> Sequence[Sight]:
        return [self.cell(plan.id, label, unit, of, note=note) for plan in self.recording.plan.cells]

    def cell(
        self, name: str, label: str, unit: str, of: Callable[[CellMeasures], MaybeFloat], *, note: str = ""
    ) -> Sight:
        ours, theirs = (_mean([of(one.metrics.mix.cells[name]) for one in self.evidence.of(side)]) for side in Side)
        return Sight(label, unit, ours, theirs, cell=name, note=note)


def _mean(values: Sequence[MaybeFloat]) -> MaybeFloat:
    """Plain mean; absent as soon as one value is, or when a failed request reaches one."""
    known = [value for value in values if not isinstance(value, Absent)]
    missing = next((value for value in values if isinstance(value, Absent)), None)
    if missing is not None:
        return missing
    if not known:
        return NO_ROUND
    mean = float(np.mean(known))
    return mean if np.isfinite(mean) else Absent(absent="a failed request reaches it")


def _scaled(value: MaybeFloat, factor: float) -> MaybeFloat:
    return value if isinstance(value, Absent) else value * factor


def _machine(look: _Look) -> tuple[Sight, ...]:
    cells = saturating_cells(look.recording) or look.recording.plan.cells
    per_cell = [
        look.mix("utilization", "%", lambda launch, one=plan: mean_utilization(launch, [one]))  # type: ignore[misc]
        for plan in cells
    ]
    named = [
        Sight(one.label, one.unit, one.baseline, one.candidate, cell=plan.id)
        for one, plan in zip(per_cell, cells, strict=True)
    ]
    return (
        *named,
        look.mix("utilization of the least used accelerator", "%", _lowest),
        look.mix("power while serving", "W", _busy_power),
        look.mix("power ready and idle", "W", lambda launch: launch.signals.idle_power_w),
        look.mix("memory held", "GiB", lambda launch: _scaled(launch.signals.memory_bytes, 1.0 / GIB)),
        look.mix("time at the power limit", "%", lambda launch: _scaled(launch.signals.power_capped_share, 100.0)),
    )


def _lowest(launch: Launch) -> MaybeFloat:
    values = list(launch.signals.utilization_lowest.values())
    missing = next((value for value in values if isinstance(value, Absent)), None)
    return missing or min(value for value in values if not isinstance(value, Absent))


def _busy_power(launch: Launch) -> MaybeFloat:
    return busy_power_w(launch.metrics, launch.signals)


def _latencies(look: _Look) -> tuple[Sight, ...]:
    """Success-only values beside the gated ones, TTFT from the real send in open loop, and the first answer token."""
    found: list[Sight] = []
    for plan in look.recording.plan.cells:
        found.append(look.cell(plan.id, "p95 TTFT, successes only", "ms", lambda cell: cell.ttft.p95_ok_ms))
        if plan.output_tokens > 1:
            found.append(look.cell(plan.id, "p95 TPOT, successes only", "ms", lambda cell: cell.tpot.p95_ok_ms))
        if plan.concurrency is None:
            note = "from the real send"
            found.append(look.cell(plan.id, "p95 TTFT", "ms", lambda cell: cell.ttft_from_sent.p95_ms, note=note))
        found.append(look.cell(plan.id, "p95 time to first answer token", "ms", lambda cell: cell.ttfo.p95_ms))
        found += _server_sights(look, plan.id)
    return tuple(found)


def _server_sights(look: _Look, cell: str) -> list[Sight]:
    """The server's own mean TTFT beside the client's, and preemptions, of the sides whose server counts them."""
    views = {side: [launch.server[cell] for launch in look.evidence.of(side)] for side in Side}
    seen = {side: [launch.mean_ttft_ms[cell] for launch in look.evidence.of(side)] for side in Side}
    rows = (
        ("mean TTFT, the server's own", "ms", {side: [one.mean_ttft_ms for one in own] for side, own in views.items()}),
        ("preemptions", "", {side: [one.preemptions for one in own] for side, own in views.items()}),
    )
    found = [
        Sight(label, unit, _told(values[Side.BASELINE]), _told(values[Side.CANDIDATE]), cell=cell)
        for label, unit, values in rows
        if any(value is not None for own in values.values() for value in own)
    ]
    if found:
        ours, theirs = seen[Side.BASELINE], seen[Side.CANDIDATE]
        found.append(Sight("mean TTFT, the client's", "ms", _told(ours), _told(theirs), cell=cell))
    return found


def _told(values: Sequence[float | None]) -> MaybeFloat:
    silent = Absent(absent="the server does not count it")
    return _mean([silent if value is None else value for value in values])


def _starts(config: Config, look: _Look) -> tuple[Sight, ...]:
    count = len(look.evidence.rounds)
    starts = {side: [seconds_to_first_token(launch) for launch in look.evidence.of(side)] for side in Side}
    longest = {side: _largest(values) for side, values in starts.items()}
    return (
        look.mix("tokens per joule, at the board", "tok/J", _tokens_per_joule),
        look.mix("cold start to first token", "s", seconds_to_first_token, note=f"mean of {count}"),
        Sight(
            "cold start to first token", "s", longest[Side.BASELINE], longest[Side.CANDIDATE], note=f"max of {count}"
        ),
        *([] if config.cost is not None else [look.mix("output tok/s of the mix", "tok/s", _mix_rate)]),
    )


def _mix_rate(launch: Launch) -> MaybeFloat:
    return launch.metrics.mix.output_tokens_per_second


def _tokens_per_joule(launch: Launch) -> MaybeFloat:
    rate, power = _mix_rate(launch), _busy_power(launch)
    if isinstance(rate, Absent):
        return rate
    if isinstance(power, Absent):
        return power
    return rate / power if power > 0 else Absent(absent="the power reading was zero while tokens were made")


def _largest(values: Sequence[MaybeFloat]) -> MaybeFloat:
    mean = _mean(values)
    return mean if isinstance(mean, Absent) else max(value for value in values if not isinstance(value, Absent))
