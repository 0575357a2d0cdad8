"""Stacks that go away when nobody asks: one that really ends, and one that only says so and keeps its memory.

python -m tests.support.idle_server --port P --idle-s 2                    exits 0 after two idle seconds
python -m tests.support.idle_server --port P --idle-s 2 --keep --mib 64    "sleeps" instead: port shut, memory held
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence

from tests.support.tiny_server import TinyServer, quit_on_sigterm


def main(arguments: Sequence[str]) -> None:
    """Serve until idle for long enough; then end, or sleep with everything held."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    parser.add_argument("--mib", type=int, default=16, help="memory that the model takes")
    parser.add_argument("--keep", action="store_true", help="do not end: sleep, with the memory held")
    told = parser.parse_args(arguments)
    quit_on_sigterm()
    weights = bytearray(os.urandom(4096)) * (told.mib * 256)
    with TinyServer(("127.0.0.1", told.port)) as server:
        watcher = threading.Thread(target=_shut_when_idle, args=(server, told.idle_s), daemon=True)
        watcher.start()
        print(f"serving on {server.server_address[1]} with {len(weights)} bytes", flush=True)
        server.serve_forever(poll_interval=0.05)
    print(f"idle for {told.idle_s:g} s", flush=True)
    if told.keep:
        threading.Event().wait()


def _shut_when_idle(server: TinyServer, idle_s: float) -> None:
    while (left := server.last_asked + idle_s - time.monotonic()) > 0:
        time.sleep(left)
    server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
