"""What a real NVIDIA GPU does with servegate's telemetry: one run, about 75 s, reads only.

    python -m benchmarks.gpu_check [--seconds 60] [--json FILE] [--load COMMAND …]

Five parts: the counters that exist; how long each NVML call takes; how often the energy counter and the power reading
change; whether GPM may be used; and the sampler process itself beside `nvidia-smi`, compared device by device. `--load`
starts a command for the length of the comparison (an engine under load, a matrix multiplication): without one an idle GPU
is compared. Each finding is a line that says ok, or what is not. Exit status 1 when one is not ok. Needs nothing but
servegate itself; changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pynvml

from servegate_action import telemetry
from servegate_action.analysis.disturbances import disturbed
from servegate_action.analysis.telemetry_window import Span, TelemetryWindow, window
from servegate_action.errors import ServegateError
from servegate_action.records import Absent, TelemetrySample, TelemetryStatic
from servegate_action.telemetry.nvml_calls import attempt, field_milliwatts, process_ids, uncorrected_errors
from servegate_action.telemetry.nvml_errors import Failure
from servegate_action.telemetry.nvml_gpm import Gpm

CALLS = 200
SMI_COLUMNS = ("uuid", "power.draw", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")


@dataclass(slots=True)
class Findings:
    """What was seen, and what is not as it should be."""

    facts: dict[str, object] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def check(self, good: bool, text: str) -> None:
        """One line."""
        print(f"{'ok  ' if good else 'NOT '} {text}", flush=True)
        if not good:
            self.wrong.append(text)


def main() -> int:
    """All parts; 1 when something is not as it should be, 5 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write everything that was seen")
    parser.add_argument("--load", nargs=argparse.REMAINDER, default=[], help="a command to run meanwhile")
    options = parser.parse_args()
    findings = Findings()
    try:
        telemetry.choose("nvidia")
        compare(findings, options.seconds, options.load)
    except ServegateError as error:
        print(error)
        return 5
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        latency(findings, uuid, handle)
        refresh(findings, uuid, handle)
        gpm(findings, uuid, handle)
    pynvml.nvmlShutdown()
    if options.json is not None:
        options.json.write_text(json.dumps({"facts": findings.facts, "wrong": findings.wrong}, indent=1))
    return 1 if findings.wrong else 0


# ---------------------------------------------------------------- single calls


def latency(findings: Findings, uuid: str, handle: Any) -> None:  # noqa: ANN401 - pynvml has no types
    """Median and largest of 200 calls each, in µs."""
    calls: dict[str, Callable[[], object]] = {
        "TotalEnergyConsumption": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "field 186": lambda: field_milliwatts(handle),
        "PowerUsage": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "UtilizationRates": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "MemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        "ClockInfo": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "Temperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "ClocksEventReasons": lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "TotalEccErrors": lambda: uncorrected_errors(handle),
        "ComputeRunningProcesses": lambda: process_ids(handle),
    }
    for name, call in calls.items():
        first = attempt(call)
        if isinstance(first, Failure):
            print(f"     {uuid} {name}: {first.about(name)}")
            findings.facts[f"{uuid} {name}"] = first.about(name)
            continue
        taken = sorted(microseconds(call) for _ in range(CALLS))
        median, largest = statistics.median(taken), taken[-1]
        findings.facts[f"{uuid} {name} µs"] = {"median": median, "max": largest}
        findings.check(median < 10_000, f"{uuid} {name}: median {median:.0f} µs, largest of {CALLS} {largest:.0f} µs")


def microseconds(call: Callable[[], object]) -> float:
    """One call."""
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) / 1000


