"""Was the accelerator free before the first launch?

The floor of a run (bare power P0, memory M0) is read before anything is launched; a process that is on a GPU then is a
stranger's, and it would stay there through every round, on both sides, unnoticed by a look for newcomers. Of an endpoint
that already runs, the process is the stack's own, so that nothing can be said. A CPU always has other processes.
"""

from __future__ import annotations

from servegate_action.analysis.findings import invalid_if
from servegate_action.analysis.judgement import HardCheck
from servegate_action.config.models import Config
from servegate_action.records import Recording, Side


def tenant_check(config: Config, recording: Recording) -> list[HardCheck]:
    """No process of somebody else on the GPUs; no check where nothing was read or nothing could be told."""
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
