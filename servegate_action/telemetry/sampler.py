"""The parent's side: choose the backend, run a sampler beside a launch, notice when it or a device is gone.

The file is the sampler's own (`telemetry.jsonl`: the static record, then samples as they happen). Nothing here decides
what a sample means. Errors of the child arrive as events and are raised as members of the family.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from servegate_action.errors import AcceleratorLost, ServegateError, StorageFailed, TelemetryUnavailable
from servegate_action.records import DeviceSample, TelemetrySample, TelemetryStatic
from servegate_action.telemetry.child import Child, Host, LocalHost

Kind = Literal["nvidia", "cpu"]
Pids = Callable[[], tuple[int, ...]]

INTERVAL_NS: dict[Kind, int] = {"nvidia": 100_000_000, "cpu": 250_000_000}
"""On a CPU the sampler shares its cores with the stack, and the kernel counts CPU time in steps of 10 ms."""
START_TIMEOUT_S = 60.0
FLOOR_INTERVAL_NS = 100_000_000
STATIC_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 2.0
SILENCE_S = 10.0
"""A driver that has not answered for so long has stopped answering; ordinary hiccups are below a second."""


@dataclass(slots=True)
class Sampler:
    """A running sampler and its file."""

    static: TelemetryStatic
    path: Path
    _child: Child
    _size: int = 0
    _grown: float = field(default_factory=time.monotonic)
    _lost: AcceleratorLost | None = None

    def check(self) -> None:
        """Raise AcceleratorLost when a device is gone or the driver is silent, and when the sampler itself has died."""
        self._listen(0.0)
        if self._lost is not None:
            raise self._lost
        status = self._child.poll()
        if status is not None:
            raise TelemetryUnavailable(
                f"the sampler process ended early ({_ended(status)})",
                why="it was killed from outside, or ran out of memory",
                next_step=f"see the end of {self.path}",
            )
        size, now = self.path.stat().st_size, time.monotonic()
        if size != self._size:
            self._size, self._grown = size, now
        elif now - self._grown > SILENCE_S:
            raise AcceleratorLost(
                f"no telemetry for {SILENCE_S:.0f} s: the driver has stopped answering",
                why="a hung GPU or driver (`dmesg | grep Xid` on the host names the reason)",
                next_step="reset the GPU or reboot the runner, then run again; what was measured so far is kept",
            )

    def latest(self) -> TelemetrySample | None:
        """The last whole sample in the file; None before the first."""
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 65536))
            lines = file.read().split(b"\n")[:-1]
        try:
            return TelemetrySample.model_validate_json(lines[-1]) if lines else None
        except ValidationError:
            return None

    def follow(self, roots: Sequence[int]) -> None:
        """From now on the stack is these processes and their descendants."""
        self._child.send(json.dumps({"roots": list(roots)}))

    def _listen(self, timeout_s: float) -> None:
        for line in self._child.events(timeout_s):
            event = _event(line)
            if event.get("event") == "problem":
                raise _translate(event)
            if event.get("event") != "error":
                continue
            what = str(event["what"])
            seen = event["devices"]
            missing = {device.uuid for device in self.static.devices} - set(seen if isinstance(seen, list) else ())
            if missing:
                self._lost = AcceleratorLost(
                    what,
                    why="it fell off the bus or needs a reset (`dmesg | grep Xid` on the host names the reason)",
                    next_step="reset the GPU or reboot the runner, then run again; what was measured so far is kept",
                )


@contextlib.contextmanager
def sampling(  # noqa: PLR0913 - the border of the room, all by keyword
    *,
    backend: Kind,
    uuids: tuple[str, ...],
    pids: Pids | None,
    path: Path,
    interval_ns: int | None = None,
    gpu_count: int | None = None,
    host: Host | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Iterator[Sampler]:
    """Sample into `path` for as long as the block lasts.

    `pids` names the stack's processes. A CPU is sampled on their behalf; on a GPU they tell its processes from a stranger's,
    and who is on the other ones. `gpu_count` is how many GPUs the stack holds: when no UUID is given and another number is visible, the mean over all
    of them would hide what the stack's own do.
    """
    interval_ns = interval_ns or INTERVAL_NS[backend]
    arguments = ["sample", "--backend", backend, "--interval-ns", str(interval_ns)]
    child = _start(host, [*arguments, *(f"--uuid={uuid}" for uuid in uuids)], path)
    try:
        _await_ready(child, start_timeout_s)
        sampler = Sampler(static=_static(path), path=path, _child=child)
        if backend == "nvidia" and gpu_count is not None:
            _check_count(sampler.static, gpu_count)
        with _following(sampler, pids):
            yield sampler
    finally:
        child.stop(STOP_TIMEOUT_S)


def _check_count(static: TelemetryStatic, expected: int) -> None:
    uuids = [device.uuid for device in static.devices if not str(device.mig).startswith("board")]
    if len(uuids) != expected:
        raise TelemetryUnavailable(
            f"the stack is said to hold {expected} GPU{'s' if expected != 1 else ''}, but {len(uuids)} would be measured",
            why=f"visible or named: {', '.join(uuids)}",
            next_step="name the stack's own in gpu_uuids (`nvidia-smi -L` lists them), or correct gpu_count",
        )


def choose(
    accelerator: Literal["auto", "nvidia", "cpu"], *, gpu_expected: bool = False, host: Host | None = None
) -> Kind:
    """Which backend to use. `auto` is `cpu` only where no NVIDIA library exists at all and no stack asks for a GPU.

    A GPU that is there but cannot be read is an error, never a reason to measure the CPU instead.
    """
    if accelerator == "cpu":
        return "cpu"
    with tempfile.TemporaryDirectory(prefix="servegate-probe-") as folder:
        path = Path(folder) / "probe.jsonl"
        child = _start(host, ["probe", "--backend", "nvidia"], path)
        try:
            _await_end(child)
        except TelemetryUnavailable as error:
            if accelerator == "auto" and not gpu_expected and "NVML error 12" in error.what:
                return "cpu"
            raise
        finally:
            child.stop(STOP_TIMEOUT_S)
    return "nvidia"


def floor(backend: Kind, uuids: tuple[str, ...], *, samples: int = 20, host: Host | None = None) -> TelemetrySample:
    """The accelerator before any launch: median power P0, largest memory M0, all processes seen, over two seconds."""
    with tempfile.TemporaryDirectory(prefix="servegate-floor-") as folder:
        path = Path(folder) / "floor.jsonl"
        with sampling(
            backend=backend, uuids=uuids, pids=None, path=path, interval_ns=FLOOR_INTERVAL_NS, host=host
        ) as sampler:
            deadline = time.monotonic() + START_TIMEOUT_S
            while len(seen := _samples(path)) < samples:
                sampler.check()
                if time.monotonic() > deadline:
                    raise TelemetryUnavailable(
                        f"only {len(seen)} of {samples} samples arrived in {START_TIMEOUT_S:.0f} s"
                    )
                time.sleep(0.05)
    return summarize(seen)


def summarize(samples: Sequence[TelemetrySample]) -> TelemetrySample:
    """Several samples of an idle accelerator as one. Energy and utilization are left out: they belong to a span."""
    around = [sample.others for sample in samples if sample.others is not None]
    return TelemetrySample(
        t_ns=samples[-1].t_ns,
        devices=_by_uuid([device for sample in samples for device in sample.devices]),
        others=_by_uuid([device for others in around for device in others]) if around else None,
        error="; ".join(sample.error for sample in samples if sample.error is not None) or None,
    )


def _by_uuid(seen: Sequence[DeviceSample]) -> tuple[DeviceSample, ...]:
    uuids = dict.fromkeys(device.uuid for device in seen)
    return tuple(_resting(uuid, [device for device in seen if device.uuid == uuid]) for uuid in uuids)


def _resting(uuid: str, seen: Sequence[DeviceSample]) -> DeviceSample:
    power = [device.power_mw for device in seen if device.power_mw is not None]
    memory = [device.memory_bytes for device in seen if device.memory_bytes is not None]
    listed = [device.process_ids for device in seen if device.process_ids is not None]
    return DeviceSample(
        uuid=uuid,
        power_mw=round(statistics.median(power)) if power else None,
        memory_bytes=max(memory, default=None),
        process_ids=tuple(sorted({pid for pids in listed for pid in pids})) if listed else None,
    )


@contextlib.contextmanager
def _following(sampler: Sampler, pids: Pids | None) -> Iterator[None]:
    """Tell the sampler about the stack's processes as they come (a CPU's finds descendants by itself).

    Asked twice a second until there is one, then every five seconds, so that a measured client is left alone.
    """
    if pids is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        known: tuple[int, ...] = ()
        while not ended.wait(5.0 if known else 0.5):
            try:
                found = pids()
            except ServegateError:  # the stack is gone; whoever launched it says so
                continue
            if found != known:
                sampler.follow(found)
                known = found

    thread = threading.Thread(target=watch, name="servegate-telemetry-pids", daemon=True)
    first = pids()
    if first:
        sampler.follow(first)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# ---------------------------------------------------------------- talking to the child


def _start(host: Host | None, arguments: Sequence[str], path: Path) -> Child:
    try:
        return (host or LocalHost()).start(arguments, output=path)
    except OSError as error:
        raise StorageFailed(f"telemetry cannot be written to {path}: {error.strerror}") from error


def _await_ready(child: Child, timeout_s: float) -> None:
    for event in _until(child, timeout_s, lambda events: any(event.get("event") == "ready" for event in events)):
        if event.get("event") == "problem":
            raise _translate(event)
        if event.get("event") == "ready":
            return
    raise TelemetryUnavailable(f"the sampler process ended before its first sample ({_ended(child.poll())})")


def _await_end(child: Child) -> None:
    for event in _until(child, START_TIMEOUT_S, lambda _: child.poll() is not None):
        if event.get("event") == "problem":
            raise _translate(event)
    if child.poll() != 0:
        raise TelemetryUnavailable(f"the probe for a GPU failed ({_ended(child.poll())})")


def _until(child: Child, timeout_s: float, done: Callable[[list[dict[str, object]]], bool]) -> list[dict[str, object]]:
    """Events up to the moment when `done`, a problem, or the child's end; raises when that takes too long."""
    deadline = time.monotonic() + timeout_s
    events: list[dict[str, object]] = []
    while True:
        ended = child.poll() is not None
        events += map(_event, child.events(0.0 if ended else 0.5))
        if ended or done(events) or any(event.get("event") == "problem" for event in events):
            return events
        if time.monotonic() > deadline:
            raise TelemetryUnavailable(
                f"the accelerator's driver did not answer within {timeout_s:.0f} s",
                why="a hung GPU or driver (`nvidia-smi` would hang as well)",
                next_step="reset the GPU or reboot the runner",
            )