def refresh(findings: Findings, uuid: str, handle: Any, seconds: float = 3.0) -> None:  # noqa: ANN401
    """Time between two changes of a counter that is read as fast as it can be."""
    readings: dict[str, Callable[[], int]] = {
        "energy": lambda: int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
        "field 186": lambda: field_milliwatts(handle),
    }
    for name, read in readings.items():
        value = attempt(read)
        if isinstance(value, Failure):
            continue
        changes: list[float] = []
        started = last = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds:
            latest = read()
            if latest != value:
                changes.append(now - last)
                value, last = latest, now
        gaps = changes[1:]
        text = (
            f"changes every {statistics.median(gaps) * 1e3:.0f} ms (largest {max(gaps) * 1e3:.0f} ms)"
            if gaps
            else "never changed"
        )
        findings.facts[f"{uuid} {name} refresh"] = text
        findings.check(bool(gaps) and max(gaps) < 1.0, f"{uuid} {name}: {text} in {seconds:.0f} s")


def gpm(findings: Findings, uuid: str, handle: Any) -> None:  # noqa: ANN401
    """Support, permission, one value over a second."""
    opened = attempt(Gpm, handle)
    if isinstance(opened, Failure):
        findings.facts[f"{uuid} GPM"] = opened.about("nvmlGpmSampleGet")
        print(f"     {uuid} GPM: {opened.about('nvmlGpmSampleGet')}")
        return
    if not opened.supported:
        findings.facts[f"{uuid} GPM"] = "not supported"
        print(f"     {uuid} GPM: not supported by this GPU (Hopper and newer have it)")
        return
    time.sleep(1.0)
    value = attempt(opened.percent)
    opened.close()
    findings.facts[f"{uuid} GPM"] = value.about("nvmlGpmMetricsGet") if isinstance(value, Failure) else value
    findings.check(not isinstance(value, Failure), f"{uuid} GPM SM_UTIL over 1 s: {findings.facts[f'{uuid} GPM']}")


# ---------------------------------------------------------------- the sampler beside nvidia-smi


def compare(findings: Findings, seconds: float, load: Sequence[str]) -> None:
    """The sampler process and `nvidia-smi -lms 1000` over the same stretch."""
    with tempfile.TemporaryDirectory(prefix="servegate-gpu-") as name, ExitStack() as running:
        path, page = Path(name) / "telemetry.jsonl", Path(name) / "smi.csv"
        if load:
            running.callback(ended, subprocess.Popen(load, stdout=subprocess.DEVNULL))
        smi = nvidia_smi(page)
        if smi is not None:
            running.callback(ended, smi)
        sampler = running.enter_context(telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path))
        process = next(
            child for child in psutil.Process().children() if "servegate_action.telemetry" in child.cmdline()
        )
        before, started = process.cpu_times(), time.monotonic_ns()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(1.0)
            sampler.check()
        after, ended_ns = process.cpu_times(), time.monotonic_ns()
        static, lines = sampler.static, path.read_bytes().split(b"\n")[1:-1]
        theirs = smi_means(page) if smi is not None else {}
    samples = [TelemetrySample.model_validate_json(line) for line in lines]
    counters(findings, static)
    share = (after.user + after.system - before.user - before.system) / ((ended_ns - started) / 1e9)
    findings.facts["sampler CPU share of a core"] = share
    findings.check(
        share < 0.01, f"the sampler takes {share:.2%} of a core at {len(samples)} samples in {seconds:.0f} s"
    )
    gaps = [(later.t_ns - earlier.t_ns) / 1e6 for earlier, later in pairwise(samples)]
    findings.check(max(gaps) < 1000, f"samples are {statistics.median(gaps):.1f} ms apart, at most {max(gaps):.0f} ms")
    whole = window(static, samples, start_ns=samples[0].t_ns, end_ns=samples[-1].t_ns)
    energy(findings, whole)
    for text in disturbed(Span.of(static, samples, samples[0].t_ns, samples[-1].t_ns)):
        print(f"     {text}")
    for device in static.devices:
        against(findings, device.uuid, ours(samples, device.uuid), theirs.get(device.uuid, {}))


