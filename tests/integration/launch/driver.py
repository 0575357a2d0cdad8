"""A servegate that launches the tiny server and waits, to be interrupted and killed by a test.

python -m tests.integration.launch.driver FOLDER [flags of the tiny server]
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from servegate_action.errors import Cancelled
from tests.integration.launch.making import Place, tiny


def main(folder: str, flags: list[str]) -> int:
    """As the door does: both signals are Cancelled in the main thread."""

    def cancel(number: int, _frame: FrameType | None) -> None:
        raise Cancelled(number)

    signal.signal(signal.SIGINT, cancel)
    signal.signal(signal.SIGTERM, cancel)
    place = Place(Path(folder))
    try:
        with place.launch(tiny(*flags)) as running:
            print(f"ready {running.ready.pid}", flush=True)
            while True:
                signal.pause()
    except Cancelled as cancelled:
        return cancelled.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
