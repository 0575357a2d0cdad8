"""What a running stack is: model, quantization, batch cap, each with how well it is known and from where.

Read-back beats a declaration; where the two contradict each other, both are kept and the contradiction is said in words
(the verdict treats it as not comparable). Evidence is `proven` where the engine or the files reveal a fact, `declared`
where only the configuration (or a flag of an unknown program) says so, else `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servegate_action.config.stacks import Engine, ServedModel, Stack
from servegate_action.errors import CannotMeasure
from servegate_action.identity import gguf, hub
from servegate_action.identity.engines import ReadBack, Server, read_back
from servegate_action.identity.facts import Fact, Numbers
from servegate_action.identity.flags import Flags, read_flags
from servegate_action.identity.formats import FLOATS, agrees
from servegate_action.identity.places import Place, locate
from servegate_action.identity.volume import VolumeReader, read_remote
from servegate_action.identity.weights import ModelHash, hash_model, model_files
from servegate_action.records import (
    Absent,
    BatchIdentity,
    Evidence,
    MaybeStr,
    ModelIdentity,
    Quantization,
    StackIdentity,
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A running stack and what is needed to look at it.

    `configured` is `model.path` on this machine; `volume` reads weights that only the stack's container sees;
    `cache_dir` keeps hashes between runs (None: hash each time). Relative paths are below `workspace`.
    `sees_host` is false when servegate itself runs in a container, where the host's paths mean something else.
    """

    stack: Stack
    model: ServedModel
    base_url: str
    command: tuple[str, ...]
    container_digest: MaybeStr
    headers: Mapping[str, str] = field(default_factory=dict)
    configured: Path | None = None
    volume: VolumeReader | None = None
    cache_dir: Path | None = None
    workspace: Path = Path()
    sees_host: bool = True
    progress: Progress = lambda _: None


@dataclass(frozen=True, slots=True)
class _Files:
    """What the weight files say, when they can be seen."""

    identity: ModelIdentity
    numbers: Numbers = field(default_factory=Numbers)
    contradictions: tuple[str, ...] = ()


def identify(subject: Subject) -> StackIdentity:
    """Ask the server, read its flags, hash what it serves. Raises CannotMeasure when a file cannot be read."""
    stack = subject.stack
    read = read_back(
        Server(subject.base_url, subject.headers),
        engine=stack.engine,
        served_model=stack.served_model or subject.model.name,
    )
    known = read.engine if read.engine is not Engine.OTHER else stack.engine
    own_entry = stack.container is not None and stack.container.entrypoint is None
    image = stack.container.image if stack.container is not None and own_entry else None
    flags = read_flags(subject.command, image=image, engine=known)
    own_paths = stack.container is None or subject.sees_host
    place = locate(
        stack, read, flags, configured=subject.configured, workspace=subject.workspace if own_paths else None
    )
    files = _files(subject, place)
    quantization, about_numbers = _quantization(subject, read, flags, files.numbers)
    batch, about_batch = _batch(subject, read, flags)
    engine = flags.engine if flags.engine not in (Engine.AUTO, Engine.OTHER) else None
    return StackIdentity(
        engine=engine.value if engine is not None else Absent(absent="the server does not say which engine it is"),
        engine_version=read.version or Absent(absent="the server does not say its version"),
        model=files.identity,
        quantization=quantization,
        batch=batch,
        container_digest=subject.container_digest,
        command=subject.command,
        read_back=dict(read.facts),
        contradictions=(*files.contradictions, *about_numbers, *about_batch),
    )


# ---------------------------------------------------------------- the model


def _files(subject: Subject, place: Place | None) -> _Files:
    if place is not None and place.kind == "here":
        return _here(subject, place)
    if place is not None and subject.volume is not None:
        return _in_container(subject, subject.volume, place)
    why = (
        "the stack does not say which files it serves"
        if place is None
        else f"{place.path} is only inside the container"
    )
    if subject.model.revision is not None:
        return _Files(_unhashed(subject, subject.model.revision, Evidence.DECLARED, f"model.revision; {why}"))
    return _Files(_unhashed(subject, Absent(absent=f"{why}, and no revision is declared"), Evidence.UNKNOWN, why))


