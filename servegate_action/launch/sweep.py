"""Removes what dead earlier runs left: process trees by the ledger, containers and networks by their labels.

Refuses to touch anything whose owner still runs, or cannot be seen from here, and anything that servegate did not start.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from servegate_action.launch import ledger, supervisor

_ASKED_S = 2.0
_KILLED_S = 3.0


def sweep(*, state_dir: Path, run_id: str | None = None) -> list[str]:
    """One line for each thing removed. With `run_id`, only that run's, whatever its owner does."""
    said: list[str] = []
    for path, entry in ledger.left_behind(state_dir, run_id=run_id):
        ended, stuck = _end(entry.token)
        if ended:
            said.append(f"ended {_listed(ended)} that run {entry.run_id} had left of its {entry.side}")
        if stuck:
            said.append(f"could not end {_listed(stuck)} of run {entry.run_id}: stuck inside the kernel")
        else:
            path.unlink(missing_ok=True)
    return said


def _end(token: str) -> tuple[list[int], list[int]]:
    """Ask, wait, kill every carrier of the token. Returns those that ended and those that did not."""
    seen: set[int] = set()
    for signal_number, patience_s in ((signal.SIGTERM, _ASKED_S), (signal.SIGKILL, _KILLED_S)):
        until = time.monotonic() + patience_s
        asked: set[int] = set()
        while pids := _living(token):
            seen.update(pids)
            fresh = [pid for pid in pids if pid not in asked or signal_number == signal.SIGKILL]
            asked.update(fresh)
            supervisor.send(fresh, signal_number)
            if time.monotonic() > until:
                break
            time.sleep(0.02)
    stuck = _living(token)
    return sorted(seen - set(stuck)), stuck


def _living(token: str) -> list[int]:
    own = os.getpid()
    return [pid for pid in ledger.carriers(token) if pid != own and supervisor.start_ticks(pid) is not None]


def _listed(pids: list[int]) -> str:
    return ("process " if len(pids) == 1 else "processes ") + ", ".join(map(str, pids))
