"""From a configuration, a recording and its files to the judgement: the whole of thinking on one screen.

`judge` is a pure function: the same files give the same judgement, byte for byte. It gathers complete rounds, reckons
metrics and money, runs the checks, has `verdict.decide` decide, and lays everything out in eight rows. It decides
nothing itself, and turns nothing that is missing into a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from servegate_action.analysis import verdict
from servegate_action.analysis.books import phases, seconds_to_first_token
from servegate_action.analysis.cells import token_trace
from servegate_action.analysis.compared import all_series
from servegate_action.analysis.economy import Economy, economy
from servegate_action.analysis.findings import named
from servegate_action.analysis.identity_check import differences, identity_checks, identity_summaries, sameness
from servegate_action.analysis.judgement import (
    Difference,
    HardCheck,
    Judgement,
    LaunchSummary,
    TraceSeries,
)
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.promises import capacity_checks, failed_share_checks, slo_checks, typical
from servegate_action.analysis.rounds import Evidence, Launch, gather, launch_client_trouble
from servegate_action.analysis.row_lines import Findings
from servegate_action.analysis.rows import rows
from servegate_action.analysis.series import MetricSeries
from servegate_action.analysis.sights import sights
from servegate_action.analysis.signals import launch_signals
from servegate_action.analysis.validity import complete_check, validity_checks
from servegate_action.analysis.verdict import Decision
from servegate_action.config.models import Config
from servegate_action.records import Absent, LaunchRecord, LaunchState, Recording, Side, TelemetrySample

# Longer traces are cut in the judgement; `tokens_per_second.csv` holds them whole.
MOST_TRACE_SECONDS = 900
# A server that flushes several tokens at once, or a client that reads late: worth a word above this share.
COALESCED_SHARE = 0.05
TRACE_HEADER = "round,attempt,stack,cell,second,output_tokens"


def judge(
    config: Config,
    recording: Recording,
    data: Mapping[str, LaunchData],
    *,
    arrivals_s: Sequence[float] = (),
) -> Judgement:
    """The judgement of a run, finished or not. `data`: the files of each launch, by its directory, each read once.

    `arrivals_s`: arrival times of the trace that `cost.traffic.trace` names. A recording that did not come to its end is
    judged on the rounds that it has, and never passes.
    """
    evidence = gather(config, recording, data)
    thought = _think(config, recording, evidence, arrivals_s=arrivals_s, ended=True)
    return _judgement(config, recording, evidence, thought)


def standing(
    config: Config,
    recording: Recording,
    data: Mapping[str, LaunchData],
    *,
    arrivals_s: Sequence[float] = (),
) -> Decision:
    """The decision at this moment of a run that may go on: `next_look` says after how many rounds to look again."""
    return _think(config, recording, gather(config, recording, data), arrivals_s=arrivals_s, ended=False).decision


def series_of(
    config: Config, recording: Recording, data: Mapping[str, LaunchData], *, arrivals_s: Sequence[float] = ()
) -> tuple[MetricSeries, ...]:
    """Every metric, paired over the complete rounds: what a calibration is made from."""
    evidence = gather(config, recording, data)
    migrates = any(one.migration for one in differences(config, recording, evidence))
    money = economy(config, recording, evidence, migrates=migrates, recorded_arrivals_s=arrivals_s)
    return tuple(all_series(config, recording, evidence, money))


# ---------------------------------------------------------------- thinking


@dataclass(frozen=True, slots=True)
class _Thought:
    """What was found out, before it is laid out."""

    decision: Decision
    checks: tuple[HardCheck, ...]
    money: Economy
    differences: tuple[Difference, ...]


def _think(
    config: Config, recording: Recording, evidence: Evidence, *, arrivals_s: Sequence[float], ended: bool
) -> _Thought:
    apart = differences(config, recording, evidence)
    migrates = any(one.migration for one in apart)
    money = economy(config, recording, evidence, migrates=migrates, recorded_arrivals_s=arrivals_s)
    checks = (
        *identity_checks(config, recording, {side: evidence.at_once(side) for side in Side}),
        *validity_checks(config, recording, evidence),
        *failed_share_checks(config, recording, evidence),
        *slo_checks(config, evidence, _cold_ttft(money)),
        *capacity_checks(money.duty),
        *((complete_check(recording),) if ended else ()),
    )
    decision = verdict.decide(
        all_series(config, recording, evidence, money),
        checks,
        rounds=len(evidence.rounds),
        looks=recording.plan.looks,
        stopped=_stopped(recording, len(evidence.rounds)) if ended else None,
    )
    return _Thought(decision=decision, checks=checks, money=money, differences=apart)


def _cold_ttft(money: Economy) -> float | Absent | None:
    """The candidate's p95 TTFT with cold starts over the rounds, in ms."""
    if money.cold_ttft is None or isinstance(money.cold_ttft, Absent):
        return money.cold_ttft
    return typical([candidate for _, candidate in money.cold_ttft])


