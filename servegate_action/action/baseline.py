"""What of the baseline may still be the change's: files of the checkout that it runs or mounts, an image named by a tag.

The baseline's configuration is the base's, but what it names lies on the runner's disk, where the change was checked out.
Whatever a change does to such files it does to both stacks, so that it is measured against itself. Paths are read here as a
run would read them. This room only tells: it refuses nothing, since a gate may want exactly this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from servegate_action.config.stacks import ContainerStack, ProcessStack, Stack
from servegate_action.github import checkout

BOTH = "whatever this change does to files that both stacks run, it does to both"
BESIDE = "Check the base commit out beside it"


def notes(baseline: Stack, *, base: str, workspace: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each, in the order of the configuration; none for a baseline that is the base's alone."""
    if baseline.process is not None:
        return tuple(_of_process(baseline.process, base=base, workspace=workspace))
    if baseline.container is not None:
        roots = (workspace, *_on_the_host(environment))
        return (*_of_image(baseline.container), *_of_volumes(baseline.container, base=base, roots=roots))
    return ()


def _of_process(process: ProcessStack, *, base: str, workspace: Path) -> Iterator[str]:
    at = checkout.holding(workspace / (process.cwd or ""), within=workspace)
    if at != base:
        yield (
            f"the baseline's command is that of the base commit {base[:7]}, but it was started in {_place(at)}: {BOTH}. "
            f"{BESIDE} and name it as the baseline's cwd, or run the baseline as a container by digest (docs/github.md)"
        )


def _of_image(container: ContainerStack) -> Iterator[str]:
    if "@sha256:" not in container.image:
        yield (
            f"the baseline's image {container.image} is named by a tag: where it is built on the runner, it may be built from "
            "this change, on both sides. Build it from the base commit, or name it by digest (docs/github.md)"
        )


def _of_volumes(container: ContainerStack, *, base: str, roots: tuple[Path, ...]) -> Iterator[str]:
    for written in container.volumes:
        source = written.partition(":")[0]
        path = roots[0] / source
        if "/" not in source and source not in {".", ".."}:
            continue  # a volume of the engine
        if not any(_touches(path, root) for root in roots):
            continue
        at = checkout.holding(path, within=roots[0])
        if at != base:
            yield (
                f"the baseline's container mounts {source}, where files of {_place(at)} are: {BOTH}. {BESIDE} and mount that, "
                "or put the files into the image (docs/github.md)"
            )


def _touches(path: Path, root: Path) -> bool:
    """Whether one of the two holds the other, as written or where the links lead to."""
    written, around = Path(os.path.normpath(path)), Path(os.path.normpath(root))
    pairs = ((written, around), (path.resolve(), root.resolve()))
    return any(here.is_relative_to(there) or there.is_relative_to(here) for here, there in pairs)


def _on_the_host(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where checkouts are on the runner's disk, which is elsewhere than in the action's own container."""
    named = environment.get("RUNNER_WORKSPACE")
    return (Path(named),) if named else ()


def _place(at: str | None) -> str:
    return f"a checkout of {at[:7]}" if at is not None else "the workspace"
