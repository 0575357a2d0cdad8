"""The checklist: eight rows, always all of them, in their order, whatever was or was not measured.

A row puts what has been decided (metrics, checks) beside what is only shown (shares, items, counters). The line that
stands worst comes first, because a short table shows one line of each row. Nothing is decided and nothing is computed
from raw data here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from servegate_action.analysis.identity_check import Sameness
from servegate_action.analysis.judgement import CostComparison, Difference, Mark, Outcome, Row, RowLine, SideCost, Word
from servegate_action.analysis.row_lines import (
    EQUALITY,
    WORST_FIRST,
    Findings,
    Sight,
    check_lines,
    check_mark,
    metric_lines,
)
from servegate_action.config.limits import MetricName
from servegate_action.records import Absent, Side
from servegate_action.records import Evidence as Known

TITLES = (
    "Same model, same quantization, same batch size",
    "Tokens per GPU-hour",
    "GPU utilization",
    "Decode tok/s",
    "p95 TTFT and p95 TPOT",
    "Cost per 1M tokens",
    "Compared against the current serving stack",
    "No metric regressed",
)


def rows(findings: Findings) -> tuple[Row, ...]:
    """All eight."""
    bodies = (_identity, _tokens, _utilization, _decode, _latency, _cost, _comparison, _nothing_regressed)
    return tuple(_row(number, *body(findings)) for number, body in enumerate(bodies, start=1))


def _row(number: int, lines: Sequence[RowLine], notes: Iterable[str] = ()) -> Row:
    """What is bad, then what is open, leads; else the row's own number does. The row stands as its first line."""
    worst = min(lines, key=lambda line: WORST_FIRST.index(line.mark))
    first = worst if worst.mark in (Mark.BAD, Mark.OPEN) else lines[0]
    rest = [line for line in lines if line is not first]
    return Row(number=number, title=TITLES[number - 1], mark=first.mark, lines=(first, *rest), notes=tuple(notes))


# ---------------------------------------------------------------- the rows

IDENTITY_CHECKS = {
    "identity_declared": "as declared",
    "numerics": "answers",
    "numerics_long": "answers to long prompts",
    "numerics_together": "answers to many at once",
}
Body = tuple[list[RowLine], list[str]]


def _identity(findings: Findings) -> Body:
    parts = findings.parts
    if isinstance(parts, Absent):
        line = RowLine(
            label="model, quantization, batch size",
            baseline=parts,
            candidate=parts,
            change=EQUALITY,
            allowed="equal",
            verdict=Known.UNKNOWN.value,
            mark=Mark.OPEN,
        )
        return [line, *check_lines(findings, IDENTITY_CHECKS)], []
    lines = [_sameness_line(findings, part) for part in parts]
    summary = RowLine(
        label="model, quantization, batch size",
        baseline="; ".join(part.baseline for part in parts),
        candidate="; ".join(part.candidate for part in parts),
        change=EQUALITY,
        allowed="equal",
        verdict=_summary_word(parts),
        mark=min((line.mark for line in lines), key=WORST_FIRST.index),
    )
    return [summary, *lines, *check_lines(findings, IDENTITY_CHECKS)], [f"{part.part}: {part.detail}" for part in parts]


def _sameness_line(findings: Findings, part: Sameness) -> RowLine:
    name = f"identity_{part.part.split()[0]}"
    check = next(one for one in findings.checks if one.name == name)
    return RowLine(
        label=part.part,
        baseline=part.baseline,
        candidate=part.candidate,
        change=EQUALITY,
        allowed="equal",
        verdict="differs" if part.same is False else part.evidence.value,
        mark=check_mark(check),
    )


def _summary_word(parts: Sequence[Sameness]) -> str:
    if any(part.same is False for part in parts):
        return "differs"
    order = (Known.UNKNOWN, Known.DECLARED, Known.PROVEN)
    grades = [Known.UNKNOWN if part.same is None else part.evidence for part in parts]
    return min(grades, key=order.index).value


def _tokens(findings: Findings) -> Body:
    labels = {MetricName.TOKENS_PER_GPU_HOUR: "tokens per GPU-hour", MetricName.TOKENS_PER_SECOND: "output tok/s"}
    lines = metric_lines(findings, *labels, labels=labels)
    comparison = findings.money.comparison
    if not isinstance(comparison, Absent):
        ours, theirs = comparison.baseline, comparison.candidate
        effective = Sight(
            "effective tokens per GPU-hour",
            "tok/GPU-h",
            ours.effective_tokens_per_gpu_hour,
            theirs.effective_tokens_per_gpu_hour,
            note="over billed GPU-hours, idle and loading included",
        )
        lines.append(effective.line())
    lines += [sight.line() for sight in findings.sights.get(2, ())]
    lines += check_lines(findings, {"failed_share": "failed requests"})
    return lines, [
        "cells weigh in the mix by their share of the requests; the mix is the time that those take",
        *_machine_hours(findings),
    ]


