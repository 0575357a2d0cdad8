"""Row 1 and what else differs: are both stacks the same model, quantization and batch size, and what is not the same?

Equality is checked on what identification found; how well it is known (`proven`, `declared`, `unknown`) is the weaker of
the two sides. A known difference, or a model or quantization that nobody proves or declares, makes the run INVALID.
Nothing is looked up or guessed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from servegate_action.analysis.judgement import Difference, HardCheck, IdentitySummary
from servegate_action.analysis.rounds import Evidence
from servegate_action.config.models import LONG_PROMPT_WORDS, Also, Config
from servegate_action.records import (
    Absent,
    AnswersCompared,
    LogprobComparison,
    MaybeInt,
    MaybeStr,
    Quantization,
    Recording,
    Side,
    StackIdentity,
)
from servegate_action.records import Evidence as Known

PARTS = ("weights", "activations", "kv_cache", "compute")
PLAIN = frozenset({"fp64", "fp32", "fp16", "bf16"})
"""Number formats that are no quantization."""
FAR_ABOVE_CAP = 2
"""So many times a declared cap at once is no preempted request any more: the cap is not what was declared."""
DIFFERENT = {
    "numerics": "compare sampling defaults, chat template, tokenizer and precision of the two stacks",
    "numerics_long": "compare the longest context, position scaling, sliding windows and truncation of the two stacks",
    "numerics_together": "look for requests that share state in the candidate: batching, the KV cache, prefix reuse",
}
"""What to look at when the answers differ, by the way in which they were asked for."""
_WEAKER = (Known.UNKNOWN, Known.DECLARED, Known.PROVEN)


@dataclass(frozen=True, slots=True)
class Sameness:
    """One of the three parts of row 1. `same` is None when it cannot be told."""

    part: str
    baseline: str
    candidate: str
    evidence: Known
    same: bool | None
    detail: str


def weaker(first: Known, second: Known) -> Known:
    """The weaker of two grades of evidence."""
    return min(first, second, key=_WEAKER.index)


def sameness(
    recording: Recording, at_once: Mapping[Side, int] | None = None
) -> tuple[Sameness, Sameness, Sameness] | Absent:
    """Model, quantization and batch size of both stacks, compared. `at_once`: the batch that each was seen to run."""
    ours, theirs = (recording.identities.get(side) for side in Side)
    if ours is None or theirs is None:
        return Absent(absent="the stacks were not identified")
    return _model(ours, theirs), _quantization(ours, theirs), _batch(ours, theirs, at_once or {})


def _model(ours: StackIdentity, theirs: StackIdentity) -> Sameness:
    first, second = ours.model.digest, theirs.model.digest
    evidence = weaker(ours.model.evidence, theirs.model.evidence)
    same = _equal(first, second)
    if same is None and evidence is not Known.UNKNOWN:
        same = ours.model.name == theirs.model.name
    return Sameness(
        part="model",
        baseline=f"{ours.model.name} {_short(first)}".strip(),
        candidate=f"{theirs.model.name} {_short(second)}".strip(),
        evidence=evidence,
        same=same,
        detail=f"baseline: {ours.model.source}; candidate: {theirs.model.source}",
    )


def _quantization(ours: StackIdentity, theirs: StackIdentity) -> Sameness:
    first, second = ours.quantization, theirs.quantization
    evidence = weaker(first.evidence, second.evidence)
    answers = {part: _equal(getattr(first, part), getattr(second, part)) for part in PARTS}
    differing = [part for part, answer in answers.items() if answer is False]
    unknown = [part for part, answer in answers.items() if answer is None]
    detail = f"baseline: {first.source}; candidate: {second.source}"
    if unknown:
        detail += f"; not known on both sides: {', '.join(unknown)}"
    if hidden := _hidden_cache(first.kv_cache, second.kv_cache):
        detail += f"; the KV cache is {hidden} on one side, and nobody says what it is on the other"
    same: bool | None = not differing
    if not differing and (hidden or (answers["weights"] is None and evidence is Known.UNKNOWN)):
        same = None
    return Sameness(
        part="quantization",
        baseline=_tuple(first),
        candidate=_tuple(second),
        evidence=evidence,
        same=same,
        detail=detail,
    )


def _hidden_cache(first: MaybeStr, second: MaybeStr) -> str:
    """A quantized KV cache that only one side is known to have: a declaration of the weights says nothing of it."""
    known = [one for one in (first, second) if not isinstance(one, Absent)]
    return known[0] if len(known) == 1 and known[0] not in PLAIN else ""


def _batch(ours: StackIdentity, theirs: StackIdentity, at_once: Mapping[Side, int]) -> Sameness:
    first, second = ours.batch, theirs.batch
    return Sameness(
        part="batch size",
        baseline=_text(first.cap),
        candidate=_text(second.cap),
        evidence=weaker(first.evidence, second.evidence),
        same=_equal(first.cap, second.cap),
        detail=f"baseline: {first.source}{_running(at_once.get(Side.BASELINE))}; "
        f"candidate: {second.source}{_running(at_once.get(Side.CANDIDATE))}",
    )


def _running(at_once: int | None) -> str:
    return f", at most {at_once} decoded at once" if at_once else ""


def _equal(first: MaybeStr | MaybeInt, second: MaybeStr | MaybeInt) -> bool | None:
    return None if isinstance(first, Absent) or isinstance(second, Absent) else first == second


def _short(digest: MaybeStr) -> str:
    return "" if isinstance(digest, Absent) else digest.removeprefix("sha256:")[:12]


def _text(value: MaybeStr | MaybeInt) -> str:
    return "unknown" if isinstance(value, Absent) else str(value)


def _tuple(quantization: Quantization) -> str:
    return ", ".join(f"{part.replace('_', ' ')} {_text(getattr(quantization, part))}" for part in PARTS)


# ---------------------------------------------------------------- checks


def identity_checks(config: Config, recording: Recording, at_once: Mapping[Side, int] | None = None) -> list[HardCheck]:
    """Row 1 as checks, and the numerics probe. `at_once`: the batch that each stack was seen to run."""
    parts = sameness(recording)
    if isinstance(parts, Absent):
        missing = HardCheck(name="identity", kind="inconclusive", ok=False, detail=parts.absent)
        return [missing, *_numerics(config, recording)]
    model, quantization, batch = parts
    return [
        _same(model, "identity_model", unknown="invalid", declare="model.path or model.revision"),
        _same(
            quantization,
            "identity_quantization",
            unknown="invalid",
            declare="quantization, for the stack that does not say; a KV cache's format is read from the server or its flags",
        ),
        _same(batch, "identity_batch", unknown="inconclusive", declare="batch_size, for the stack that does not say"),
        *_contradicted(recording),
        *_beyond_cap(recording, at_once or {}),
        *_numerics(config, recording),
    ]


def _same(part: Sameness, name: str, *, unknown: str, declare: str) -> HardCheck:
    if part.same is False:
        return HardCheck(
            name=name,
            kind="invalid",
            ok=False,
            detail=f"the {part.part} differs: baseline {part.baseline}, candidate {part.candidate} ({part.evidence})",
            advice=f"serve the same {part.part} on both sides; a change of it is a different question from a change of engine",
        )
    if part.same is None or part.evidence is Known.UNKNOWN:
        return HardCheck(
            name=name,
            kind="invalid" if unknown == "invalid" else "inconclusive",
            ok=False,
            detail=f"the {part.part} is unknown: baseline {part.baseline}, candidate {part.candidate}; {part.detail}",
            advice=f"declare {declare}",
        )
    return HardCheck(
        name=name, kind="invalid", ok=True, detail=f"same {part.part} on both sides, {part.evidence}: {part.baseline}"
    )


def _contradicted(recording: Recording) -> list[HardCheck]:
    """What a stack is found to be, against what is declared of it: one of the two is wrong, and nobody here knows which."""
    return [
        HardCheck(
            name="identity_declared",
            kind="invalid",
            ok=False,
            detail=f"{side}: {text}",
            advice="correct the declaration, or the stack",
        )
        for side in Side
        if side in recording.identities
        for text in recording.identities[side].contradictions
    ]


def _beyond_cap(recording: Recording, at_once: Mapping[Side, int]) -> list[HardCheck]:
    """A cap that is only declared, against the batch that was seen to run."""
    return [
        HardCheck(
            name="identity_declared",
            kind="invalid",
            ok=False,
            detail=f"{side}: the batch size is declared as {batch.cap}, and {seen} requests were decoded at once",
            advice="correct the declaration, or the stack",
        )
        for side, seen in at_once.items()
        if (batch := recording.identities[side].batch).evidence is not Known.PROVEN
        and not isinstance(batch.cap, Absent)
        and seen >= FAR_ABOVE_CAP * batch.cap
    ]


def _numerics(config: Config, recording: Recording) -> Iterator[HardCheck]:
    """Do the answers agree? Switched off by the gate's own policy it is no check; missing otherwise it allows no PASS."""
    probe, also = recording.numerics, config.numerics.also
    if not config.numerics.enabled:
        return
    if isinstance(probe, Absent):
        yield _not_compared("numerics", f"the answers of the two stacks were not compared: {probe.absent}")
        return
    yield _answers("numerics", "the answers", probe.alone, _logprobs(probe.logprobs))
    cells = recording.plan.cells
    if Also.LONG in also:
        wanted = any(cell.prompt_tokens >= LONG_PROMPT_WORDS for cell in cells)
        yield from _also("numerics_long", "the answers to long prompts", probe.long, wanted=wanted)
    if Also.TOGETHER in also:
        wanted = any(cell.concurrency is None or cell.concurrency > 1 for cell in cells)
        yield from _also("numerics_together", "the answers to many at once", probe.together, wanted=wanted)


