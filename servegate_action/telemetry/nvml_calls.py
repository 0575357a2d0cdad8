"""Single NVML calls whose shape needs care, and how an error of any call becomes a value.

Traps, all of the binding or of the driver: a field has its own return code inside a call that succeeds; names without a
suffix call a versioned symbol that an old driver lacks; the binding's mismatch error is no `NVMLError`; memory needs
version 2, because version 1's `used` contains the driver's reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from servegate_action.telemetry.nvml_errors import FUNCTION_NOT_FOUND, LIBRARY_MISMATCH, Failure

T = TypeVar("T")


def attempt(call: Callable[..., T], *arguments: object) -> T | Failure:
    """One NVML call; its error as a value. The mismatch error of the binding is no `NVMLError`, so both are caught."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        return Failure(code=int(error.value), text=str(error))
    except pynvml.NVMLLibraryMismatchError as error:
        return Failure(code=LIBRARY_MISMATCH, text=str(error))


def total_memory(handle: Any) -> int:  # noqa: ANN401 - pynvml has no types
    """Bytes on the board."""
    value = attempt(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).total)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total if isinstance(value, Failure) else value)


def field_milliwatts(handle: Any) -> int:  # noqa: ANN401
    """Field 186. The call succeeds as a whole even when the field does not: each value has its own return code."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def uncorrected_errors(handle: Any) -> int:  # noqa: ANN401
    """Uncorrected ECC errors since the driver was loaded."""
    return int(
        pynvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )


def process_ids(handle: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Host pids with a compute context. Drivers before 510 lack the third version of the call."""
    found = attempt(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if isinstance(found, Failure):
        if found.code not in (FUNCTION_NOT_FOUND, LIBRARY_MISMATCH):
            raise pynvml.NVMLError(found.code)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return tuple(sorted({int(process.pid) for process in found}))


def mig_enabled(handle: Any) -> bool:  # noqa: ANN401
    """Whether the board is cut into instances now."""
    mode = attempt(pynvml.nvmlDeviceGetMigMode, handle)
    return not isinstance(mode, Failure) and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def instances(handle: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The board's MIG instances that can be seen from here; numbers without an instance are passed over."""
    most = attempt(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    found = (
        attempt(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        for index in range(0 if isinstance(most, Failure) else most)
    )
    return tuple(one for one in found if not isinstance(one, Failure))