def _stopped(recording: Recording, rounds: int) -> str | None:
    """Why no further round will come. What ended a run that broke off is said by `complete_check`."""
    if recording.state != "finished":
        return "stopped before its end"
    return "no further round was run" if rounds < recording.plan.looks[-1] else None


# ---------------------------------------------------------------- laying out


def _judgement(config: Config, recording: Recording, evidence: Evidence, thought: _Thought) -> Judgement:
    decision = thought.decision
    at_once = {side: evidence.at_once(side) for side in Side}
    findings = Findings(
        config=config,
        recording=recording,
        decision=decision,
        checks=thought.checks,
        parts=sameness(recording, at_once),
        money=thought.money,
        differences=thought.differences,
        sights=sights(config, recording, evidence),
        rounds=len(evidence.rounds),
    )
    return Judgement(
        tool_version=recording.tool_version,
        gate=recording.gate,
        run_id=recording.run_id,
        run_url=recording.run_url,
        date=recording.anchor.wall_iso,
        operator=recording.operator,
        word=decision.word,
        headline=decision.headline,
        advice=decision.advice,
        change=recording.change,
        baseline_label=config.stacks.baseline.label,
        candidate_label=config.stacks.candidate.label,
        workload_sha256=recording.plan.workload_sha256,
        config_sha256=recording.plan.config_sha256,
        accelerator=accelerator_name(recording),
        rounds_used=decision.rounds_used,
        rounds_planned=recording.plan.looks[-1],
        looks=recording.plan.looks,
        level=decision.level,
        requests_replayed=sum(len(launch.replayed) for one in evidence.rounds for launch in one.launches),
        distinct_metrics=decision.distinct,
        noise=decision.noise,
        rejected=decision.rejected,
        checks=thought.checks,
        rows=rows(findings),
        metrics=decision.metrics,
        cost=thought.money.comparison,
        identities=identity_summaries(recording, at_once),
        differences=thought.differences,
        launches=tuple(_launch(launch) for one in evidence.rounds for launch in one.launches),
        traces=tuple(_traces(evidence)),
        voided=_voided(recording),
        notes=(*recording.notes, *_notes(recording, evidence)),
        failure=recording.failure,
        method=_method(recording, decision),
    )


def accelerator_name(recording: Recording) -> str:
    """`1x NVIDIA H100 80GB HBM3`, or the CPU's name: what a report and a calibration call the machine."""
    if recording.accelerator == "cpu" or isinstance(recording.telemetry, Absent):
        return f"{recording.host.cpu}, {recording.host.cpus} CPUs"
    names = Counter(device.name for device in recording.telemetry.devices)
    return ", ".join(f"{count}x {name}" for name, count in names.items())


def _launch(launch: Launch) -> LaunchSummary:
    return LaunchSummary(
        round=launch.record.round,
        side=launch.record.side,
        position=launch.record.position,
        seconds_to_first_token=seconds_to_first_token(launch),
        tokens_per_second=launch.metrics.mix.output_tokens_per_second,
        phases=phases(launch),
        page_cache=launch.record.cold_start.page_cache if launch.record.cold_start is not None else "unknown",
        loading_energy_j=launch.signals.loading_energy_j,
    )


def _traces(evidence: Evidence) -> Iterator[TraceSeries]:
    for one in evidence.rounds:
        for launch in one.launches:
            for name, cell in launch.metrics.mix.cells.items():
                bins = tuple(round(tokens, 1) for tokens in cell.trace[:MOST_TRACE_SECONDS])
                yield TraceSeries(round=one.number, side=launch.record.side, cell=name, tokens_per_second=bins)


def _voided(recording: Recording) -> tuple[str, ...]:
    return tuple(
        f"round {one.round}, attempt {one.attempt}, {one.side}: {one.reason or 'no reason given'}"
        for one in recording.launches
        if one.state is LaunchState.VOIDED
    )