def _also(name: str, what: str, found: AnswersCompared | Absent, *, wanted: bool) -> Iterator[HardCheck]:
    if not isinstance(found, Absent):
        yield _answers(name, what, found)
    elif wanted:
        yield _not_compared(name, f"{what} were not compared: {found.absent}")


def _not_compared(name: str, detail: str) -> HardCheck:
    return HardCheck(name=name, kind="inconclusive", ok=False, detail=detail)


def _answers(name: str, what: str, found: AnswersCompared, besides: str = "") -> HardCheck:
    if not found.passed:
        return HardCheck(
            name=name, kind="invalid", ok=False, detail=f"{what} differ: {found.reason}", advice=DIFFERENT[name]
        )
    detail = f"{what} agree: {found.reason}"
    return HardCheck(name=name, kind="invalid", ok=True, detail=f"{detail}; {besides}" if besides else detail)


def _logprobs(compared: LogprobComparison | Absent) -> str:
    if isinstance(compared, Absent):
        return f"log-probabilities were not compared ({compared.absent})"
    return (
        f"log-probabilities of the same tokens differ by {compared.mean_difference:.4f} on average, by "
        f"{compared.own_mean_difference:.4f} when the baseline is asked twice ({compared.same_tokens} of {compared.tokens} "
        "tokens are the same)"
    )


