"""Is the accelerator free before anything is measured on it?

A stranger's process, or power clearly above the bare floor, makes both stacks' numbers worthless. Process ids are the
host's; none of ours can be among them before a launch. An empty list proves nothing (inside a container the driver may
hide other processes), so power is looked at as well.
"""

from __future__ import annotations

from servegate_action.records import TelemetrySample

POWER_SLACK_MW = 10_000


def foreign_tenants(now: TelemetrySample, *, bare: TelemetrySample | None = None) -> tuple[str, ...]:
    """What speaks against starting: one sentence each, none when the accelerator is free.

    `bare` is the floor of the run (P0), when `now` was taken later, between two launches. A CPU is never free of other
    processes, so nothing is said about one.
    """
    before = {} if bare is None else {device.uuid: device.power_mw for device in bare.devices}
    findings: list[str] = []
    for device in now.devices:
        if device.uuid == "cpu":
            continue
        if device.process_ids:
            pids = ", ".join(str(pid) for pid in device.process_ids)
            findings.append(f"GPU {device.uuid} is used by another process (host pid {pids})")
        floor_mw = before.get(device.uuid)
        if floor_mw is not None and device.power_mw is not None and device.power_mw > floor_mw + POWER_SLACK_MW:
            findings.append(
                f"GPU {device.uuid} draws {device.power_mw / 1000:.1f} W before the launch, "
                f"{(device.power_mw - floor_mw) / 1000:.1f} W above its bare {floor_mw / 1000:.1f} W"
            )
    return tuple(findings)