def _machine_hours(findings: Findings) -> list[str]:
    """What stands for a GPU where there is none."""
    if findings.recording.accelerator == "nvidia":
        return []
    return ["without a GPU, a GPU-hour or GPU-second here is one of the whole machine"]


def _utilization(findings: Findings) -> Body:
    cpu = findings.recording.accelerator == "cpu"
    label = "CPU utilization" if cpu else "GPU utilization"
    counters = findings.recording.telemetry
    counter = counters if isinstance(counters, Absent) else counters.utilization_counter
    note = "" if isinstance(counter, Absent) else counter
    lines = metric_lines(findings, MetricName.GPU_UTILIZATION, labels={MetricName.GPU_UTILIZATION: label}, note=note)
    lines += [sight.line() for sight in findings.sights.get(3, ())]
    lines += check_lines(findings, {"telemetry": "validity", "tenants": "other processes"})
    if isinstance(counters, Absent):
        return lines, [f"no counter: {counters.absent}"]
    named = f"counter: {counter}" if not isinstance(counter, Absent) else f"no counter: {counter.absent}"
    metric = findings.metric(MetricName.GPU_UTILIZATION)
    why = metric.why_not_gated if metric is not None else None
    return lines, [named, *([why] if why else []), *counters.notes]


def _decode(findings: Findings) -> Body:
    names = (MetricName.DECODE_TOKENS_PER_SECOND,)
    lines = metric_lines(findings, *names, labels={MetricName.DECODE_TOKENS_PER_SECOND: "decode tok/s, server"})
    lines += [sight.line() for sight in findings.sights.get(4, ())]
    return lines, ["tokens after the first, over the time with a decode in flight; prefill is not in it"]


def _latency(findings: Findings) -> Body:
    labels = {
        MetricName.TTFT_P95: "p95 TTFT",
        MetricName.TPOT_P95: "p95 TPOT",
        MetricName.TTFT_P95_WITH_COLD_STARTS: "p95 TTFT with cold starts",
    }
    lines = metric_lines(findings, *labels, labels=labels)
    lines += check_lines(
        findings,
        {
            "slo_ttft_p95": "service level, p95 TTFT",
            "slo_tpot_p95": "service level, p95 TPOT",
            "slo_ttft_p95_with_cold_starts": "service level, p95 TTFT with cold starts",
        },
    )
    lines += [sight.line() for sight in findings.sights.get(5, ())]
    return lines, ["over all attempted requests, a failed one counts as infinite; nearest rank, n beside each value"]


def _cost(findings: Findings) -> Body:
    name = MetricName.COST_PER_1M_OUTPUT_TOKENS
    label = "cost per 1M output tokens" if findings.config.cost is not None else "GPU-seconds per 1M output tokens"
    lines = metric_lines(findings, name, labels={name: label})
    comparison = findings.money.comparison
    if isinstance(comparison, Absent):
        lines += [sight.line() for sight in findings.sights.get(6, ())]
        return [*lines, *check_lines(findings, {"capacity": "traffic served"})], [
            f"no line item: {comparison.absent}",
            *_machine_hours(findings),
        ]
    lines += [sight.line() for sight in _bill_sights(comparison)]
    lines += [sight.line() for sight in findings.sights.get(6, ())]
    lines += check_lines(findings, {"capacity": "traffic served"})
    notes = [
        f"traffic: {comparison.traffic}",
        f"baseline: {comparison.baseline.idle_policy}; candidate: {comparison.candidate.idle_policy}",
        comparison.break_even_sentence,
        *comparison.notes,
        *_machine_hours(findings),
        *(f"{side}: {one.poisson_check}" for side, one in _sides(comparison) if one.poisson_check),
    ]
    return lines, notes


def _sides(comparison: CostComparison) -> tuple[tuple[Side, SideCost], tuple[Side, SideCost]]:
    return (Side.BASELINE, comparison.baseline), (Side.CANDIDATE, comparison.candidate)