def _notes(recording: Recording, evidence: Evidence) -> Iterator[str]:
    """What a careful reader wants to know, each once."""
    yield from evidence.left_out
    yield from (recording.dialect.notes if recording.dialect is not None else ())
    launches = [launch for one in evidence.rounds for launch in one.launches]
    yield from dict.fromkeys(text for launch in launches for text in launch.signals.notes)
    cells = [cell for launch in launches for cell in launch.metrics.mix.cells.values()]
    if not all(cell.single_token_events for cell in cells):
        yield "some token events carried more than one token: gaps between events are not gaps between tokens"
    sources = sorted({source.value for cell in cells for source in cell.token_sources} - {"usage"})
    if sources:
        yield f"output tokens were counted by {', '.join(sources)}, because the server reports no usage"
    yield from _resent(launches)
    yield from _coalesced(launches)
    yield from _other_texts(evidence)


def _resent(launches: Sequence[Launch]) -> Iterator[str]:
    """Requests that were sent twice: no failure, and nothing that a reader should have to guess."""
    for side in Side:
        own = [launch for launch in launches if launch.record.side is side]
        count = sum(cell.resent for launch in own for cell in launch.metrics.mix.cells.values())
        if count:
            yield f"{side}: {count} requests met a connection that the server had just closed, and were sent again"


def _other_texts(evidence: Evidence) -> Iterator[str]:
    """The measured answers themselves. Not gated: nobody knows how far the baseline would agree with itself on them."""
    same: dict[str, list[bool]] = {}
    for one in evidence.rounds:
        for name, ours in one.baseline.replayed.items():
            theirs = one.candidate.replayed.get(name)
            if theirs is not None and ours.ok and theirs.ok:
                same.setdefault(ours.cell, []).append(ours.text == theirs.text)
    for cell, answers in same.items():
        if not all(answers):
            yield f"{cell}: {sum(answers) / len(answers):.0%} of {len(answers)} answers under load have the same text on both stacks"


def _coalesced(launches: Sequence[Launch]) -> Iterator[str]:
    """Reads that held several token events: their stamps are those of the last."""
    for side in Side:
        runs = [run for launch in launches if launch.record.side is side for run in launch.record.cells]
        reads = sum(run.client.reads for run in runs)
        share = sum(run.client.coalesced_reads for run in runs) / reads if reads else 0.0
        if share > COALESCED_SHARE:
            yield f"{side}: {share:.0%} of the reads held more than one token event, stamped as of the last"


def _method(recording: Recording, decision: Decision) -> str:
    looks = ", ".join(map(str, recording.plan.looks))
    return (
        f"Each round starts both stacks anew and replays the identical requests, in alternating order. Per metric the "
        f"log-ratio of each round (points for utilization) goes into a paired t-test, looked at after {looks} rounds, at "
        f"levels that rise with the look ({decision.level:.4g} at this one); the noise is estimated from the "
        f"{decision.noise_from}. A metric passes when the upper end of its interval is within its limit, so "
        f"that a candidate which is worse than a limit passes at most 5 % of the time; a regression beyond a limit "
        f"rejects after Holm's correction over {decision.distinct} distinct metrics, so that an unchanged build is "
        f"rejected at most 5 % of the time over all metrics together."
    )


# ---------------------------------------------------------------- for measuring, and for the run directory


def void_reason(record: LaunchRecord, data: LaunchData, *, floor: TelemetrySample | None) -> str | None:
    """Whether the environment spoiled a launch, by signals fixed in advance: never by how it did.

    Slowed clocks, memory errors, a lost device, a stranger's process, or nobody who would have seen them; a load generator
    that could not keep up.
    """
    measured = [request for request in data.requests if request.phase == "measured"]
    signals = launch_signals(record, data, floor)
    found = (*signals.spoiled, *signals.unwatched, *launch_client_trouble(record, measured))
    return named(found) if found else None


def trace_rows(recording: Recording, data: Mapping[str, LaunchData]) -> Iterator[tuple[int, int, str, str, int, float]]:
    """The raw tok/s trace of every launch: round, attempt, stack, cell, second since the cell's start, output tokens."""
    for record in recording.launches:
        requests = data[record.directory].requests if record.directory in data else ()
        for run in record.cells:
            own = [request for request in requests if request.cell == run.cell]
            for second, tokens in enumerate(token_trace(own, run)):
                yield record.round, record.attempt, record.side.value, run.cell, second, tokens


def trace_csv(recording: Recording, data: Mapping[str, LaunchData]) -> str:
    """`tokens_per_second.csv`."""
    lines = (
        f"{number},{attempt},{side},{cell},{second},{tokens:.2f}"
        for number, attempt, side, cell, second, tokens in trace_rows(recording, data)
    )
    return "\n".join([TRACE_HEADER, *lines]) + "\n"
