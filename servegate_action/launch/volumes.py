"""Volumes of a container stack: `host:container[:ro]` as written, to mounts as the engine must be told them.

When servegate itself runs in a container, a path that it sees is another one on the host; its own mounts tell which. This
module refuses to hand a stack the engine's socket, or a folder that holds it: that would be root on the machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from servegate_action.errors import UsageError

_SOCKETS = (PurePosixPath("/var/run/docker.sock"), PurePosixPath("/run/docker.sock"))


@dataclass(frozen=True, slots=True)
class OwnMount:
    """One mount of servegate's own container: where it is inside, and where that is on the host."""

    inside: PurePosixPath
    on_host: PurePosixPath


@dataclass(frozen=True, slots=True)
class Volume:
    """One mount of a stack. `source` is an absolute host path, or the name of a volume of the engine."""

    source: str
    target: str
    read_only: bool

    @property
    def named(self) -> bool:
        """Whether it is a volume of the engine, not a path."""
        return not self.source.startswith("/")


@dataclass(frozen=True, slots=True)
class Paths:
    """How a path that the configuration names becomes one on the engine's host."""

    workspace: Path
    own_mounts: tuple[OwnMount, ...] = ()
    sockets: tuple[PurePosixPath, ...] = _SOCKETS

    def on_host(self, path: PurePosixPath) -> PurePosixPath:
        """The host's path; the innermost own mount that contains it decides, none leaves it as it is."""
        holding = [mount for mount in self.own_mounts if path.is_relative_to(mount.inside)]
        if not holding:
            return path
        innermost = max(holding, key=lambda mount: len(mount.inside.parts))
        return innermost.on_host / path.relative_to(innermost.inside)

    def volumes(self, written: Sequence[str], *, label: str) -> tuple[Volume, ...]:
        """All volumes of a stack. Raises UsageError for a malformed one and for the engine's socket."""
        return tuple(self._volume(text, label) for text in written)

    def check_existence(self, written: Sequence[str], *, label: str) -> None:
        """Refuse a folder that is not there, where that can be seen from here: some engines make an empty one of it.

        A bare name is a volume of the engine, made empty when it is new: beside a folder of that name it is a slip.
        """
        for text in written:
            source = text.partition(":")[0]
            seen = PurePosixPath(os.path.normpath(self.workspace / source))
            visible = not self.own_mounts or any(seen.is_relative_to(mount.inside) for mount in self.own_mounts)
            if _is_name(source) and (self.workspace / source).exists():
                raise UsageError(
                    f"the stack '{label}' has a volume '{source}', which names a volume of the engine, not the folder {seen}",
                    next_step=f"write ./{text} for the folder, or rename one of the two",
                )
            if not _is_name(source) and visible and not Path(seen).exists():
                raise UsageError(
                    f"the stack '{label}' has a volume of {seen}, which does not exist",
                    next_step="compare the path with the machine's; a relative one starts at the workspace (the checkout)",
                )

    def _volume(self, text: str, label: str) -> Volume:
        parts = text.split(":")
        mode = parts.pop() if len(parts) == 3 else "rw"
        if len(parts) != 2 or not all(parts) or mode not in {"ro", "rw"} or not parts[1].startswith("/"):
            raise UsageError(
                f"the stack '{label}' has a volume that cannot be read: {text}",
                next_step="write host:container or host:container:ro, with an absolute path in the container",
            )
        source, target = parts
        if _is_name(source):
            return Volume(source=source, target=target, read_only=mode == "ro")
        seen = PurePosixPath(os.path.normpath(self.workspace / source))
        host = self.on_host(seen)
        # as written, and where its links lead to: the engine follows them
        followed = PurePosixPath((self.workspace / source).resolve())
        for path in (seen, host, followed, self.on_host(followed)):
            self._refuse_socket(path, label)
        return Volume(source=str(host), target=target, read_only=mode == "ro")

    def _refuse_socket(self, path: PurePosixPath, label: str) -> None:
        if any(socket.is_relative_to(path) for socket in self.sockets):
            raise UsageError(
                f"the stack '{label}' asks for {path}, which holds the container engine's socket",
                why="whoever can talk to the engine is root on this machine, and a stack is code under test",
                next_step="mount only the folder that the server needs, such as its weights",
            )


def _is_name(source: str) -> bool:
    """Whether it names a volume of the engine, as a word without a slash does."""
    return "/" not in source and source not in {".", ".."}
