"""Yes-or-no checks beside the tests: did both stacks do the same work, and could it be measured?

Each check is one `HardCheck` with its numbers in a sentence, also when it holds. `invalid`: the two runs cannot be
compared. `reject`: the candidate broke an absolute promise. `inconclusive`: no PASS can follow. The thresholds stand
here, with their reasons; none depends on how the candidate compares with the baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from servegate_action.analysis.cells import NS_PER_MS, CellMeasures
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import Evidence, Launch, Replayed, Round
from servegate_action.config.models import Config
from servegate_action.records import Absent, CellRun, Recording, Side

# A p95 lies on a failed request once this share has failed, whatever share the configuration allows.
TAIL_SHARE = 0.05
OPEN_LOOP_LAG_NS = 10 * NS_PER_MS
LAG_SHARE = 0.05
CLIENT_CPU_SHARE = 0.9
CLOCK_DRIFT_NS = 1 * NS_PER_MS
# Beginnings of prompts that every server may share by accident: begin-of-text, chat templates, cache blocks.
CACHED_SLACK_SHARE = 0.05
MOST_NAMED = 3


def validity_checks(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """All checks on how the run was done, in the order in which a reader should meet them."""
    if not evidence.rounds:
        return [*_certified(recording, evidence), *_endpoints(config)]
    return [
        _load_equal(config, recording, evidence),
        _alternating(recording, evidence),
        *_hardware(config, evidence),
        _telemetry(recording, evidence),
        *_certified(recording, evidence),
        _client(evidence),
        _caches(config, recording, evidence),
        *_endpoints(config),
        *_failed_share(config, recording, evidence),
    ]


def complete_check(recording: Recording) -> HardCheck:
    """A run that was killed, cancelled or failed says nothing good, however good the rounds that it has."""
    ok = recording.state == "finished"
    why = recording.failure.what if recording.failure is not None else f"its state is `{recording.state}`"
    return HardCheck(
        name="complete",
        kind="inconclusive",
        ok=ok,
        detail="the run came to its end" if ok else f"the run did not come to its end: {why}",
        advice="" if ok else "run it again; what was measured is kept in the run directory",
    )


def _named(findings: Sequence[str]) -> str:
    more = len(findings) - MOST_NAMED
    return "; ".join(findings[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _verdict(name: str, findings: Sequence[str], *, good: str, advice: str) -> HardCheck:
    """An `invalid` check from what speaks against it."""
    ok = not findings
    return HardCheck(
        name=name, kind="invalid", ok=ok, detail=good if ok else _named(findings), advice="" if ok else advice
    )


# ---------------------------------------------------------------- the same work


def _load_equal(config: Config, recording: Recording, evidence: Evidence) -> HardCheck:
    """Same requests, same prompt tokens, same N, counted the same way, in every round."""
    findings = [text for one in evidence.rounds for text in _unequal(recording, one)]
    count = sum(len(launch.replayed) for one in evidence.rounds for launch in one.launches)
    return _verdict(
        "load_equal",
        findings,
        good=f"both stacks answered the same {count // 2:,} requests: prompt tokens and output tokens agree one by one",
        advice=f"tokenizer, chat template or stop conditions differ: compare how {config.stacks.baseline.label} and "
        f"{config.stacks.candidate.label} are started",
    )


def _unequal(recording: Recording, one: Round) -> Iterable[str]:
    ours, theirs = (launch.replayed for launch in one.launches)
    where = f"round {one.number}"
    planned = sum(cell.requests for cell in recording.plan.cells)
    for side, sent in ((Side.BASELINE, ours), (Side.CANDIDATE, theirs)):
        if len(sent) != planned:
            yield f"{where}, {side}: {len(sent)} of {planned} planned requests were sent"
    if ours.keys() != theirs.keys():
        yield f"{where}: {len(ours.keys() ^ theirs.keys())} requests were sent to one stack only"
    shared = [(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()]
    yield from _counted(
        where, "were asked for another number of output tokens", [a.requested != b.requested for a, b in shared]
    )
    yield from _counted(where, "have other prompt_tokens on the two stacks", [_prompts_differ(a, b) for a, b in shared])
    for side, sent in ((Side.BASELINE, ours), (Side.CANDIDATE, theirs)):
        short = [request.ok and request.output_tokens not in (None, request.requested) for request in sent.values()]
        yield from _counted(f"{where}, {side}", "came back with another number of tokens than asked for", short)
    if _sources(ours.values()) and _sources(theirs.values()) and _sources(ours.values()) != _sources(theirs.values()):
        names = " against ".join("+".join(sorted(_sources(sent.values()))) for sent in (ours, theirs))
        yield f"{where}: output tokens are counted by {names}"


def _prompts_differ(ours: Replayed, theirs: Replayed) -> bool:
    both = ours.prompt_tokens is not None and theirs.prompt_tokens is not None
    return both and ours.prompt_tokens != theirs.prompt_tokens


def _counted(where: str, what: str, flags: Sequence[bool]) -> Iterable[str]:
    if any(flags):
        yield f"{where}: {sum(flags)} of {len(flags)} requests {what}"


def _sources(sent: Iterable[Replayed]) -> frozenset[str]:
    return frozenset(request.source.value for request in sent if request.ok and request.source is not None)


def _alternating(recording: Recording, evidence: Evidence) -> HardCheck:
    """Rounds in the planned order: drift cancels only then."""
    findings = [
        f"round {one.number} was not run in the planned order"
        for one in evidence.rounds
        if one.number > len(recording.plan.order)
        or [launch.record.side for launch in sorted(one.launches, key=lambda launch: launch.record.position)]
        != list(recording.plan.order[one.number - 1])
    ]
    return _verdict(
        "order",
        findings,
        good=f"{len(evidence.rounds)} rounds, the two stacks in alternating order",
        advice="measure again; the order of launches is part of the plan",
    )


def _hardware(config: Config, evidence: Evidence) -> list[HardCheck]:
    """The same accelerators under both stacks, unless the configuration says that they need different pools."""
    pools = {config.stacks.of(side).gpu_pool for side in Side}
    seen = {side: {_devices(launch) for launch in evidence.of(side)} - {()} for side in Side}
    ours, theirs = seen[Side.BASELINE], seen[Side.CANDIDATE]
    if not ours or not theirs:
        return []
    findings = []
    if len(pools) == 1 and ours != theirs:
        findings.append(f"baseline on {_listed(ours)}, candidate on {_listed(theirs)}")
    return [
        _verdict(
            "hardware",
            findings,
            good=f"both stacks on {_listed(ours)}"
            if ours == theirs
            else "the two stacks need different pools, as declared",
            advice="measure both on the same accelerators, or declare gpu_pool for both stacks",
        )
    ]


def _devices(launch: Launch) -> tuple[str, ...]:
    return () if isinstance(launch.telemetry, Absent) else tuple(sorted(one.name for one in launch.telemetry.devices))


def _listed(kinds: set[tuple[str, ...]]) -> str:
    return " or ".join(sorted(", ".join(f"{n}x {name}" for name, n in Counter(kind).items()) for kind in kinds))


# ---------------------------------------------------------------- could it be measured?


def _telemetry(recording: Recording, evidence: Evidence) -> HardCheck:
    """Nothing spoiled the accelerator, and on a GPU somebody watched it."""
    findings = [
        f"round {one.number}, {launch.record.side}: {text}"
        for one in evidence.rounds
        for launch in one.launches
        for text in _spoiled(recording, launch)
    ]
    return _verdict(
        "telemetry",
        findings,
        good="no throttling, no memory error, no foreign process was seen"
        if recording.accelerator == "nvidia"
        else "recorded",
        advice="free and cool the accelerator, check that the sampler can reach it, and measure again",
    )


def _spoiled(recording: Recording, launch: Launch) -> Sequence[str]:
    if isinstance(launch.telemetry, Absent):
        return [f"no telemetry: {launch.telemetry.absent}"] if recording.accelerator == "nvidia" else []
    return launch.signals.spoiled


def _certified(recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """The load generator proved against its own fixed-pace server that it can keep up."""
    if not recording.certificates and not evidence.launches:
        return []
    findings = [
        f"at {one.concurrency} streams and {one.events_per_second:,.0f} events/s: stamp error p99 "
        f"{one.stamp_error_p99_ns / NS_PER_MS:.2f} ms, dispatch lag p99 {one.dispatch_lag_p99_ns / NS_PER_MS:.2f} ms, "
        f"{one.cpu_share:.0%} of a core per process"
        for one in recording.certificates
        if not one.passed
    ]
    if not recording.certificates:
        findings.append("the load generator was not certified")
    advice = " ".join(dict.fromkeys(one.advice for one in recording.certificates if one.advice))
    good = f"the load generator keeps up at {len(recording.certificates)} operating points of this run"
    return [_verdict("client_certificate", findings, good=good, advice=advice or "measure again with this version")]


def _client(evidence: Evidence) -> HardCheck:
    """The load generator kept up while it measured, in every cell of every launch that counts."""
    findings = [
        f"round {one.number}, {launch.record.side}, {run.cell}: {text}"
        for one in evidence.rounds
        for launch in one.launches
        for run in launch.record.cells
        for text in client_trouble(launch, run)
    ]
    lag = max(
        run.client.dispatch_lag_p99_ns
        for one in evidence.rounds
        for launch in one.launches
        for run in launch.record.cells
    )
    return _verdict(
        "client",
        findings,
        good=f"the load generator kept up; dispatch lag p99 {lag / NS_PER_MS:.2f} ms at most",
        advice="raise load.processes, lower the concurrency, or run the load generator on more cores",
    )


def client_trouble(launch: Launch, run: CellRun) -> list[str]:
    """What the load generator did badly in one cell.

    Open loop: lag counts as latency, so it is held to 10 ms and to 5 % of the median TTFT. Closed loop: latency counts
    from the real send, so lag only thins the load; it is held to 5 % of the median duration of a request.
    """
    client, cell = run.client, launch.metrics.mix.cells.get(run.cell)
    if cell is None:
        return []
    most = _most_lag_ns(launch, cell)
    trouble = []
    if client.dispatch_lag_p99_ns > most:
        trouble.append(
            f"requests were sent late, dispatch lag p99 {client.dispatch_lag_p99_ns / NS_PER_MS:.2f} ms, "
            f"allowed {most / NS_PER_MS:.2f} ms"
        )
    if client.cpu_ns > CLIENT_CPU_SHARE * client.wall_ns * client.processes:
        trouble.append(f"the client used {client.cpu_ns / client.wall_ns / client.processes:.0%} of its cores")
    if client.clock_offset_drift_ns > CLOCK_DRIFT_NS:
        trouble.append(f"the clock was stepped by {client.clock_offset_drift_ns / NS_PER_MS:.2f} ms")
    return trouble


def _most_lag_ns(launch: Launch, cell: CellMeasures) -> float:
    if cell.plan.concurrency is not None:
        return LAG_SHARE * launch.median_duration_ns[cell.plan.id]
    median = cell.ttft.median_ns
    return OPEN_LOOP_LAG_NS if isinstance(median, Absent) else min(OPEN_LOOP_LAG_NS, LAG_SHARE * median)


def _caches(config: Config, recording: Recording, evidence: Evidence) -> HardCheck:
    """No prompt came from a prefix cache that was not meant to."""
    findings = []
    if config.workload.trace is None:
        shared = {cell.name: cell.shared_prefix_tokens for cell in config.workload.cells}
        for cell in recording.plan.cells:
            meant = shared.get(cell.name, 0) / cell.prompt_tokens + CACHED_SLACK_SHARE
            for side in Side:
                share = max(launch.cached_share.get(cell.id, 0.0) for launch in evidence.of(side))
                if share > meant:
                    findings.append(
                        f"{side}, {cell.id}: {share:.0%} of the prompt tokens came from a cache, meant {meant:.0%}"
                    )
    return _verdict(
        "prefix_cache",
        findings,
        good="no prompt was served from a cache by accident",
        advice="declare shared_prefix_tokens if the traffic shares prefixes; else report this: prompts begin with a nonce",
    )


def _endpoints(config: Config) -> list[HardCheck]:
    """Two launches that servegate did not make are a sample of one, unless they are what will serve."""
    loose = [
        side
        for side in Side
        if (endpoint := config.stacks.of(side).endpoint) is not None and endpoint.launches != "fixed"
    ]
    if not loose:
        return []
    return [
        HardCheck(
            name="launches",
            kind="inconclusive",
            ok=False,
            detail=f"servegate does not start the {' and the '.join(loose)}: what is measured holds for these two launches only",
            advice="let servegate start both stacks (process or container), or declare `launches: fixed` for the endpoints",
        )
    ]


# ---------------------------------------------------------------- promises


def _failed_share(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """Failed over attempted requests of each cell and side, over all rounds that count."""
    return [
        check
        for cell in recording.plan.cells
        for side in Side
        for check in _failed_in(config, cell.id, side, [one.metrics.mix.cells[cell.id] for one in evidence.of(side)])
    ]


def _failed_in(config: Config, cell: str, side: Side, measures: Sequence[CellMeasures]) -> Iterable[HardCheck]:
    attempted = sum(one.attempted for one in measures)
    failed = sum(one.failed for one in measures)
    allowed = min(config.limits.failed_share, TAIL_SHARE)
    ok = failed <= allowed * attempted
    reasons: Counter[str] = Counter()
    for one in measures:
        reasons.update(dict(one.failures))
    why = f" ({_reasons(reasons)})" if failed else ""
    yield HardCheck(
        name="failed_share",
        kind="reject" if side is Side.CANDIDATE else "invalid",
        ok=ok,
        cell=cell,
        side=side,
        detail=f"{failed} of {attempted} requests failed{why}, allowed {allowed:.3g} of them",
        advice="" if ok else _failure_advice(side),
    )


def _reasons(reasons: Counter[str]) -> str:
    return _named([f"{count}x {text}" for text, count in reasons.most_common()])


def _failure_advice(side: Side) -> str:
    if side is Side.CANDIDATE:
        return "read server.log of the candidate's launches; a failed request counts as an infinite latency"
    return "mend the baseline or lower the load: a baseline that fails is no reference"


def slo_checks(config: Config, evidence: Evidence, cold_ttft_ms: float | Absent | None) -> list[HardCheck]:
    """Absolute levels of the candidate in each cell: geometric mean over rounds of the p95 of each launch."""
    checks: list[HardCheck] = []
    levels = (
        ("slo_ttft_p95", "p95 TTFT", config.slo.ttft_p95_ms),
        ("slo_tpot_p95", "p95 TPOT", config.slo.tpot_p95_ms),
    )
    for name, words, level in levels:
        if level is None:
            continue
        for cell in dict.fromkeys(cell for one in evidence.of(Side.CANDIDATE) for cell in one.metrics.mix.cells):
            measures = [one.metrics.mix.cells[cell] for one in evidence.of(Side.CANDIDATE)]
            value = typical([one.ttft.p95_ms if name == "slo_ttft_p95" else one.tpot.p95_ms for one in measures])
            checks += _slo(name, words, level, value, cell=cell)
    if config.slo.ttft_p95_ms is not None and cold_ttft_ms is not None:
        words = "p95 TTFT with cold starts"
        checks += _slo("slo_ttft_p95_with_cold_starts", words, config.slo.ttft_p95_ms, cold_ttft_ms, cell=None)
    return checks


def typical(values: Sequence[float | Absent]) -> float | Absent:
    """Geometric mean over rounds; +inf as soon as one is, absent as soon as one is."""
    product = 1.0
    for value in values:
        if isinstance(value, Absent):
            return value
        product *= value ** (1.0 / len(values))
    return product


def _slo(name: str, words: str, level: float, value: float | Absent, *, cell: str | None) -> Iterable[HardCheck]:
    if isinstance(value, Absent):
        # A level of one-token answers' TPOT is no level at all; a level that cannot be read allows no PASS.
        detail = f"{words} cannot be held against its level: {value.absent}"
        yield HardCheck(name=name, kind="inconclusive", ok=False, cell=cell, side=Side.CANDIDATE, detail=detail)
        return
    ok = value <= level
    shown = f"{value:.4g} ms" if value < float("inf") else "a failed request"
    yield HardCheck(
        name=name,
        kind="reject",
        ok=ok,
        cell=cell,
        side=Side.CANDIDATE,
        detail=f"{words} is {shown}, its service level is {level:g} ms",
        advice=""
        if ok
        else "make it faster, lower the load per replica, or change the service level in the gate's policy",
    )


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
