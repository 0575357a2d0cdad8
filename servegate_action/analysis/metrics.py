"""The metrics of one launch: its cells, and its cells weighted into the declared mix of traffic.

A cell's weight is its share of the traffic *in requests*. Quantiles of the mix give each cell that share however many
requests were sent in it; rates of the mix follow from the time that the mix takes (`mix_rate`). Values are per launch,
because the launch is the independent unit of the statistics; nothing here compares two stacks or decides.
Definitions: docs/metrics.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from servegate_action.analysis.cells import NS_PER_MS, P95, CellMeasures, Latencies, measure_cell
from servegate_action.analysis.quantiles import FloatArray, effective_size, weighted_nearest_rank
from servegate_action.config.limits import MetricName, Slo
from servegate_action.records import (
    Absent,
    CellPlan,
    LaunchRecord,
    LaunchState,
    RequestRecord,
    TelemetrySample,
    TelemetryStatic,
)

MaybeFloat = float | Absent
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class LaunchData:
    """What the files of one launch hold: `requests.jsonl.gz` and `telemetry.jsonl`. `damaged` says what is cut off."""

    requests: Sequence[RequestRecord]
    telemetry: TelemetryStatic | Absent
    samples: Sequence[TelemetrySample]
    damaged: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with the number of (equally weighted) requests behind it, None where it is not counted in requests."""

    value: MaybeFloat
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Mix:
    """The cells of one launch as one traffic. Rates in tokens/s; latencies in ms; `gpus` held by the stack."""

    cells: Mapping[str, CellMeasures]
    gpus: int

    @property
    def closed_loop(self) -> Mix | None:
        """The cells at a constant concurrency: they alone show how much a stack can serve. None when there are none."""
        cells = {name: cell for name, cell in self.cells.items() if cell.plan.concurrency is not None}
        return Mix(cells, self.gpus) if cells else None

    @property
    def output_tokens_per_second(self) -> MaybeFloat:
        """Output tok/s while serving the declared mix: see `mix_rate`."""
        return mix_rate(
            [(cell.plan.weight, cell.mean_output_tokens, cell.output_tokens_per_second) for cell in self._named()]
        )

    @property
    def decode_tokens_per_second(self) -> MaybeFloat:
        """The server's decode tok/s over the mix: decode tokens of the mix / time with a decode in flight."""
        return mix_rate(
            [
                (cell.plan.weight, cell.decode_tokens_per_request, cell.decode_tokens_per_second)
                for cell in self._named()
            ]
        )

    @property
    def tokens_per_gpu_hour(self) -> MaybeFloat:
        """3600 × output tok/s of the mix / GPUs held."""
        rate = self.output_tokens_per_second
        return rate if isinstance(rate, Absent) else SECONDS_PER_HOUR * rate / self.gpus

    @property
    def mean_output_tokens(self) -> float:
        """o: output tokens of a mean request of the traffic, as planned."""
        return self._mean(lambda cell: cell.mean_output_tokens)

    @property
    def mean_prompt_tokens(self) -> MaybeFloat:
        """i: prompt tokens of a mean request of the traffic, as the server counted them."""
        known = [(cell.plan.weight, cell.mean_prompt_tokens) for cell in self._named()]
        pairs = [(weight, tokens) for weight, tokens in known if not isinstance(tokens, Absent)]
        if len(pairs) < len(known):
            return Absent(absent="the server does not report prompt_tokens in every cell")
        return sum(weight * tokens for weight, tokens in pairs) / sum(weight for weight, _ in pairs)

    @property
    def failed_share(self) -> float:
        """Share of the traffic's requests that fail."""
        return self._mean(lambda cell: cell.failed_share)

    @property
    def goodput(self) -> MaybeFloat:
        """Share of the traffic's requests that meet every declared SLO."""
        shares = [(cell.plan.weight, cell.goodput) for cell in self._named()]
        missing = next((share for _, share in shares if isinstance(share, Absent)), None)
        if missing is not None:
            return missing
        return sum(w * share for w, share in shares if not isinstance(share, Absent)) / sum(w for w, _ in shares)

    def time_shares(self) -> Mapping[str, float] | Absent:
        """Share of the serving time that the mix spends in each cell: w·o/X over its sum."""
        rate = self.output_tokens_per_second
        if isinstance(rate, Absent):
            return rate
        times = {
            name: cell.plan.weight * cell.mean_output_tokens / cell.output_tokens_per_second
            for name, cell in self.cells.items()
            if not isinstance(cell.output_tokens_per_second, Absent)
        }
        total = sum(times.values())
        return {name: time / total for name, time in times.items()}

    def latency_sample(self, kind: Callable[[CellMeasures], Latencies]) -> tuple[FloatArray, FloatArray] | Absent:
        """All requests' latencies in ns with the share of the traffic that each stands for; shapes (n,), (n,)."""
        values: list[FloatArray] = []
        weights: list[FloatArray] = []
        for cell in self._named():
            known = kind(cell).known
            if isinstance(known, Absent):
                if kind(cell).unmeasured:
                    return Absent(absent=f"{cell.plan.id}: {known.absent}")
                continue
            values.append(known)
            weights.append(np.full(known.size, cell.plan.weight / known.size))
        if not values:
            return Absent(absent="no request of any cell can have one")
        return np.concatenate(values), np.concatenate(weights)

    def p95(self, kind: Callable[[CellMeasures], Latencies]) -> Measured:
        """p95 in ms over the mix by weighted nearest rank, +inf when it falls on a failed request; n is Kish's effective one."""
        sample = self.latency_sample(kind)
        if isinstance(sample, Absent):
            return Measured(sample)
        values, weights = sample
        return Measured(weighted_nearest_rank(values, weights, P95) / NS_PER_MS, effective_size(weights))

    def _named(self) -> Sequence[CellMeasures]:
        return tuple(self.cells.values())

    def _mean(self, of: Callable[[CellMeasures], float]) -> float:
        weights = sum(cell.plan.weight for cell in self._named())
        return sum(cell.plan.weight * of(cell) for cell in self._named()) / weights