def _event(line: str) -> dict[str, object]:
    """An event of ours, or foreign text (a traceback, a warning of the dynamic linker) as one."""
    try:
        event = json.loads(line)
    except ValueError:
        return {"event": "text", "what": line}
    return event if isinstance(event, dict) else {"event": "text", "what": line}


_KINDS: dict[str, type[ServegateError]] = {
    "TelemetryUnavailable": TelemetryUnavailable,
    "AcceleratorLost": AcceleratorLost,
    "StorageFailed": StorageFailed,
}


def _translate(event: dict[str, object]) -> ServegateError:
    kind = _KINDS.get(str(event.get("kind")), TelemetryUnavailable)
    return kind(str(event.get("what")), why=str(event.get("why", "")), next_step=str(event.get("next", "")))


def _ended(status: int | None) -> str:
    if status is None:
        return "still running"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _static(path: Path, *, within_s: float = STATIC_TIMEOUT_S) -> TelemetryStatic:
    """The file's first line. It may still be arriving when the sampler already says, by another way, that it is ready."""
    deadline = time.monotonic() + within_s
    while True:
        with path.open("rb") as file:
            line = file.readline()
        if line.endswith(b"\n"):
            return TelemetryStatic.model_validate_json(line)
        if time.monotonic() > deadline:
            raise TelemetryUnavailable(f"the sampler's first line did not arrive whole within {within_s:.0f} s")
        threading.Event().wait(0.01)


def _samples(path: Path) -> list[TelemetrySample]:
    lines = path.read_bytes().split(b"\n")[1:-1]
    return [TelemetrySample.model_validate_json(line) for line in lines]
