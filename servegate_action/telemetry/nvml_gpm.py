"""GPM, the profiling metrics of Hopper and newer: SM_UTIL between two samples of one device.

A value needs two samples more than 100 ms apart. The older of the two is kept and replaced by the newer at each read,
so that consecutive values cover the whole time without a gap. On MIG the samples are those of the GPU instance.
"""

from __future__ import annotations

from typing import Any

import pynvml


class Gpm:
    """SM utilization of one device. Raises what pynvml raises; `supported` is False where the hardware has no GPM."""

    def __init__(self, handle: Any, board: Any = None) -> None:  # noqa: ANN401 - pynvml has no types
        self._handle = handle
        self._board = board
        self._instance = None if board is None else pynvml.nvmlDeviceGetGpuInstanceId(handle)
        self._samples: list[Any] = []
        self.supported = bool(pynvml.nvmlGpmQueryDeviceSupport(board or handle).isSupportedDevice)
        if self.supported:
            self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
            self._take(self._samples[0])

    def _take(self, sample: Any) -> None:  # noqa: ANN401
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(self._board, self._instance, sample)

    def percent(self) -> float:
        """Mean share of SMs busy since the last call, in percent. The metric has a return code of its own."""
        older, newer = self._samples
        self._take(newer)
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 1
        request.sample1, request.sample2 = older, newer
        request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
        pynvml.nvmlGpmMetricsGet(request)
        self._samples = [newer, older]
        metric = request.metrics[0]
        if metric.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(metric.nvmlReturn)
        return round(float(metric.value), 2)

    def close(self) -> None:
        """Free both samples."""
        for sample in self._samples:
            pynvml.nvmlGpmSampleFree(sample)
        self._samples = []
