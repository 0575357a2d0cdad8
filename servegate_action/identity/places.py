"""Which weights does a stack really serve, and can they be seen from here?

What the server says that it loaded comes first, then the model named by its launch flags, then `model.path` of the
configuration. A path inside a container is translated through the stack's volumes. A path that an endpoint reports may
be of another machine, so it proves nothing. It refuses to look for hub names in a cache: which commit a name meant is
not visible from outside; `model.revision` declares it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from servegate_action.config.stacks import Stack
from servegate_action.identity.engines import ReadBack
from servegate_action.identity.facts import Fact
from servegate_action.identity.flags import Flags
from servegate_action.records import Evidence


@dataclass(frozen=True, slots=True)
class Place:
    """Where the weights are: on this machine, or only inside the stack's container; how well that is known."""

    kind: Literal["here", "container"]
    path: str
    evidence: Evidence
    source: str


def locate(
    stack: Stack, read: ReadBack, flags: Flags, *, configured: Path | None, workspace: Path | None = Path()
) -> Place | None:
    """The best known place of the weights, None when nobody names one that is a path.

    Relative paths of the configuration (a process's `cwd`, a volume's source) are below `workspace`. None: a container
    stack's volumes are those of another file system than ours, so that nothing in them is to be seen from here.
    """
    named: list[tuple[str, Evidence, str]] = []
    if read.model is not None:
        named.append((read.model, Evidence.PROVEN, "the server names it as its model"))
    if flags.model is not None:
        known = Evidence.PROVEN if flags.entry else Evidence.DECLARED
        named.append((flags.model, known, "named by the launch command"))
    for path, evidence, source in named:
        place = _place(stack, path, workspace, Fact(path, evidence, source))
        if place is not None:
            return place
    if configured is not None and configured.exists():
        return Place("here", str(configured), Evidence.DECLARED, "model.path; the stack does not say what it loaded")
    return None


def _place(stack: Stack, path: str, workspace: Path | None, named: Fact) -> Place | None:
    if stack.container is not None:
        inside = PurePosixPath(path)
        visible = inside.is_absolute() and workspace is not None
        outside = host_path(inside, stack.container.volumes, workspace or Path()) if visible else None
        if outside is not None and outside.exists():
            return Place("here", str(outside), named.evidence, named.source)
        return Place("container", path, named.evidence, named.source) if inside.is_absolute() else None
    cwd = stack.process.cwd if stack.process is not None else None
    local = ((workspace or Path()) / (cwd or "") / path).absolute()
    if not local.exists():
        return None
    if stack.endpoint is not None:
        return Place("here", str(local), Evidence.DECLARED, f"{named.source}, a path that also exists on this machine")
    return Place("here", str(local), named.evidence, named.source)


def host_path(inside: PurePosixPath, volumes: tuple[str, ...], workspace: Path = Path()) -> Path | None:
    """A path in the container as one of the host, through the most specific of its `host:container[:ro]` mounts.

    A source without a slash is a volume of the engine, which is not to be seen from here.
    """
    best: tuple[int, Path] | None = None
    for volume in volumes:
        source, _, rest = volume.partition(":")
        mount = PurePosixPath(rest.split(":")[0])
        visible = "/" in source or source in (".", "..")
        if visible and inside.is_relative_to(mount) and (best is None or len(mount.parts) > best[0]):
            best = (len(mount.parts), (workspace / source / inside.relative_to(mount)).absolute())
    return best[1] if best is not None else None
