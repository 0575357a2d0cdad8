"""Did both stacks run on the same accelerators, as far as that can be seen?

What a sampler watches is this machine's. An endpoint that somebody else started may be served by another machine, or by
another GPU than the one beside it: what cannot be seen must be declared, and is never called the same.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from servegate_action.analysis.findings import invalid_if
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.config.models import Config
from servegate_action.config.stacks import Stack
from servegate_action.records import Absent, DeviceStatic, Recording, Side


def hardware_check(config: Config, recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """The same accelerators under both stacks, unless the configuration says that they need different pools."""
    pools = [config.stacks.of(side).gpu_pool for side in Side]
    declared = None not in pools
    hidden = [side for side in Side if not _seen(config.stacks.of(side), recording, evidence, side)]
    if hidden and not declared:
        whose = f"the {hidden[0]}" if len(hidden) == 1 else "the two stacks"
        return [
            HardCheck(
                name="hardware",
                kind="inconclusive",
                ok=False,
                detail=f"which accelerator serves {whose} cannot be seen: an endpoint may be served by any machine",
                advice="declare gpu_pool for both stacks, or gpu_uuids where the endpoint's GPUs are this machine's",
            )
        ]
    if hidden or (declared and pools[0] != pools[1]):
        return [HardCheck(name="hardware", kind="invalid", ok=True, detail=_as_declared(pools[0], pools[1]))]
    ours, theirs = (_kinds(evidence, side) for side in Side)
    if not ours or not theirs:
        return []
    findings = []
    if ours != theirs:
        findings.append(f"baseline on {_listed(ours)}, candidate on {_listed(theirs)}")
    elif not _shared(_uuids(evidence, Side.BASELINE), _uuids(evidence, Side.CANDIDATE)):
        findings.append("the two stacks ran on different accelerators of the same kind")
    advice = "measure both on the same accelerators, or declare gpu_pool for both stacks"
    return [invalid_if("hardware", findings, good=f"both stacks on {_listed(ours)}", advice=advice)]


def _as_declared(ours: str | None, theirs: str | None) -> str:
    if ours == theirs:
        return f"both stacks in the pool {ours}, as declared"
    return "the two stacks need different pools, as declared"


def _seen(stack: Stack, recording: Recording, evidence: Evidence, side: Side) -> bool:
    """Whether the devices that were sampled are those that serve: servegate started it, or it can be nowhere else."""
    if stack.endpoint is None:
        return True
    if not _is_loopback(urlsplit(stack.endpoint.url).hostname or ""):
        return False
    return recording.accelerator == "cpu" or bool(stack.gpu_uuids) or len(_uuids(evidence, side)) == 1


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _kinds(evidence: Evidence, side: Side) -> set[str]:
    return {_kind(device) for launch in evidence.of(side) for device in _devices(launch)}


def _kind(device: DeviceStatic) -> str:
    """Name and power limit: a GPU at another limit is another GPU."""
    limit = device.power_limit_mw
    return device.name if isinstance(limit, Absent) else f"{device.name} at {limit / 1000:.0f} W"


def _uuids(evidence: Evidence, side: Side) -> set[str]:
    return {device.uuid for launch in evidence.of(side) for device in _devices(launch)}


def _shared(ours: set[str], theirs: set[str]) -> bool:
    """One stack may hold more accelerators than the other, but not others."""
    return ours <= theirs or theirs <= ours


def _devices(launch: Launch) -> tuple[DeviceStatic, ...]:
    return () if isinstance(launch.telemetry, Absent) else launch.telemetry.devices


def _listed(kinds: set[str]) -> str:
    return " and ".join(sorted(kinds))
