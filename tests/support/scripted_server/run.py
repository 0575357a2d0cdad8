"""Start the scripted server around a block, and read the truth afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.scripted_server.script import Answer, Script

ROOT = Path(__file__).resolve().parents[3]
MODELS = (200, "application/json", json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))


@dataclass(slots=True)
class Scripted:
    """A running server; after `stop` also what it knows."""

    url: str
    process: subprocess.Popen[str]
    truth: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    cpu_s: float = 0.0

    def stop(self) -> None:
        """End it and take its last words. Does nothing the second time."""
        if self.process.stdin is None or self.process.stdin.closed:
            return
        self.process.stdin.close()
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.truth = told["truth"]
        self.bodies = [json.loads(body) for body in told["bodies"]]
        self.connections, self.open, self.cpu_s = told["connections"], told["open"], told["cpu_s"]

    def truth_of(self, name: str) -> dict[str, Any]:
        """The truth of the one request that asked for this script."""
        (found,) = [truth for truth in self.truth if truth["name"] == name]
        return found


@contextmanager
def scripted(
    scripts: Mapping[str, Script] | None = None,
    *,
    pages: Mapping[str, tuple[int, str, str]] | None = None,
    refuses: Sequence[str] = (),
    tls: tuple[str, str] | None = None,
    phases: tuple[int, int] = (1, 0),
    cpu: int | None = None,
    undisturbed: bool = False,
    keep_bodies: bool = True,
    keep_truth: bool = True,
) -> Iterator[Scripted]:
    """Serve `scripts` (by name; `default` for the rest) while the block runs. `phases`: how many, spread over how many ns.

    `undisturbed` runs it before every other program of the machine (needs the right to do so): for benchmarks only.
    """
    job = {
        "scripts": {"default": Answer().script().to_json()}
        | {name: s.to_json() for name, s in (scripts or {}).items()},
        "pages": {"/v1/models": MODELS} | {path: list(told) for path, told in (pages or {}).items()},
        "refuses": list(refuses),
        "tls": list(tls) if tls else None,
        "phases": phases[0],
        "phase_ns": phases[1],
        "keep_bodies": keep_bodies,
        "keep_truth": keep_truth,
    }
    command = [sys.executable, "-m", "tests.support.scripted_server.server"]
    if cpu is not None:
        command = ["taskset", "-c", str(cpu), *command]
    if undisturbed:
        command = ["chrt", "--rr", "15", *command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            port = json.loads(process.stdout.readline())["port"]
            server = Scripted(f"{'https' if tls else 'http'}://127.0.0.1:{port}", process)
            yield server
            server.stop()
        finally:
            process.kill()
