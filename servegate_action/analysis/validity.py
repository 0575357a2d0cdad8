"""Yes-or-no checks beside the tests: did both stacks do the same work, and could it be measured?

Each check is one `HardCheck` with its numbers in a sentence, also when it holds. `invalid`: the two runs cannot be
compared; `inconclusive`: no PASS can follow. The thresholds stand here, with their reasons; none depends on how the
candidate compares with the baseline. Promises of the candidate (failures, service levels) are `promises`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from servegate_action.analysis.client_check import certificate_check, client_check
from servegate_action.analysis.disturbances import CLOCKS, ERRORS, PROCESSES
from servegate_action.analysis.findings import invalid_if
from servegate_action.analysis.hardware import hardware_check
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import Evidence, Launch, Replayed, Round
from servegate_action.analysis.signals import GpuUse
from servegate_action.analysis.tenants import tenant_check
from servegate_action.config.models import Config
from servegate_action.records import Absent, Recording, Side

CACHE_BLOCK_TOKENS = 16
"""Caches keep whole blocks (vLLM: 16 tokens), and count a beginning that all prompts share up to the end of one."""
CACHED_SLACK_SHARE = 0.05
SIGHTS = {CLOCKS: "throttling", ERRORS: "memory error", PROCESSES: "foreign process"}
"""What would spoil a launch: how it is called where it was not read, and where it was."""


def validity_checks(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """All checks on how the run was done, in the order in which a reader should meet them."""
    if not evidence.rounds:
        return [*tenant_check(config, recording), *certificate_check(recording, evidence), *_endpoints(config)]
    return [
        _load_equal(config, recording, evidence),
        _alternating(recording, evidence),
        *hardware_check(config, recording, evidence),
        *_held(config, recording, evidence),
        *tenant_check(config, recording),
        _telemetry(recording, evidence),
        *certificate_check(recording, evidence),
        client_check(evidence),
        _caches(config, recording, evidence),
        *_server_counts(evidence),
        *_endpoints(config),
    ]


def complete_check(recording: Recording) -> HardCheck:
    """A run that was killed, cancelled or failed says nothing good, however good the rounds that it has."""
    ok = recording.state == "finished"
    failure = recording.failure
    why = failure.what if failure is not None else f"its state is `{recording.state}`"
    next_step = failure.next_step if failure is not None else ""
    return HardCheck(
        name="complete",
        kind="inconclusive",
        ok=ok,
        detail="the run came to its end" if ok else f"the run did not come to its end: {why}",
        advice="" if ok else next_step or "run it again; what was measured is kept in the run directory",
    )


# ---------------------------------------------------------------- the same work


def _load_equal(config: Config, recording: Recording, evidence: Evidence) -> HardCheck:
    """Same requests, same prompt tokens, same N, counted the same way, in every round."""
    findings = [text for one in evidence.rounds for text in _unequal(recording, one)]
    count = sum(len(launch.replayed) for one in evidence.rounds for launch in one.launches)
    return invalid_if(
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
        short = [request.ok and request.output_tokens != request.requested for request in sent.values()]
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
    return invalid_if(
        "order",
        findings,
        good=f"{len(evidence.rounds)} rounds, the two stacks in alternating order",
        advice="measure again; the order of launches is part of the plan",
    )


def _held(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """No stack used more GPUs than it is said to hold, or others: tokens per GPU-hour and money are per GPU held.

    A stack that already ran is in the bare floor itself, so that nothing rises above it.
    """
    sides = [side for side in Side if config.stacks.of(side).endpoint is None]
    if recording.accelerator != "nvidia" or not sides:
        return []
    use = {side: [launch.signals.gpus for launch in evidence.of(side)] for side in sides}
    findings = [text for side in sides for text in _not_held(config, side, use[side])]
    text = f"GPUs used: {', '.join(_count(side, use[side]) for side in sides)}"
    if not findings and any(one.unread or _elsewhere(one) for side in sides for one in use[side]):
        advice = (
            "let the sampler read memory and processes of all the machine's GPUs, and name the stack's in gpu_uuids"
        )
        return [HardCheck(name="gpus_held", kind="inconclusive", ok=False, detail=text, advice=advice)]
    advice = "declare gpu_count, the GPUs that the stack holds, and gpu_uuids, which ones"
    return [invalid_if("gpus_held", findings, good=f"{text}, none more than declared", advice=advice)]


def _not_held(config: Config, side: Side, use: Sequence[GpuUse]) -> Iterable[str]:
    most, held = max(one.used for one in use), config.stacks.of(side).gpu_count
    if most > held:
        yield f"the {side} used {most} GPUs and is declared to hold {held}"
    for uuid in sorted({uuid for one in use for uuid in one.undeclared}):
        yield f"the {side} had a process on {uuid}, which it is not declared to hold"


def _count(side: Side, use: Sequence[GpuUse]) -> str:
    if any(one.unread for one in use):
        return f"not read for the {side}"
    if any(map(_elsewhere, use)):
        return f"none of its own by the {side}, and whether it used another one cannot be told"
    return f"{max(one.used for one in use)} by the {side}"


def _elsewhere(use: GpuUse) -> bool:
    """None of its own GPUs was used, and something happened on another one."""
    return bool(use.untold) and not use.used


# ---------------------------------------------------------------- could it be measured?


def _telemetry(recording: Recording, evidence: Evidence) -> HardCheck:
    """Nothing spoiled the accelerator, and on a GPU somebody watched it. What was not read is not called good."""
    launches = [(one.number, launch) for one in evidence.rounds for launch in one.launches]
    findings = [
        f"round {number}, {launch.record.side}: {text}"
        for number, launch in launches
        for text in _spoiled(recording, launch)
    ]
    unread = {name for _, launch in launches for name in launch.signals.unread}
    advice = "free and cool the accelerator, check that the sampler can reach it, and measure again"
    if recording.accelerator != "nvidia":
        return invalid_if("telemetry", findings, good="a CPU has no counters that would tell", advice=advice)
    if not findings and unread == SIGHTS.keys():
        nothing = f"not read: {', '.join(SIGHTS)}"
        return HardCheck(name="telemetry", kind="inconclusive", ok=False, detail=nothing, advice=advice)
    seen = ", ".join(f"no {what}" for name, what in SIGHTS.items() if name not in unread) + " was seen"
    missing = ", ".join(name for name in SIGHTS if name in unread)
    return invalid_if("telemetry", findings, good=f"{seen}; not read: {missing}" if missing else seen, advice=advice)


def _spoiled(recording: Recording, launch: Launch) -> Sequence[str]:
    if isinstance(launch.telemetry, Absent):
        return [f"no telemetry: {launch.telemetry.absent}"] if recording.accelerator == "nvidia" else []
    return [*launch.signals.spoiled, *launch.signals.unwatched]


def _caches(config: Config, recording: Recording, evidence: Evidence) -> HardCheck:
    """No prompt came from a prefix cache that was not meant to.

    Meant is a declared shared prefix, and what every prompt begins with before its nonce: begin-of-text and chat template.
    """
    findings = []
    if config.workload.trace is None:
        shared = {cell.name: cell.shared_prefix_tokens for cell in config.workload.cells}
        alike = max(0.0, recording.plan.prompt_offset) + CACHE_BLOCK_TOKENS
        for cell in recording.plan.cells:
            prompt = recording.plan.prompt_offset + recording.plan.tokens_per_word * cell.prompt_tokens
            beginning = (shared.get(cell.name, 0) + alike) / prompt if prompt > 0 else 0.0
            meant = min(1.0, beginning + CACHED_SLACK_SHARE)
            for side in Side:
                share = max(launch.cached_share.get(cell.id, 0.0) for launch in evidence.of(side))
                if share > meant:
                    findings.append(
                        f"{side}, {cell.id}: {share:.0%} of the prompt tokens came from a cache, meant {meant:.0%}"
                    )
    return invalid_if(
        "prefix_cache",
        findings,
        good="no prompt was served from a cache by accident",
        advice="declare shared_prefix_tokens if the traffic shares prefixes; else report this: prompts begin with a nonce",
    )


def _server_counts(evidence: Evidence) -> list[HardCheck]:
    """The servers' own counters of output tokens, where they have any and both readings were answered."""
    launches = [launch for one in evidence.rounds for launch in one.launches]
    views = [view for launch in launches for view in launch.server.values()]
    counted, unread = sum(view.generated is not None for view in views), sum(view.unread for view in views)
    if not counted and not unread:
        return []
    findings = [
        f"round {launch.record.round}, {launch.record.side}, {cell}: {view.miscounted}"
        for launch in launches
        for cell, view in launch.server.items()
        if view.miscounted is not None
    ]
    good = (
        f"the servers' own counters agree with the output tokens of {counted} measured cells"
        if counted
        else "the servers' own counters were held against no cell"
    ) + _uncounted(unread)
    advice = "let nobody else use the servers while they are measured; check the usage that the server reports"
    return [invalid_if("server_counts", findings, good=good, advice=advice)]


def _uncounted(cells: int) -> str:
    if not cells:
        return ""
    who, whose = ("1 cell was", "its") if cells == 1 else (f"{cells} cells were", "their")
    return f"; {who} not checked, because a reading of {whose} server's counters was not answered"


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
