"""What is gated and by which policy: limits, workload, prices and baseline from the base commit, the candidate from the head.

A pull request cannot loosen its own gate. Where the base has no gate yet, the head's counts and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from servegate_action.action import baseline
from servegate_action.action.step import Step
from servegate_action.config.load import load
from servegate_action.config.merge import claims, held_to, merge
from servegate_action.config.models import Config
from servegate_action.errors import UsageError
from servegate_action.github.event import Event
from servegate_action.github.policy import Sources, fetch
from servegate_action.records import Change


@dataclass(frozen=True, slots=True)
class Gated:
    """The configuration that is judged by, the change it is about, and where the files that it names are read."""

    config: Config
    change: Change
    read_text: Callable[[str], str]
    notes: tuple[str, ...] = ()

    def with_note(self, note: str) -> Gated:
        """The same with one more note, when there is one."""
        return replace(self, notes=(*self.notes, note)) if note else self


def gated(step: Step, event: Event) -> Gated:
    """Read the policy of one event. Raises ConfigError, UsageError, CannotMeasure."""
    name = step.inputs.config
    head = _workspace_text(step, name)
    if event.policy_ref is None:
        config = load(head, file=name)
        found = Gated(
            config, _change(step, event, None, "the measured commit"), lambda path: _workspace_text(step, path)
        )
        return _with_inputs(step, found)
    sources = Sources(api=step.api, checkout=step.job.workspace)
    base = fetch([name], ref=event.policy_ref, sources=sources)
    content = base.files[name]
    if content is None:
        note = f"{name} does not exist at the base commit {base.commit[:7]}: this change introduces the gate it is judged by"
        change = _change(step, event, base.commit, "the head: the base has no gate yet")
        found = Gated(load(head, file=name), change, lambda path: _workspace_text(step, path), (note,))
        return _with_inputs(step, found)
    merged = merge(_decoded(content, name), head, file=name)
    change = _change(step, event, base.commit, f"the base commit {base.commit[:7]}")
    change = change.model_copy(update={"policy_edits": merged.edits})

    theirs = baseline.notes(
        merged.config.stacks.baseline,
        base=base.commit,
        workspace=step.job.workspace,
        environment=step.world.environment,
    )
    found = Gated(merged.config, change, partial(_text_at, base.commit, sources), _told(merged.claims))
    for note in (merged.held, *theirs):
        found = found.with_note(note)
    return _with_inputs(step, found)


def _told(said: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"the candidate now says of itself: {claim}" for claim in said)


def _text_at(commit: str, sources: Sources, path: str) -> str:
    """A file that the policy names, as it is at the base."""
    text = next(iter(fetch([path], ref=commit, sources=sources).files.values()))
    if text is None:
        raise UsageError(f"{path} does not exist at the base commit {commit[:7]}, and the policy names it")
    return _decoded(text, path)


def _with_inputs(step: Step, found: Gated) -> Gated:
    """The action's inputs come from the workflow, which is the maintainers' own; they may say how to measure and tell."""
    config = found.config
    if step.inputs.accelerator is not None:
        config = config.model_copy(update={"accelerator": step.inputs.accelerator})
    if step.inputs.comment is not None:
        config = config.model_copy(update={"github": config.github.model_copy(update={"comment": step.inputs.comment})})
    return replace(found, config=config)


def _change(step: Step, event: Event, base: str | None, source: str) -> Change:
    return Change(
        repository=event.repository,
        head_sha=event.sha or step.job.sha,
        base_sha=base,
        number=event.number,
        policy_from=source,
    )


def _workspace_text(step: Step, name: str) -> str:
    path = step.job.workspace / name
    inside = path.resolve().is_relative_to(step.job.workspace.resolve())
    try:
        if not inside:
            raise UsageError(f"{name} leads out of the workspace")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{name} does not exist in the workspace",
            why="the checkout is missing, or the gate has another name",
            next_step="run actions/checkout before this step, or name the file with the input `config`",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} cannot be read: {error}") from None


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} at the base commit is not UTF-8: {error}") from None


@dataclass(frozen=True, slots=True)
class BasePolicy:
    """The base's configuration, and where the files that it names are read."""

    config: Config
    read_text: Callable[[str], str]


def base_policy(step: Step, event: Event) -> BasePolicy:
    """The base's whole configuration, as the server has it: for jobs that check out nothing. Inputs count, as always.

    Raises UsageError when the base has no gate yet: there is then nothing that a change could be held against.
    """
    ref = event.policy_ref or event.sha or step.job.sha
    name = step.inputs.config
    sources = Sources(api=step.api)
    base = fetch([name], ref=ref, sources=sources)
    content = base.files[name]
    if content is None:
        raise UsageError(
            f"{name} does not exist at the base commit {base.commit[:7]}",
            why="a job that checks out nothing takes gate, limits and status from the base, which has none yet",
            next_step="merge the configuration first; or measure this change with mode `run` on a branch of the repository",
        )
    config = load(_decoded(content, name), file=f"{name} (base)")
    found = Gated(config, _change(step, event, base.commit, ""), partial(_text_at, base.commit, sources))
    return BasePolicy(_with_inputs(step, found).config, found.read_text)


def same_policy(expected: Config, measured: Config) -> bool:
    """Whether a recording's configuration is the base's policy: everything but the candidate, which is held to the base."""
    candidate = measured.stacks.candidate
    held = held_to(expected.stacks.candidate, candidate) == candidate
    return held and _policy(expected) == _policy(measured)


def said_anew(expected: Config, measured: Config) -> tuple[str, ...]:
    """The notes on what the measured candidate says of itself that the base's does not."""
    return _told(claims(expected.stacks.candidate, measured.stacks.candidate))


def _policy(config: Config) -> dict[str, object]:
    """What a pull request may not change. How the run was made and told (inputs of the workflow) is left out."""
    dumped: dict[str, object] = config.model_dump(mode="json", exclude={"accelerator", "github"})
    stacks = dumped["stacks"]
    return {**dumped, "stacks": stacks["baseline"] if isinstance(stacks, dict) else None}
