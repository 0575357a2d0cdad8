"""The CPU as accelerator: share of the machine's CPUs and resident memory of the stack's process tree, RAPL energy.

For `accelerator: cpu` and the demo. The stack is given as root processes; their descendants are found anew every two
seconds. Utilization is CPU time of the tree over wall time over all logical CPUs (100 % = the whole machine), between
two ticks. A descendant that appears later is counted from its start; what a process does after the last tick that saw it
alive is lost. It refuses to call any of this GPU utilization.
"""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from servegate_action.records import Absent, DeviceSample, DeviceStatic, TelemetrySample, TelemetryStatic
from servegate_action.telemetry.rapl import POWERCAP, Rapl, open_rapl

UTILIZATION = "CPU time of the stack's process tree / wall time / all logical CPUs"
MEMORY = "resident memory (RSS) of the stack's process tree"
ENERGY = "RAPL package energy (powercap energy_uj), the whole machine's"
POWER = "difference of the RAPL package energy between two ticks, the whole machine's"
SCAN_EVERY_NS = 2_000_000_000
UUID = "cpu"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ProcessTree:
    """Root processes, their descendants, and the CPU time last seen of each."""

    roots: tuple[psutil.Process, ...] = ()
    members: list[psutil.Process] = field(default_factory=list)
    seconds: dict[psutil.Process, float] = field(default_factory=dict)
    scanned_ns: int | None = None
    fresh: bool = True

    def follow(self, pids: Sequence[int]) -> None:
        """Replace the roots; a pid that does not exist (any more) is left out."""
        self.roots = tuple(process for pid in pids if (process := _process(pid)) is not None)
        self.scanned_ns = None
        self.fresh = True

    def scan(self, t_ns: int) -> None:
        """Look for descendants, at most every two seconds: reading all of /proc is the dear part."""
        if self.scanned_ns is not None and t_ns - self.scanned_ns < SCAN_EVERY_NS:
            return
        self.scanned_ns = t_ns
        found: dict[psutil.Process, None] = {}
        for root in self.roots:
            try:
                found.update(dict.fromkeys([root, *root.children(recursive=True)]))
            except psutil.Error:
                continue
        self.members = list(found)

    def read(self) -> tuple[float, int]:
        """(CPU seconds since the last read, resident bytes now).

        Right after `follow`, whatever runs already has a past that is not ours: it counts from now on. A process that
        appears later was started by one that was followed: it counts from its start.
        """
        used, resident = 0.0, 0
        seen: dict[psutil.Process, float] = {}
        for process in self.members:
            read = _seconds_and_bytes(process.pid)
            if read is None:
                continue
            seen[process] = read[0]
            used += seen[process] - self.seconds.get(process, seen[process] if self.fresh else 0.0)
            resident += read[1]
        self.seconds, self.fresh = seen, False
        return used, resident


class CpuBackend:
    """Samples the machine's CPUs on behalf of one process tree."""

    def __init__(self, *, powercap: Path = POWERCAP, cpus: int | None = None) -> None:
        self._rapl = open_rapl(powercap)
        self._cpus = cpus or psutil.cpu_count() or 1
        self._tree = ProcessTree()
        self._last_ns: int | None = None
        self._last_energy: tuple[int, int] | None = None

    def static(self, interval_ns: int) -> TelemetryStatic:
        """One device: all CPUs of the machine."""
        rapl = self._rapl
        device = DeviceStatic(
            uuid=UUID,
            name=f"{cpu_name()} ({self._cpus} logical CPUs)",
            memory_bytes=psutil.virtual_memory().total,
            power_limit_mw=Absent(absent="not read for CPUs"),
            max_sm_clock_mhz=Absent(absent="not read for CPUs"),
            mig=Absent(absent="CPUs have no MIG"),
            ecc=Absent(absent="not read for CPUs"),
        )
        return TelemetryStatic(
            backend="cpu",
            devices=(device,),
            driver=Absent(absent="a CPU has no driver"),
            cuda=Absent(absent="no CUDA on a CPU"),
            energy_counter=ENERGY if isinstance(rapl, Rapl) else rapl,
            power_counter=POWER if isinstance(rapl, Rapl) else rapl,
            utilization_counter=UTILIZATION,
            memory_counter=MEMORY,
            throttle_counter=Absent(absent="not read for CPUs"),
            interval_ns=interval_ns,
            notes=("energy and power are those of the whole machine",) if isinstance(rapl, Rapl) else (),
        )

    def follow(self, roots: Sequence[int]) -> None:
        """The stack is these processes and their descendants."""
        self._tree.follow(roots)

    def sample(self, *, t_ns: int, tick: int) -> TelemetrySample:  # noqa: ARG002 - every counter is read on every tick
        """Utilization is absent while no process of the stack is known, and on the first tick."""
        known = bool(self._tree.seconds)
        self._tree.scan(t_ns)
        used_s, resident = self._tree.read()
        wall_ns = 0 if self._last_ns is None else t_ns - self._last_ns
        self._last_ns = t_ns
        utilization = None
        if wall_ns > 0 and (known or self._tree.seconds):
            utilization = round(min(100.0, used_s * 1e9 / wall_ns / self._cpus * 100.0), 2)
        energy, power, error = self._energy(t_ns)
        device = DeviceSample(
            uuid=UUID,
            power_mw=power,
            energy_mj=energy,
            utilization_percent=utilization,
            memory_bytes=resident,
            process_ids=tuple(process.pid for process in self._tree.seconds),
        )
        return TelemetrySample(t_ns=t_ns, devices=(device,), error=error)

    def _energy(self, t_ns: int) -> tuple[int | None, int | None, str | None]:
        if isinstance(self._rapl, Absent):
            return None, None, None
        try:
            energy = self._rapl.energy_mj()
        except (OSError, ValueError) as error:
            return None, None, f"RAPL: {error}"
        last, self._last_energy = self._last_energy, (t_ns, energy)
        if last is None or t_ns <= last[0]:
            return energy, None, None
        return energy, (energy - last[1]) * 1_000_000_000 // (t_ns - last[0]), None

    def close(self) -> None:
        """Nothing is held open."""


def cpu_name(read: Callable[[], str] = lambda: Path("/proc/cpuinfo").read_text()) -> str:
    """The processor's name as the kernel has it."""
    try:
        lines = read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _seconds_and_bytes(pid: int) -> tuple[float, int] | None:
    """(user + system seconds, resident bytes) of one process; None once it is gone. One read: proc(5), `stat`.

    Whether a pid has been given to another process is looked at by the scan of the tree, every two seconds.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS, int(fields[21]) * mmap.PAGESIZE


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
