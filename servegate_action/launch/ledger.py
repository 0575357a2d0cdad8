"""What is running for whom, on disk, so that a later run can remove what a dead one left.

One small file per launched stack, written before it starts and removed when nothing of it is left. It names the owner by
pid and start time, since pids are used again, and the stack by a random token that every one of its processes carries in
its environment (`SERVEGATE_STACK`). Refuses to judge owners that it cannot see: those of another machine or container.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from servegate_action.errors import StorageFailed
from servegate_action.launch.supervisor import start_ticks

RUN_VARIABLE = "SERVEGATE_RUN"
STACK_VARIABLE = "SERVEGATE_STACK"
_FOREIGN_KEPT_S = 7 * 86_400


class Owner(BaseModel):
    """One process of one boot of one machine (or container)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    boot: str
    namespace: str
    pid: Annotated[int, Field(gt=0)]
    start_ticks: int

    @classmethod
    def this_process(cls) -> Owner:
        """The running servegate."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(), boot=_boot(), namespace=_namespace(), pid=pid, start_ticks=start_ticks(pid) or 0
        )

    def visible(self) -> bool:
        """Whether its pid means anything here."""
        earlier_boot = self.host == socket.gethostname() and self.boot != _boot()
        return earlier_boot or (self.boot == _boot() and self.namespace == _namespace())

    def alive(self) -> bool:
        """Whether it still runs; only to be asked of a visible one."""
        return self.boot == _boot() and start_ticks(self.pid) == self.start_ticks


class Entry(BaseModel):
    """One launched stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    side: str
    token: Annotated[str, Field(min_length=16)]
    owner: Owner


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where the files are: under XDG_RUNTIME_DIR, else under the cache, else in a folder for this user in /tmp."""
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "servegate"
    if cache := environment.get("XDG_CACHE_HOME"):
        return Path(cache) / "servegate" / "running"
    if home := environment.get("HOME"):
        return Path(home) / ".cache" / "servegate" / "running"
    return Path(f"/tmp/servegate-{os.getuid()}")  # noqa: S108 - made with mode 0700, and what is read is only compared


def write(entry: Entry, state_dir: Path) -> Path:
    """Note the stack before it starts. Raises StorageFailed."""
    path = state_dir / f"{entry.token}.json"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(entry.model_dump_json())
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be written: {error.strerror}",
            why="servegate notes there what it starts, so that a later run can remove what a killed one left",
            next_step="set XDG_RUNTIME_DIR to a folder that can be written",
        ) from error
    return path


def left_behind(state_dir: Path, *, run_id: str | None = None) -> list[tuple[Path, Entry]]:
    """The entries whose owner is dead. With `run_id`, those of that run, whatever its owner does."""
    found = []
    for path in sorted(state_dir.glob("*.json")):
        entry = _read(path)
        if entry is None:
            continue
        if run_id is not None:
            stale = entry.run_id == run_id and entry.owner.visible()
        elif entry.owner.visible():
            stale = not entry.owner.alive()
        else:
            # its container ends all of its processes; only the file may stay, and it does not stay for ever
            stale = False
            if time.time() - path.stat().st_mtime > _FOREIGN_KEPT_S:
                path.unlink(missing_ok=True)
        if stale:
            found.append((path, entry))
    return found


def _read(path: Path) -> Entry | None:
    """The entry, or None for a file that is half written or of another version; such a file names nothing to end."""
    try:
        return Entry.model_validate_json(path.read_bytes())
    except (ValidationError, json.JSONDecodeError, FileNotFoundError):
        return None


def carriers(token: str) -> list[int]:
    """Every process whose environment holds the stack's token."""
    needle = f"{STACK_VARIABLE}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile, or another user's
                continue
            if needle in variables:
                found.append(int(name))
    return found


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")
