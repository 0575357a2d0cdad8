"""The door: reads the environment once, builds the real world, and maps the outcome to an exit code.

The only place that knows `os.environ`, the consoles and the signals. The first SIGINT or SIGTERM becomes `Cancelled` in
the main thread and everything that was started cleans up on its way out; later ones are ignored meanwhile.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

from servegate_action import cli
from servegate_action.errors import Cancelled
from servegate_action.world import World

LOG_WIDTH = 140
"""Columns of tables where there is no terminal to ask."""
LOOK_AGAIN_S = 0.002


def main() -> int:
    """Run one command; returns its exit code."""
    cancel_on_signals()
    world = World(
        environment=dict(os.environ),
        folder=Path.cwd(),
        out=Console(width=None if sys.stdout.isatty() else LOG_WIDTH, highlight=False, markup=False, emoji=False),
        err=Console(stderr=True, highlight=False, markup=False, emoji=False),
    )
    code = cli.run(sys.argv[1:], world)
    gc.freeze()  # the interpreter's last collections would look through all of it once more: 60 ms of every command
    return code


def cancel_on_signals() -> None:
    """Turn the first signal into `Cancelled`, as soon as whatever runs at that moment lets it through."""

    def cancel(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        if _would_be_lost_in(frame):
            signal.signal(signal.SIGALRM, lambda _, later: cancel(number, later))
            signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN_S)
            return
        raise Cancelled(number)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, cancel)


def _would_be_lost_in(frame: FrameType | None) -> bool:
    """Whether an exception raised here would become another one, or none: pydantic makes it a fault of the model that it is
    building, and Python ignores what a finalizer raises. Neither takes long."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__", "").startswith("pydantic"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main())
