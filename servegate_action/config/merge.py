"""Who may loosen the gate: policy from the base commit, only the candidate from the head.

On a pull request, workload, limits, prices and the baseline count as they stand on the base commit. The head may change
the candidate stack, and nothing else; what else it edits is announced and takes effect once merged. Two things that a
candidate may say of itself decide which comparison is valid: its pool, and that the launches of its endpoint are fixed. Of
these the base's word counts as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from servegate_action.config.load import Tree, read_tree, validate
from servegate_action.config.models import Config
from servegate_action.config.stacks import Stack
from servegate_action.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Merged:
    """The configuration that is judged by, and what the head edits (`key: base → head`).

    `edits` are keys of the policy, which do not count yet. `claims` are what the candidate now says of itself: they count,
    and a reviewer should see them (a candidate that claims fewer GPUs looks cheaper). `held` says what an edit that does not
    count costs the verdict.
    """

    config: Config
    edits: tuple[str, ...]
    claims: tuple[str, ...] = ()
    held: str = ""


CLAIM = 250
"""Characters of a claim that are shown: what counts is not cut as early as what does not."""

NOT_FIXED = (
    "the candidate's endpoint says `launches: fixed`, which the base commit does not say of this url: "
    "it does not count yet, and the best verdict is INCONCLUSIVE"
)


def merge(base_text: str, head_text: str, *, file: str) -> Merged:
    """Everything from `base_text`, `stacks.candidate` from `head_text`.

    Raises ConfigError when the base's policy, or the head's candidate under that policy, is not valid. A head whose
    *policy* is broken is no error today: it is an edit like any other, and announced.
    """
    base, head = read_tree(base_text, file=f"{file} (base)"), read_tree(head_text, file=file)
    if head.problems:
        raise ConfigError(head.problems)
    before = validate(base).stacks.candidate
    merged = validate(_with_candidate(base, head))
    written = merged.stacks.candidate
    counted = held_to(before, written)
    return Merged(
        merged.model_copy(update={"stacks": merged.stacks.model_copy(update={"candidate": counted})}),
        (*_edits(base.data, head.data, ()), *_changes(_policy(counted), _policy(written))),
        claims(before, counted),
        NOT_FIXED if counted.endpoint != written.endpoint else "",
    )


def held_to(base: Stack, candidate: Stack) -> Stack:
    """The candidate as it counts: in the pool that the base gives it, its launches fixed only where the base says so.

    Two pools excuse the two stacks from running on the same accelerators, and fixed launches from being a sample of one.
    """
    endpoint, known = candidate.endpoint, base.endpoint
    if endpoint is not None and endpoint.launches == "fixed":
        fixed = known is not None and known.launches == "fixed" and known.url == endpoint.url
        endpoint = endpoint if fixed else endpoint.model_copy(update={"launches": "unknown"})
    return candidate.model_copy(update={"gpu_pool": base.gpu_pool, "endpoint": endpoint})


def _with_candidate(base: Tree, head: Tree) -> Tree:
    """The base's tree with the head's candidate, each line pointing into the file that it came from."""
    data, other = base.data, head.data
    candidate = _candidate(other)
    base_stacks = data.get("stacks") if isinstance(data, dict) else None
    if not candidate or not isinstance(data, dict) or not isinstance(base_stacks, dict):
        raise ConfigError([Problem(head.file, head.line(("stacks",)), "stacks.candidate", "required key is missing")])
    own = ("stacks", "candidate")
    lines = {path: line for path, line in base.lines.items() if path[:2] != own}
    lines |= {path: line for path, line in head.lines.items() if path[:2] == own}
    return Tree(head.file, data={**data, "stacks": {**base_stacks, "candidate": candidate}}, lines=lines)


def _edits(base: JsonValue, head: JsonValue, path: tuple[str, ...]) -> Iterator[str]:
    if path == ("stacks", "candidate"):
        return
    if isinstance(base, dict) and isinstance(head, dict):
        for key in [*base, *(key for key in head if key not in base)]:
            yield from _edits(base.get(key), head.get(key), (*path, key))
    elif base != head:
        yield f"{'.'.join(path)}: {_short(base)} → {_short(head)}"


def claims(base: Stack, head: Stack) -> tuple[str, ...]:
    """What a candidate says of itself that another did not, as `key: before → after`; names of variables, not values."""
    kind = [f"stacks.candidate: {_kind(base)} → {_kind(head)}"] if _kind(base) != _kind(head) else []
    return (*kind, *_changes(_said(base), _said(head)), *_other_variables(base, head))


def _other_variables(base: Stack, head: Stack) -> Iterator[str]:
    before, after = _names(base), _names(head)
    if base.env != head.env:
        other = " (other values)" if before == after else ""
        yield f"stacks.candidate.env: {_short(before, most=CLAIM)} → {_short(after, most=CLAIM)}{other}"


def _changes(before: dict[str, str | None], after: dict[str, str | None]) -> Iterator[str]:
    for key, value in before.items():
        if value != after[key]:
            yield f"stacks.candidate.{key}: {_short(value, most=CLAIM)} → {_short(after[key], most=CLAIM)}"


def _policy(stack: Stack) -> dict[str, str | None]:
    """What a stack says of itself, and the base decides."""
    return {
        "gpu_pool": stack.gpu_pool,
        "endpoint.launches": stack.endpoint.launches if stack.endpoint is not None else None,
    }


def _said(stack: Stack) -> dict[str, str | None]:
    """What a stack says of itself, and a reviewer should know: what it holds, where it is, and which key it asks for."""
    endpoint, container = stack.endpoint, stack.container
    gpus = None if container is None else container.gpus
    return {
        "engine": stack.engine,
        "served_model": stack.served_model,
        "gpu_count": str(stack.gpu_count),
        "gpu_uuids": ", ".join(stack.gpu_uuids) or None,
        "container.gpus": ", ".join(gpus) if isinstance(gpus, tuple) else None if gpus is None else str(gpus),
        "quantization": stack.quantization,
        "batch_size": None if stack.batch_size is None else str(stack.batch_size),
        "endpoint.url": None if endpoint is None else endpoint.url,
        "endpoint.api_key_env": None if endpoint is None else endpoint.api_key_env,
    }


def _names(stack: Stack) -> str | None:
    """The variables of a stack; a value may be a secret, and is left out."""
    pairs = [entry.partition("=") for entry in stack.env]
    return ", ".join(f"{name}=…" if equals else name for name, equals, _ in pairs) or None


def _kind(stack: Stack) -> str:
    return "process" if stack.process is not None else "container" if stack.container is not None else "endpoint"


def _candidate(data: JsonValue) -> dict[str, JsonValue]:
    stacks = data.get("stacks") if isinstance(data, dict) else None
    candidate = stacks.get("candidate") if isinstance(stacks, dict) else None
    return candidate if isinstance(candidate, dict) else {}


def _short(value: JsonValue, *, most: int = 60) -> str:
    text = "(not set)" if value is None else str(value)
    return text if len(text) <= most else text[: most - 3] + "…"