@dataclass(frozen=True, slots=True)
class LaunchMetrics:
    """Everything that the requests of one launch say. `incomplete` names what keeps it from being judged."""

    record: LaunchRecord
    mix: Mix
    incomplete: str | None

    def of(self, metric: MetricName, cell: str | None = None) -> Measured:
        """One metric over the mix, or in a cell. Cost, utilization and cold starts are not a matter of requests alone."""
        return self._of_mix(metric) if cell is None else self._of_cell(metric, cell)

    def _of_mix(self, metric: MetricName) -> Measured:
        if metric is MetricName.TTFT_P95:
            return self.mix.p95(lambda cell: cell.ttft)
        if metric is MetricName.TPOT_P95:
            return self.mix.p95(lambda cell: cell.tpot)
        if metric is MetricName.DECODE_TOKENS_PER_SECOND:
            return Measured(self.mix.decode_tokens_per_second)
        if metric is MetricName.TOKENS_PER_GPU_HOUR:
            return Measured(self.mix.tokens_per_gpu_hour)
        raise ValueError(f"{metric} does not follow from requests alone")

    def _of_cell(self, metric: MetricName, name: str) -> Measured:
        cell = self.mix.cells.get(name)
        if cell is None:
            return Measured(Absent(absent="this cell was not measured in this launch"))
        if metric is MetricName.TOKENS_PER_SECOND:
            return Measured(cell.output_tokens_per_second)
        if metric is MetricName.TTFT_P95:
            return Measured(cell.ttft.p95_ms, int(cell.ttft.ns.size))
        if metric is MetricName.TPOT_P95:
            return Measured(cell.tpot.p95_ms, int(cell.tpot.ns.size))
        raise ValueError(f"{metric} is not a metric of a cell")


def mix_rate(parts: Sequence[tuple[float, float, MaybeFloat]]) -> MaybeFloat:
    """Tokens/s of a mix from (weight in requests w, tokens per request o, tokens/s X) of each cell.

    A mean request of the mix makes Σ w·o tokens. Its share w of kind c needs o/X seconds of the stack at that cell's
    operating point, so that it takes Σ w·o/X seconds: the rate is Σ w·o / Σ (w·o/X), the harmonic mean of the X
    weighted by tokens. (The arithmetic mean would let a fast short cell pay for a slow long one.) Cells without tokens
    of this kind (o = 0) take no time. Absent as soon as one cell's rate is.
    """
    tokens = seconds = 0.0
    for weight, per_request, rate in parts:
        if per_request <= 0:
            continue
        if isinstance(rate, Absent):
            return rate
        tokens += weight * per_request
        seconds += weight * per_request / rate
    return tokens / seconds if seconds > 0 else Absent(absent="no tokens of this kind in any cell")


def launch_metrics(
    record: LaunchRecord,
    requests: Sequence[RequestRecord],
    *,
    plan: Sequence[CellPlan],
    slo: Slo,
    gpus: int,
) -> LaunchMetrics:
    """The metrics of one launch. A cell without a measured request is left out, and makes the launch incomplete."""
    by_cell: dict[str, list[RequestRecord]] = defaultdict(list)
    for request in requests:
        by_cell[request.cell].append(request)
    runs = {run.cell: run for run in record.cells}
    cells = {
        cell.id: measure_cell(cell, runs[cell.id], by_cell[cell.id], slo=slo)
        for cell in plan
        if cell.id in runs and any(request.phase == "measured" for request in by_cell[cell.id])
    }
    return LaunchMetrics(record=record, mix=Mix(cells=cells, gpus=gpus), incomplete=_incomplete(record, cells, plan))


def _incomplete(record: LaunchRecord, cells: Mapping[str, CellMeasures], plan: Sequence[CellPlan]) -> str | None:
    """Why a launch cannot be judged: it did not end well, or cells of the plan are missing."""
    if record.state is not LaunchState.COMPLETE:
        return record.reason or f"the launch is {record.state}"
    missing = [cell.id for cell in plan if cell.id not in cells]
    return f"not measured in this launch: {', '.join(missing)}" if missing else None