# ---------------------------------------------------------------- for the report


def identity_summaries(recording: Recording, at_once: Mapping[Side, int]) -> tuple[IdentitySummary, ...]:
    """Row 1 in full, of each side that was identified."""
    return tuple(
        _summary(side, recording.identities[side], at_once[side]) for side in Side if side in recording.identities
    )


def _summary(side: Side, identity: StackIdentity, at_once: int) -> IdentitySummary:
    model = identity.model
    engine = " ".join(_text(part) for part in (identity.engine, identity.engine_version))
    return IdentitySummary(
        side=side,
        model=f"{model.name}, sha256 {_text(model.digest)}, {model.files} files, {model.size_bytes} bytes",
        model_evidence=model.evidence,
        quantization=_tuple(identity.quantization),
        quantization_evidence=identity.quantization.evidence,
        batch=_text(identity.batch.cap),
        batch_evidence=identity.batch.evidence,
        engine=engine,
        details=(
            f"model: {model.source}",
            f"quantization: {identity.quantization.source}",
            f"batch size: {identity.batch.source}{_running(at_once)}",
            f"container: {_said(identity.container_digest)}",
            f"command: {' '.join(identity.command)}",
            *(f"server: {key} = {value}" for key, value in sorted(identity.read_back.items())),
        ),
    )


