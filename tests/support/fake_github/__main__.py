"""`python -m tests.support.fake_github PORT --state FILE`: the fake as a process, for tests with containers."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.support.fake_github.server import FakeGitHub, serving
from tests.support.fake_github.world import World


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--state", type=Path, required=True, help="the world as JSON; rewritten after each change")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--name", default="127.0.0.1", help="host name in the addresses that are given out")
    parser.add_argument("--prefix", default="", help="/api/v3 for an enterprise server")
    chosen = parser.parse_args()
    world = World.load(chosen.state) if chosen.state.exists() else World()
    fake = FakeGitHub(world, prefix=chosen.prefix, state=chosen.state)
    world.save(chosen.state)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    with serving(fake, host=chosen.host, port=chosen.port, name=chosen.name):
        print(f"fake GitHub at {fake.url}", flush=True)
        done.wait()
        with fake.lock:
            world.save(chosen.state)


main()
