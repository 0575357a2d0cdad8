"""Who may loosen the gate: policy from the base commit, only the candidate from the head.

On a pull request, workload, limits, prices and the baseline count as they stand on the base commit. The head may change
the candidate stack, and nothing else; what else it edits is announced and takes effect once merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from servegate_action.config.load import Tree, read_tree, validate
from servegate_action.config.models import Config
from servegate_action.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class Merged:
    """The configuration that is judged by, and what the head edits (`key: base → head`).

    `edits` are keys of the policy, which do not count yet. `claims` are what the candidate now says of itself: they count,
    and a reviewer should see them (a candidate that claims fewer GPUs looks cheaper).
    """

    config: Config
    edits: tuple[str, ...]
    claims: tuple[str, ...] = ()


CLAIMS = ("gpu_count", "gpu_uuids", "gpu_pool", "quantization", "batch_size")


def merge(base_text: str, head_text: str, *, file: str) -> Merged:
    """Everything from `base_text`, `stacks.candidate` from `head_text`.

    Raises ConfigError when the base's policy, or the head's candidate under that policy, is not valid. A head whose
    *policy* is broken is no error today: it is an edit like any other, and announced.
    """
    base, head = read_tree(base_text, file=f"{file} (base)"), read_tree(head_text, file=file)
    if head.problems:
        raise ConfigError(head.problems)
    validate(base)
    merged = validate(_with_candidate(base, head))
    return Merged(merged, tuple(_edits(base.data, head.data, ())), tuple(_claims(base.data, head.data)))


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


def _claims(base: JsonValue, head: JsonValue) -> Iterator[str]:
    before, after = (_candidate(data) for data in (base, head))
    for key in CLAIMS:
        if before.get(key) != after.get(key):
            yield f"stacks.candidate.{key}: {_short(before.get(key))} → {_short(after.get(key))}"


def _candidate(data: JsonValue) -> dict[str, JsonValue]:
    stacks = data.get("stacks") if isinstance(data, dict) else None
    candidate = stacks.get("candidate") if isinstance(stacks, dict) else None
    return candidate if isinstance(candidate, dict) else {}


def _short(value: JsonValue) -> str:
    text = "(not set)" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
