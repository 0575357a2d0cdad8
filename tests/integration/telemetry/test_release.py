"""Scale-to-zero of real processes, on the CPU: one that exits when idle, one that stays, one that leaves a child behind.

The ten seconds that everything must stay released pass twenty times faster here: the clock and the times of the samples
are scaled together, everything else is as it is in a run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from servegate_action import telemetry
from servegate_action.launch.ports import is_open
from servegate_action.records import Release, TelemetrySample

SPEED = 20
SERVER = """
import http.server, os, signal, subprocess, sys, threading
idle_s, helper = float(sys.argv[1]), sys.argv[2] == "helper"
ballast = bytearray(os.urandom(1) * 150_000_000)
if helper:
    subprocess.Popen([sys.executable, "-c", "x = bytearray(b'1' * 150_000_000); print(1, flush=True); import signal; signal.pause()"])
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
print(server.server_address[1], flush=True)
if idle_s > 0:
    threading.Timer(idle_s, lambda: os._exit(0)).start()
server.serve_forever()
"""


class FastClock:
    """Twenty seconds in one."""

    def __init__(self) -> None:
        self._start = time.monotonic_ns()

    def scaled(self, t_ns: int) -> int:
        return self._start + (t_ns - self._start) * SPEED

    def now_ns(self) -> int:
        return self.scaled(time.monotonic_ns())

    def wait(self, nanoseconds: int) -> None:
        time.sleep(nanoseconds / SPEED / 1e9)


@contextmanager
def serving(idle_s: float, helper: str = "alone") -> Iterator[tuple[psutil.Process, int]]:
    child = subprocess.Popen([sys.executable, "-c", SERVER, str(idle_s), helper], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    port = int(child.stdout.readline())
    process = psutil.Process(child.pid)
    tree = [process, *process.children(recursive=True)]
    try:
        yield process, port
    finally:
        for member in tree:
            if member.is_running():
                member.kill()
        child.wait()
        child.stdout.close()


def watched(tmp_path: Path, idle_s: float, *, stop: bool, helper: str = "alone") -> Release:
    floor = telemetry.floor("cpu", (), samples=2)
    path = tmp_path / "telemetry.jsonl"
    with serving(idle_s, helper) as (process, port):
        roots = (process.pid, *(child.pid for child in process.children()))
        with telemetry.sampling(
            backend="cpu", uuids=(), pids=lambda: roots, path=path, interval_ns=20_000_000
        ) as sampler:
            until_seen(sampler, roots)
            if stop:
                process.kill()
            clock = FastClock()

            def sample() -> TelemetrySample | None:
                latest = sampler.latest()
                return latest and latest.model_copy(update={"t_ns": clock.scaled(latest.t_ns)})

            return telemetry.watch(
                trigger="stop" if stop else "idle timeout",
                floor=floor,
                clock=clock,
                probes=telemetry.ReleaseProbes(
                    process_gone=lambda: not any(alive(pid) for pid in roots),
                    port_open=lambda: is_open("127.0.0.1", port),
                    devices=[device.uuid for device in sampler.static.devices],
                    sample=sample,
                ),
            )


def until_seen(sampler: telemetry.Sampler, roots: tuple[int, ...]) -> None:
    deadline = time.monotonic() + 30
    while (latest := sampler.latest()) is None or set(latest.devices[0].process_ids or ()) != set(roots):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_exits_when_idle_is_real(tmp_path: Path) -> None:
    found = watched(tmp_path, 0.2, stop=False)
    assert found.real, found.reason
    assert (found.process_gone, found.port_closed, found.memory_released) == (True, True, True)
    assert "power was not seen" in found.reason or found.power_released is True


def test_a_process_that_is_stopped_is_real(tmp_path: Path) -> None:
    assert watched(tmp_path, 0, stop=True).real


def test_a_process_that_keeps_its_memory_is_not_real(tmp_path: Path) -> None:
    found = watched(tmp_path, 0, stop=False)
    assert not found.real
    assert "its processes are still there; its port still accepts connections; memory of cpu is" in found.reason


def test_a_child_that_is_left_behind_keeps_the_memory(tmp_path: Path) -> None:
    found = watched(tmp_path, 0, stop=True, helper="helper")
    assert not found.real
    assert (found.port_closed, found.memory_released) == (True, False)