def _unhashed(subject: Subject, digest: MaybeStr, evidence: Evidence, source: str) -> ModelIdentity:
    return ModelIdentity(
        name=subject.model.name, digest=digest, files=0, size_bytes=0, evidence=evidence, source=source
    )


def _here(subject: Subject, place: Place) -> _Files:
    root = Path(place.path)
    hashed = hash_model(root, cache_dir=subject.cache_dir, progress=subject.progress)
    numbers, wrong = _read_numbers(root)
    return _Files(
        _hashed(subject, hashed, place), _as_known(numbers, place), (*wrong, *_elsewhere(subject, root, hashed))
    )


def _in_container(subject: Subject, volume: VolumeReader, place: Place) -> _Files:
    subject.progress(f"hashing the weights inside of the container ({place.path})")
    remote = read_remote(volume, place.path)
    numbers, wrong = hub.interpret(
        remote.configs.get("config.json", {}), remote.configs.get("hf_quant_config.json", {}), remote.stored
    )
    return _Files(_hashed(subject, remote.model, place), _as_known(numbers, place), wrong)


def _hashed(subject: Subject, hashed: ModelHash, place: Place) -> ModelIdentity:
    return ModelIdentity(
        name=subject.model.name,
        digest=hashed.digest,
        files=len(hashed.files),
        size_bytes=hashed.size,
        evidence=place.evidence,
        source=f"hashed {place.path}: {place.source}",
    )


def _read_numbers(root: Path) -> tuple[Numbers, tuple[str, ...]]:
    """(numbers, contradictions) of GGUF files or of a folder in the hub's layout."""
    files = model_files(root)
    parts = [path for path in files if path.suffix == ".gguf"]
    if parts:
        try:
            head = gguf.read_head(parts[0])
        except gguf.NotGguf as error:
            raise CannotMeasure(f"the weights cannot be understood: {error}", why="an incomplete download?") from error
        fact = Fact(head.weights, Evidence.PROVEN, "GGUF metadata and tensor types")
        return Numbers(weights=fact), (head.contradiction,) if head.contradiction is not None else ()
    return hub.read_hub(root if root.is_dir() else root.parent, files)


def _as_known(numbers: Numbers, place: Place) -> Numbers:
    """Facts of files are no better known than that these are the files."""

    def limited(fact: Fact | None) -> Fact | None:
        return (
            fact if fact is None or place.evidence is Evidence.PROVEN else Fact(fact.value, place.evidence, fact.source)
        )

    return Numbers(
        weights=limited(numbers.weights),
        activations=limited(numbers.activations),
        kv_cache=limited(numbers.kv_cache),
        compute=limited(numbers.compute),
    )


def _elsewhere(subject: Subject, served: Path, hashed: ModelHash) -> tuple[str, ...]:
    """The configuration names other weights than those that are served."""
    configured = subject.configured
    if configured is None or not configured.exists():
        return ()
    one, other = served.resolve(), configured.resolve()
    if one == other or one.is_relative_to(other) or other.is_relative_to(one):
        return ()
    if hash_model(configured, cache_dir=subject.cache_dir, progress=subject.progress).digest == hashed.digest:
        return ()
    return (f"the stack serves {served}, the configuration names {configured}, and their contents differ",)


# ---------------------------------------------------------------- the numbers


def _quantization(
    subject: Subject, read: ReadBack, flags: Flags, files: Numbers
) -> tuple[Quantization, tuple[str, ...]]:
    told = read.numbers.over(flags.numbers)
    weights, wrong = _weights(told.weights, files.weights)
    compute = told.compute or files.compute
    activations = (
        told.activations or _activations(told.weights, weights, files.activations) or compute or files.activations
    )
    kv_cache = told.kv_cache or files.kv_cache or _cache_like(compute, flags)
    declared = subject.stack.quantization or subject.model.quantization
    if declared is not None and weights is not None and not agrees(declared, weights.value):
        wrong = (
            *wrong,
            f"the configuration declares {declared}, but the weights are {weights.value} ({weights.source})",
        )
    if declared is not None and weights is None:
        weights = Fact(declared.lower(), Evidence.DECLARED, "declared in the configuration")
    parts = {"weights": weights, "activations": activations, "KV cache": kv_cache, "compute": compute}
    return (
        Quantization(
            weights=_maybe("the weights' quantization", weights),
            activations=_maybe("the activations' format", activations),
            kv_cache=_maybe("the KV cache's format", kv_cache),
            compute=_maybe("the compute dtype", compute),
            evidence=_evidence(parts, declared=declared is not None),
            source="; ".join(f"{name}: {fact.source}" for name, fact in parts.items() if fact is not None)
            or "nothing reveals or declares it",
        ),
        wrong,
    )


