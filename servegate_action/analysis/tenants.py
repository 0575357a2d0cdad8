"""Is the accelerator free before anything is measured on it?

A stranger's process, or power clearly above the bare floor, makes both stacks' numbers worthless. The floor of a run
(bare power P0, memory M0) is read before anything is launched; a process that is on a GPU then is a stranger's, and would
stay there through every round, on both sides, unnoticed by a look for newcomers. Before each launch the accelerator is
looked at again. Process ids are the host's, and none of ours can be among them before a launch. An empty list proves
nothing (inside a container the driver may hide other processes), so power is looked at as well.
"""

from __future__ import annotations

from servegate_action.analysis.findings import invalid_if
from servegate_action.analysis.judgement import HardCheck
from servegate_action.config.models import Config
from servegate_action.records import Recording, Side, TelemetrySample

POWER_SLACK_MW = 10_000


def tenants(now: TelemetrySample, *, bare: TelemetrySample) -> tuple[str, ...]:
    """What speaks against a launch at this moment, one sentence each; none when the accelerator is free.

    `bare` is the floor of the run. A CPU is never free of other processes, so nothing is said about one.
    """
    before = {device.uuid: device.power_mw for device in bare.devices}
    findings: list[str] = []
    for device in now.devices:
        if device.uuid == "cpu":
            continue
        if device.process_ids:
            pids = ", ".join(map(str, device.process_ids))
            findings.append(f"before the launch {device.uuid} was used by another process (host pid {pids})")
        floor_mw = before.get(device.uuid)
        if floor_mw is not None and device.power_mw is not None and device.power_mw > floor_mw + POWER_SLACK_MW:
            findings.append(
                f"before the launch {device.uuid} drew {device.power_mw / 1000:.1f} W, "
                f"{(device.power_mw - floor_mw) / 1000:.1f} W above its bare {floor_mw / 1000:.1f} W"
            )
    return tuple(findings)


def tenant_check(config: Config, recording: Recording) -> list[HardCheck]:
    """No process of somebody else on the GPUs before the first launch; no check where nothing was read.

    Of an endpoint that already runs, the process is the stack's own, so that nothing can be said.
    """
    running = any(config.stacks.of(side).endpoint is not None for side in Side)
    if recording.accelerator != "nvidia" or recording.floor is None or running:
        return []
    listed = [device for device in recording.floor.devices if device.process_ids is not None]
    if not listed:
        return []
    findings = [
        f"{device.uuid} was used by another process before the first launch (host pid {', '.join(map(str, pids))})"
        for device in listed
        if (pids := device.process_ids)
    ]
    return [
        invalid_if(
            "tenants",
            findings,
            good="no other process was on the accelerators before the first launch",
            advice="end what else runs on these GPUs, or name free ones in gpu_uuids",
        )
    ]