def counters(findings: Findings, static: TelemetryStatic) -> None:
    """Which exist."""
    findings.facts["static"] = static.model_dump(mode="json")
    print(f"     driver {static.driver}, CUDA {static.cuda}, {', '.join(device.name for device in static.devices)}")
    for name in ("energy", "power", "utilization", "memory", "throttle"):
        value = getattr(static, f"{name}_counter")
        findings.check(not isinstance(value, Absent), f"{name}: {value.absent if isinstance(value, Absent) else value}")
    for note in static.notes:
        print(f"     {note}")


def energy(findings: Findings, whole: TelemetryWindow) -> None:
    """The counter against the integrated readings."""
    findings.facts["window"] = {name: str(getattr(whole, name)) for name in whole.__dataclass_fields__}
    findings.check(
        not isinstance(whole.energy_mj, Absent), f"energy {whole.energy_mj} mJ, mean power {whole.power_w} W"
    )
    apart = [note for note in whole.notes if "apart" in note]
    findings.check(not apart, apart[0] if apart else "the energy counter and the power readings agree within 5 %")


def nvidia_smi(page: Path) -> subprocess.Popen[bytes] | None:
    """Another reader of the same counters."""
    if shutil.which("nvidia-smi") is None:
        print("     there is no nvidia-smi to compare with")
        return None
    query = ["nvidia-smi", f"--query-gpu={','.join(SMI_COLUMNS)}", "--format=csv,noheader,nounits", "-lms", "1000"]
    with page.open("wb") as file:
        return subprocess.Popen(query, stdout=file)


def smi_means(page: Path) -> dict[str, dict[str, float]]:
    """Means per device and column; columns that are no numbers (`[N/A]`) are left out."""
    found: dict[str, dict[str, list[float]]] = {}
    with page.open() as file:
        for row in csv.reader(file):
            if len(row) != len(SMI_COLUMNS):
                continue
            for name, text in zip(SMI_COLUMNS[1:], row[1:], strict=True):
                try:
                    found.setdefault(row[0].strip(), {}).setdefault(name, []).append(float(text))
                except ValueError:
                    continue
    return {
        uuid: {name: statistics.fmean(values) for name, values in columns.items()} for uuid, columns in found.items()
    }


def ours(samples: Sequence[TelemetrySample], uuid: str) -> dict[str, float]:
    """The same columns from the samples, in nvidia-smi's units."""
    devices = [device for sample in samples for device in sample.devices if device.uuid == uuid]
    columns = {
        "power.draw": [device.power_mw / 1000 for device in devices if device.power_mw is not None],
        "memory.used": [device.memory_bytes / 2**20 for device in devices if device.memory_bytes is not None],
        "clocks.sm": [float(device.sm_clock_mhz) for device in devices if device.sm_clock_mhz is not None],
        "temperature.gpu": [float(device.temperature_c) for device in devices if device.temperature_c is not None],
        "utilization.gpu": [device.utilization_percent for device in devices if device.utilization_percent is not None],
    }
    return {name: statistics.fmean(values) for name, values in columns.items() if values}


def against(findings: Findings, uuid: str, mine: dict[str, float], theirs: dict[str, float]) -> None:
    """Power, memory and clock within 5 % (memory: or 64 MiB), temperature within 3 °C; utilization is only shown."""
    limits = {
        "power.draw": (0.05, 2.0),
        "memory.used": (0.05, 64.0),
        "clocks.sm": (0.05, 30.0),
        "temperature.gpu": (0.0, 3.0),
    }
    findings.facts[f"{uuid} means"] = {"servegate": mine, "nvidia-smi": theirs}
    for name in sorted(set(mine) & set(theirs)):
        relative, absolute = limits.get(name, (1.0, 100.0))
        allowed = max(relative * abs(theirs[name]), absolute)
        text = f"{uuid} {name}: {mine[name]:.1f} here, {theirs[name]:.1f} in nvidia-smi"
        findings.check(abs(mine[name] - theirs[name]) <= allowed, text)


def ended(process: subprocess.Popen[bytes]) -> None:
    """Stop what was started here."""
    process.terminate()
    process.wait(10)


if __name__ == "__main__":
    sys.exit(main())
