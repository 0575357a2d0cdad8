"""Which metrics are compared, and whether each is gated: from complete rounds to the series that the verdict reads.

The set of metrics follows from the configuration and the plan, never from how the candidate did. One measurement is one
test: a metric that is another one turned over is shown and counted once (`copy_of`). Limits come from the configuration.
Nothing is tested here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from servegate_action.analysis.economy import Economy
from servegate_action.analysis.judgement import Direction, MetricKey
from servegate_action.analysis.metrics import MaybeFloat, Measured
from servegate_action.analysis.rounds import Evidence, Launch
from servegate_action.analysis.series import MetricSeries
from servegate_action.config.limits import CELL_METRICS, MetricName
from servegate_action.config.models import Config
from servegate_action.records import Absent, CellPlan, Recording, Side

# A cell saturates the accelerator when the baseline keeps it at work for at least this share of the time.
SATURATED_PERCENT = 80.0

UNITS: dict[MetricName, tuple[str, Direction]] = {
    MetricName.TOKENS_PER_GPU_HOUR: ("tok/GPU-h", Direction.HIGHER),
    MetricName.DECODE_TOKENS_PER_SECOND: ("tok/s", Direction.HIGHER),
    MetricName.TTFT_P95: ("ms", Direction.LOWER),
    MetricName.TPOT_P95: ("ms", Direction.LOWER),
    MetricName.TTFT_P95_WITH_COLD_STARTS: ("ms", Direction.LOWER),
    MetricName.GPU_UTILIZATION: ("%", Direction.HIGHER),
    MetricName.COST_PER_1M_OUTPUT_TOKENS: ("USD/1M tok", Direction.LOWER),
    MetricName.TOKENS_PER_SECOND: ("tok/s", Direction.HIGHER),
}
DECODE_METRICS = (MetricName.TPOT_P95, MetricName.DECODE_TOKENS_PER_SECOND)
GPU_SECONDS_UNIT = "GPU-s/1M tok"

Reading = Callable[[Launch], Measured]


def all_series(config: Config, recording: Recording, evidence: Evidence, money: Economy) -> tuple[MetricSeries, ...]:
    """Every metric of the run: the mix first, then each cell in the order of the plan."""
    over = _Over(config, recording, evidence)
    mix = [
        over.series(MetricName.TOKENS_PER_GPU_HOUR),
        over.series(MetricName.DECODE_TOKENS_PER_SECOND),
        over.series(MetricName.TTFT_P95),
        over.series(MetricName.TPOT_P95),
        _utilization(over),
        _cost(over, money),
    ]
    if money.cold_ttft is not None:
        mix.insert(4, over.given(MetricName.TTFT_P95_WITH_COLD_STARTS, money.cold_ttft, requests=over.requests_of_mix))
    cells = [over.series(metric, cell) for cell in recording.plan.cells for metric in CELL_METRICS]
    return (*mix, *cells)


class _Over:
    """The rounds of one run, read metric by metric."""

    def __init__(self, config: Config, recording: Recording, evidence: Evidence) -> None:
        self.config = config
        self.recording = recording
        self.evidence = evidence

    @property
    def requests_of_mix(self) -> int | None:
        return self._read(lambda launch: launch.metrics.of(MetricName.TTFT_P95))[1]

    def series(self, metric: MetricName, cell: CellPlan | None = None) -> MetricSeries:
        """A metric that follows from requests alone."""
        name = cell.id if cell is not None else None
        pairs, requests = self._read(lambda launch: launch.metrics.of(metric, name))
        why = self._no_decode(cell) if metric in DECODE_METRICS else None
        copy = self._copy_of(metric, cell)
        return self.given(metric, pairs, cell=name, requests=requests, copy_of=copy, why_not_gated=why)

    def _no_decode(self, cell: CellPlan | None) -> str | None:
        """Answers of one token have no decode: their prefill is the whole of them."""
        cells = self.recording.plan.cells if cell is None else (cell,)
        return None if any(one.output_tokens > 1 for one in cells) else "answers of one token have no decode"

    def given(
        self,
        metric: MetricName,
        pairs: tuple[tuple[float, float], ...] | Absent,
        *,
        cell: str | None = None,
        requests: int | None = None,
        copy_of: MetricKey | None = None,
        why_not_gated: str | None = None,
    ) -> MetricSeries:
        unit, direction = UNITS[metric]
        if why_not_gated is None and metric in self.config.limits.advisory:
            why_not_gated = "advisory: listed under limits.advisory"
        return MetricSeries(
            key=MetricKey(metric=metric, cell=cell),
            direction=direction,
            unit=unit,
            pairs=pairs,
            limit=self.config.limits.of(metric, in_cell=cell is not None),
            gated=why_not_gated is None,
            why_not_gated=why_not_gated,
            requests=requests,
            copy_of=copy_of,
        )

    def _copy_of(self, metric: MetricName, cell: CellPlan | None) -> MetricKey | None:
        """In a workload of one cell its metrics are those of the mix."""
        if cell is None or len(self.recording.plan.cells) > 1:
            return None
        of_mix = MetricName.TOKENS_PER_GPU_HOUR if metric is MetricName.TOKENS_PER_SECOND else metric
        return MetricKey(metric=of_mix)

    def _read(self, reading: Reading) -> tuple[tuple[tuple[float, float], ...] | Absent, int | None]:
        """Pairs of all rounds, and the fewest requests behind a value; absent as soon as one value is."""
        if not self.evidence.rounds:
            return Absent(absent="no complete round"), None
        pairs: list[tuple[float, float]] = []
        counts: list[int] = []
        for one in self.evidence.rounds:
            values: list[float] = []
            for launch in one.launches:
                measured = reading(launch)
                if isinstance(measured.value, Absent):
                    return Absent(absent=f"round {one.number}, {launch.record.side}: {measured.value.absent}"), None
                values.append(measured.value)
                counts += [measured.requests] if measured.requests is not None else []
            pairs.append((values[0], values[1]))
        return tuple(pairs), min(counts) if counts else None

    def pairs_of(self, value: Callable[[Launch], MaybeFloat]) -> tuple[tuple[float, float], ...] | Absent:
        """Pairs of any value of a launch."""
        return self._read(lambda launch: Measured(value(launch)))[0]


# ---------------------------------------------------------------- utilization


def saturating_cells(recording: Recording) -> tuple[CellPlan, ...]:
    """Closed-loop cells at the highest concurrency of their kind: where more work was always waiting.

    At a fixed arrival rate a faster stack should idle more, so that open-loop cells say nothing about utilization.
    """
    closed = [cell for cell in recording.plan.cells if cell.concurrency is not None]
    highest = {cell.name: max(closed, key=lambda other: _rank(other, cell.name)) for cell in closed}
    return tuple(cell for cell in closed if highest[cell.name] is cell)


def _rank(cell: CellPlan, name: str) -> int:
    return (cell.concurrency or 0) if cell.name == name else -1


def _utilization(over: _Over) -> MetricSeries:
    """Mean over the saturating cells of a launch, weighted by their share of the mix's serving time.

    Gated on a GPU where the *baseline* saturates it: were the candidate's own utilization a condition, falling further
    would lift the gate.
    """
    cells = saturating_cells(over.recording)
    shown = cells or over.recording.plan.cells
    pairs = over.pairs_of(lambda launch: mean_utilization(launch, shown))
    why: str | None = None
    if over.recording.accelerator == "cpu":
        why = "CPU utilization: an idle core is not an idle GPU, so it is shown and not gated"
    elif not cells:
        why = "no closed-loop cell: at a fixed arrival rate a faster stack should idle more"
    elif not isinstance(pairs, Absent):
        baseline = sum(pair[0] for pair in pairs) / len(pairs)
        if baseline < SATURATED_PERCENT:
            why = f"the baseline keeps the GPU {baseline:.0f} % at work, below the {SATURATED_PERCENT:.0f} % of a saturated one"
    return over.given(MetricName.GPU_UTILIZATION, pairs, why_not_gated=why)


def mean_utilization(launch: Launch, cells: Sequence[CellPlan]) -> MaybeFloat:
    """Percent, over some cells of one launch, each by its share of the serving time."""
    shares = launch.metrics.mix.time_shares()
    if isinstance(shares, Absent):
        return shares
    total = weight = 0.0
    for cell in cells:
        value = launch.signals.utilization[cell.id]
        if isinstance(value, Absent):
            return Absent(absent=f"{cell.id}: {value.absent}")
        total += shares[cell.id] * value
        weight += shares[cell.id]
    return total / weight


# ---------------------------------------------------------------- cost


def _cost(over: _Over, money: Economy) -> MetricSeries:
    """USD per 1M output tokens; without prices GPU-seconds, which are tokens per GPU-hour turned over."""
    source = MetricKey(metric=MetricName.TOKENS_PER_GPU_HOUR)
    if over.config.cost is None:
        gpus = over.config.stacks
        pairs = over.pairs_of(lambda launch: _gpu_seconds(launch, gpus.of(launch.record.side).gpu_count))
        series = over.given(
            MetricName.COST_PER_1M_OUTPUT_TOKENS,
            pairs,
            copy_of=source,
            why_not_gated="no prices are declared: GPU-seconds per 1M tokens are tokens per GPU-hour turned over",
        )
        return replace(series, unit=GPU_SECONDS_UNIT)
    same = over.config.cost
    only_tokens = (
        same.traffic is None
        and same.electricity_usd_per_kwh is None
        and same.price(Side.BASELINE) == same.price(Side.CANDIDATE)
    )
    return over.given(MetricName.COST_PER_1M_OUTPUT_TOKENS, money.cost, copy_of=source if only_tokens else None)


def _gpu_seconds(launch: Launch, gpus: int) -> MaybeFloat:
    rate = launch.metrics.mix.output_tokens_per_second
    return rate if isinstance(rate, Absent) else 1e6 * gpus / rate