def _bill_sights(comparison: CostComparison) -> list[Sight]:
    """The line item as lines: totals, each item, shares of time, energy."""
    ours, theirs = comparison.baseline, comparison.candidate
    sights = [
        Sight("busy only, GPU money only", "USD/1M tok", ours.busy_only_per_1m_output, theirs.busy_only_per_1m_output),
        Sight("per 1M input and output tokens", "USD/1M tok", ours.per_1m_total, theirs.per_1m_total),
        Sight("per month", "USD/month", ours.usd_per_month, theirs.usd_per_month),
    ]
    first = {item.name: item.usd_per_1m_output for item in ours.items}
    second = {item.name: item.usd_per_1m_output for item in theirs.items}
    # An item that a side does not have costs it nothing: that zero is known.
    sights += [
        Sight(f"item: {name}", "USD/1M tok", first.get(name, 0.0), second.get(name, 0.0))
        for name in dict.fromkeys([*first, *second])
    ]
    sights += [
        Sight("time busy", "%", _percent(ours.share_busy), _percent(theirs.share_busy)),
        Sight("time warm and idle", "%", _percent(ours.share_warm_idle), _percent(theirs.share_warm_idle)),
        Sight("time loading", "%", 100 * ours.share_loading, 100 * theirs.share_loading),
        Sight("time off", "%", 100 * ours.share_off, 100 * theirs.share_off),
        Sight("tokens per joule, at the grid", "tok/J", ours.tokens_per_joule_grid, theirs.tokens_per_joule_grid),
        Sight("energy at the board", "kWh/month", ours.kwh_per_month_board, theirs.kwh_per_month_board),
        Sight("energy at the grid", "kWh/month", ours.kwh_per_month_grid, theirs.kwh_per_month_grid),
    ]
    return sights


def _percent(share: float | Absent) -> float | Absent:
    return share if isinstance(share, Absent) else 100 * share


def _comparison(findings: Findings) -> Body:
    stacks = findings.config.stacks
    enough = findings.decision.rounds_used > 0
    interleaved = RowLine(
        label="same run, same accelerator, alternating rounds",
        baseline=stacks.baseline.label,
        candidate=stacks.candidate.label,
        change=EQUALITY,
        allowed=f"{findings.rounds} complete rounds",
        verdict="measured" if enough else "not measured",
        mark=Mark.OK if enough else Mark.OPEN,
    )
    labels = {
        "order": "alternating order",
        "hardware": "same accelerator",
        "gpus_held": "GPUs held",
        "load_equal": "same work",
        "client": "load generator",
        "client_certificate": "load generator, certified",
        "prefix_cache": "prefix cache",
        "server_counts": "tokens as the servers count them",
        "launches": "launches",
        "complete": "run",
    }
    moved = [_difference_line(one) for one in findings.differences]
    notes = []
    if any(one.migration for one in findings.differences):
        comparison = findings.money.comparison
        cost = comparison.migration_usd if not isinstance(comparison, Absent) else 0.0
        notes.append(
            f"moving brings a migration cost of {cost:,.0f} USD"
            if cost > 0
            else "moving brings a migration cost; none is declared"
        )
    return [interleaved, *check_lines(findings, labels), *moved], notes


def _difference_line(one: Difference) -> RowLine:
    return RowLine(
        label=one.what,
        baseline=one.baseline,
        candidate=one.candidate,
        change=EQUALITY,
        allowed=None,
        verdict="differs, migration cost" if one.migration else "differs",
        mark=Mark.INFO,
    )


def _nothing_regressed(findings: Findings) -> Body:
    gated = [one for one in findings.decision.metrics if one.gated]
    count = {outcome: sum(one.outcome is outcome for one in gated) for outcome in Outcome}
    failed = [check for check in findings.checks if not check.ok]
    summary = (
        f"{count[Outcome.PASS]} of {len(gated)} within their limit, {count[Outcome.REJECT]} regressed, "
        f"{len(gated) - count[Outcome.PASS] - count[Outcome.REJECT]} undecided"
    )
    marks = {Word.PASS: Mark.OK, Word.REJECT: Mark.BAD}
    line = RowLine(
        label="gated metrics",
        baseline=f"{findings.decision.distinct} distinct metrics, {findings.decision.rounds_used} rounds",
        candidate=summary,
        change=Absent(absent="the sum of all rows"),
        allowed="none may regress",
        verdict=findings.decision.word.value,
        mark=marks.get(findings.decision.word, Mark.OPEN),
    )
    return [line], [findings.decision.headline, *(f"check failed: {check.detail}" for check in failed)]
