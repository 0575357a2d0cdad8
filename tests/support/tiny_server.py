"""A tiny OpenAI-like server, and the ways in which a stack can misbehave around its start and its end.

    python -m tests.support.tiny_server --port P [--daemon] [--deaf] [--exit-at-start CODE] …

It answers `/health`, `/v1/models`, `/v1/completions` and `/die`, and is as ordinary a stack as a test can start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType


class TinyServer(ThreadingHTTPServer):
    """The server, and when it was last asked for something."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.last_asked = time.monotonic()
        super().__init__(address, _Answers)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TinyServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gave it
        """Stay silent: the log of the test is what the server prints on purpose."""

    def _send(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """Health, the list of models, and `/die`."""
        if self.path == "/die":
            print("told to die", flush=True)
            os._exit(7)
        if self.path == "/environment":
            self._send(dict(os.environ))
        elif self.path == "/v1/models":
            self._send({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
        else:
            self._send({"status": "ok"}, 200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        """One completion of one token."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.last_asked = time.monotonic()
        choice = {"index": 0, "text": " hi", "finish_reason": "length"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._send({"object": "text_completion", "model": "tiny", "choices": [choice], "usage": usage})


_FOREVER = "import time, signal, sys\nif sys.argv[1:] == ['deaf']: signal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"


def leave_daemon(*, deaf: bool) -> None:
    """Start a process that forks twice and changes its session, as a daemon does."""
    if os.fork() == 0:
        os.setsid()
        daemon = subprocess.Popen([sys.executable, "-c", _FOREVER, *(["deaf"] if deaf else [])], start_new_session=True)
        print(f"daemon {daemon.pid}", flush=True)
        os._exit(0)
    os.wait()


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--say", default="")
    parser.add_argument("--exit-at-start", type=int)
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--daemon", action="store_true")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--background", action="store_true", help="leave the server in the background and exit 0")
    return parser.parse_args(arguments)


def quit_on_sigterm() -> None:
    """End quietly when asked to."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        print("asked to end", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)


def main(arguments: Sequence[str]) -> None:
    """Misbehave as told, then serve."""
    told = options(arguments)
    if told.say:
        print(told.say, flush=True)
    if told.exit_at_start is not None:
        print("cannot find the weights", flush=True)
        sys.exit(told.exit_at_start)
    if told.daemon:
        leave_daemon(deaf=told.deaf)
    if told.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        quit_on_sigterm()
    if told.never_ready:
        print("loading for ever", flush=True)
        threading.Event().wait()
    if told.background and os.fork():
        os._exit(0)
    with TinyServer((told.host, told.port)) as server:
        print(f"serving on {server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
