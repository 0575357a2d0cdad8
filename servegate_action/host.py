"""The machine that measures, as the recording keeps it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from servegate_action.records import Absent, Host, MaybeStr


def this_host() -> Host:
    """The machine that measures."""
    return Host(
        hostname=platform.node(),
        kernel=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cpus=psutil.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        cpu_governor=_governor(),
        load_average=round(os.getloadavg()[0], 2),
        python=platform.python_version(),
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _governor() -> MaybeStr:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return Absent(absent="the kernel does not offer a CPU frequency governor here")
