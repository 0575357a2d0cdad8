"""What the accelerator said of itself while a stack was measured: power, energy, utilization, memory, clocks, faults.

A sampler *process* writes one JSON line per tick, so that reading a slow driver can neither delay the load generator
nor take the gate down with it. Every raw sample is kept; what a window of samples means is decided elsewhere
(`analysis.telemetry_window`). A counter that does not exist is named with the reason why.

This room refuses to estimate what it cannot read, to map devices by index, to touch an accelerator's settings, and to
judge.
"""

from __future__ import annotations

from servegate_action.telemetry.child import Child, Host, LocalHost, Remote, RemoteHost
from servegate_action.telemetry.page_cache import PageCacheDrop, drop_page_cache
from servegate_action.telemetry.release import ReleaseProbes, Trigger, watch
from servegate_action.telemetry.sampler import Kind, Sampler, choose, floor, sampling

__all__ = [
    "Child",
    "Host",
    "Kind",
    "LocalHost",
    "PageCacheDrop",
    "ReleaseProbes",
    "Remote",
    "RemoteHost",
    "Sampler",
    "Trigger",
    "choose",
    "drop_page_cache",
    "floor",
    "sampling",
    "watch",
]
