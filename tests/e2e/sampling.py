"""Samples the CPU from a sibling container, as a GPU is sampled that a container action itself does not have.

python sampling.py FILE       inside of the action's image
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from servegate_action.launch import docker_world, start_beside
from servegate_action.telemetry.child import RemoteHost


def main(path: Path) -> None:
    """Sample until three samples have arrived."""
    with docker_world(os.environ, "sampling") as world:
        host = RemoteHost(lambda words: start_beside(world, "servegate_action.telemetry", words, gpus="none"))
        child = host.start(["sample", "--backend", "cpu", "--interval-ns", "50000000"], output=path)
        try:
            until = time.monotonic() + 60
            while path.read_text().count("\n") < 4 and time.monotonic() < until and child.poll() is None:
                time.sleep(0.05)
            print(time.monotonic_ns())
        finally:
            child.stop(5.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