def _said(value: MaybeStr) -> str:
    return f"none ({value.absent})" if isinstance(value, Absent) else value


def differences(config: Config, recording: Recording, evidence: Evidence) -> tuple[Difference, ...]:
    """What differs between the two stacks besides speed; driver, container and GPU pool bring the migration cost."""
    found = [*_pool(config), *_drivers(evidence)]
    ours, theirs = (recording.identities.get(side) for side in Side)
    if ours is None or theirs is None:
        return tuple(found)
    found += _differ("container", _container(ours), _container(theirs), migration=True)
    found += _differ("engine", _text(ours.engine), _text(theirs.engine))
    found += _differ("engine version", _text(ours.engine_version), _text(theirs.engine_version))
    found += _differ("command", *_apart(ours.command, theirs.command))
    for key in sorted({*ours.read_back, *theirs.read_back}):
        found += _differ(f"server {key}", ours.read_back.get(key, "not said"), theirs.read_back.get(key, "not said"))
    return tuple(found)


def _apart(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, str]:
    """Two commands from the word before the first that differs to the last that does; `…` for what is left out."""
    shorter = min(len(ours), len(theirs))
    first = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    after = next((at for at in range(shorter - first) if ours[-1 - at] != theirs[-1 - at]), shorter - first)
    start = max(0, first - 1)

    def shown(words: Sequence[str]) -> str:
        end = len(words) - after
        return " ".join([*(["…"] if start else []), *words[start:end], *(["…"] if after else [])])

    return shown(ours), shown(theirs)


def _container(identity: StackIdentity) -> str:
    return "none" if isinstance(identity.container_digest, Absent) else identity.container_digest


def _pool(config: Config) -> Sequence[Difference]:
    ours, theirs = config.stacks.baseline, config.stacks.candidate
    return [
        *_differ("GPU pool", ours.gpu_pool or "not declared", theirs.gpu_pool or "not declared", migration=True),
        *_differ("GPUs held", str(ours.gpu_count), str(theirs.gpu_count)),
        *_differ("kind of stack", _kind(config, Side.BASELINE), _kind(config, Side.CANDIDATE)),
    ]


def _kind(config: Config, side: Side) -> str:
    stack = config.stacks.of(side)
    return "process" if stack.process is not None else "container" if stack.container is not None else "endpoint"


def _drivers(evidence: Evidence) -> Sequence[Difference]:
    seen = {side: _driver(evidence, side) for side in Side}
    if "" in seen.values():
        return []
    return _differ("driver", seen[Side.BASELINE], seen[Side.CANDIDATE], migration=True)


def _driver(evidence: Evidence, side: Side) -> str:
    for launch in evidence.of(side):
        if not isinstance(launch.telemetry, Absent) and not isinstance(launch.telemetry.driver, Absent):
            return launch.telemetry.driver
    return ""


def _differ(what: str, baseline: str, candidate: str, *, migration: bool = False) -> list[Difference]:
    if baseline == candidate:
        return []
    return [Difference(what=what, baseline=baseline, candidate=candidate, migration=migration)]
