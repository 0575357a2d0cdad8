"""What NVML's error codes mean for a measurement, and what a user can do about each.

Codes and their meaning: nvml.h, `nvmlReturn_t`. Three kinds matter while sampling: a counter that will never answer
(said once, absent from then on), a device that is gone (the measurement ends), and a hiccup (the next tick asks again).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from servegate_action.errors import AcceleratorLost, TelemetryUnavailable

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 3, 4, 6, 9, 12
FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH = 13, 15, 16, 18
LIBRARY_MISMATCH = -1
"""Our own code for `pynvml.NVMLLibraryMismatchError`, which is no `NVMLError`: the driver lacks a call of this binding."""

HOW_TO_GIVE_A_GPU = (
    "a container action gets no GPU of its own: make nvidia the runner's default container runtime with "
    "NVIDIA_VISIBLE_DEVICES=all, run servegate on the runner itself (pip), or set `accelerator: cpu` if no GPU is involved"
)


class Fate(Enum):
    """What an error of one call means for the counter behind it."""

    ABSENT = "absent for good"
    LOST = "the device is gone"
    TRANSIENT = "next tick"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed NVML call, in words."""

    code: int
    text: str

    @property
    def fate(self) -> Fate:
        """3, 4, 13 and a mismatched binding never get better; 15 and 16 are the end; everything else may pass."""
        if self.code in (NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, LIBRARY_MISMATCH):
            return Fate.ABSENT
        return Fate.LOST if self.code in (GPU_IS_LOST, RESET_REQUIRED) else Fate.TRANSIENT

    def about(self, counter: str) -> str:
        """Why one counter has no value."""
        match self.code:
            case 3:
                return f"{counter} is not supported by this GPU (NVML error 3)"
            case 4:
                return f"{counter} needs a privilege that this process lacks (NVML error 4): {privilege(counter)}"
            case 13 | -1:
                return f"{counter} does not exist in this driver, which is older than the call (NVML error 13)"
            case _:
                return f"{counter}: {self.text} (NVML error {self.code})"


def privilege(counter: str) -> str:
    """Which privilege a counter needs."""
    if "Gpm" in counter:
        return (
            "profiling counters are restricted to administrators; load the nvidia module with "
            "NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN"
        )
    return "run as root, or with read and write access to /dev/nvidiactl and /dev/nvidia*"


def unavailable(failure: Failure) -> TelemetryUnavailable:
    """No telemetry at all: `nvmlInit` failed."""
    match failure.code:
        case 4:
            return TelemetryUnavailable(
                "NVML may not be used by this user (NVML error 4)",
                why="/dev/nvidiactl or a /dev/nvidia* file is not readable and writable here",
                next_step="run as a user of the group that owns /dev/nvidia*, or give the container those devices",
            )
        case 9:
            return TelemetryUnavailable(
                "the NVIDIA driver is not loaded (NVML error 9)",
                why="the kernel module is missing on the host, or its devices are not given to this container",
                next_step=f"check `nvidia-smi` on the host; {HOW_TO_GIVE_A_GPU}",
            )
        case 12:
            return TelemetryUnavailable(
                "libnvidia-ml.so.1 was not found (NVML error 12): no GPU can be seen from here",
                why="there is no NVIDIA driver on this machine, or this container was started without a GPU",
                next_step=HOW_TO_GIVE_A_GPU,
            )
        case 18:
            return TelemetryUnavailable(
                "the NVIDIA library and the loaded kernel module are of different versions (NVML error 18)",
                why="the driver was updated while the old module stayed loaded",
                next_step="reboot the runner (or unload and load the nvidia modules)",
            )
        case _:
            return TelemetryUnavailable(
                f"NVML could not be started: {failure.text} (NVML error {failure.code})",
                next_step="check `nvidia-smi` on the host",
            )


def lost(uuid: str, failure: Failure) -> AcceleratorLost:
    """A device is gone."""
    return AcceleratorLost(
        f"GPU {uuid} is gone: {failure.text} (NVML error {failure.code})",
        why="it fell off the bus or needs a reset (`dmesg | grep Xid` on the host names the reason)",
        next_step="reset the GPU or reboot the runner, then run again; what was measured so far is kept",
    )