def _weights(told: Fact | None, stored: Fact | None) -> tuple[Fact | None, tuple[str, ...]]:
    """Plain files that the engine quantizes while loading are what the engine says; other files speak for themselves."""
    if told is None or stored is None:
        return told or stored, ()
    if stored.value in FLOATS and told.value not in FLOATS:
        return told, ()
    same = (
        agrees(told.value, stored.value)
        or agrees(stored.value, told.value)
        or _family(told.value) == _family(stored.value)
    )
    if same or "-" in stored.value:  # an engine names its kernel (awq_marlin), the file its scheme (w4a16-awq)
        return stored, ()
    return stored, (f"the server says {told.value} ({told.source}), the files are {stored.value} ({stored.source})",)


def _family(name: str) -> str:
    return "_".join(name.split("_")[:2])


def _activations(told: Fact | None, weights: Fact | None, stored: Fact | None) -> Fact | None:
    """Quantized ones, if any: otherwise they are in the compute dtype.

    `fp8` applied while loading quantizes activations as well (vLLM and SGLang do so dynamically).
    """
    if told is not None and weights is told and told.value.startswith("fp8"):
        return Fact("fp8_e4m3", told.evidence, f"{told.source}: dynamic activations")
    return stored if stored is not None and stored.value not in FLOATS else None


def _cache_like(compute: Fact | None, flags: Flags) -> Fact | None:
    """Without a setting of its own, the KV cache has the compute dtype in the engines that we know to do so."""
    if compute is None or not flags.entry or flags.engine not in (Engine.VLLM, Engine.SGLANG):
        return None
    return Fact(compute.value, compute.evidence, f"no flag for the KV cache: {compute.source}")


def _maybe(what: str, fact: Fact | None) -> MaybeStr:
    return fact.value if fact is not None else Absent(absent=f"{what} is not revealed")


def _evidence(parts: Mapping[str, Fact | None], *, declared: bool) -> Evidence:
    """As good as its worst part. A declaration of the whole stands in for parts that nobody reveals."""
    known = [fact.evidence for fact in parts.values() if fact is not None]
    if len(known) == len(parts) and all(evidence is Evidence.PROVEN for evidence in known):
        return Evidence.PROVEN
    return Evidence.DECLARED if declared or len(known) == len(parts) else Evidence.UNKNOWN


# ---------------------------------------------------------------- the batch


def _batch(subject: Subject, read: ReadBack, flags: Flags) -> tuple[BatchIdentity, tuple[str, ...]]:
    declared = subject.stack.batch_size or subject.model.batch_size
    found, evidence, source = declared, Evidence.DECLARED, "declared in the configuration"
    if read.cap is not None:
        found, evidence, source = read.cap, Evidence.PROVEN, read.cap_source
    elif flags.cap is not None:
        found, evidence, source = flags.cap, Evidence.PROVEN if flags.entry else Evidence.DECLARED, "launch flag"
    wrong: tuple[str, ...] = ()
    if declared is not None and found != declared:
        wrong = (f"the configuration declares a batch size of {declared}, but the server's cap is {found} ({source})",)
    return (
        BatchIdentity(
            cap=found if found is not None else Absent(absent="the server does not reveal it, and nobody declares it"),
            evidence=evidence if found is not None else Evidence.UNKNOWN,
            source=source if found is not None else "nothing reveals or declares it",
        ),
        wrong,
    )
