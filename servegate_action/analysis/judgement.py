"""The result of thinking: what `verdict.json` holds and what every rendering reads.

One judgement is made per run by `analysis.checklist.judge`; comment, summary, page, status and exit code are renderings
of it. Numbers come with unit, uncertainty and direction; text in here is either a fixed English word of ours or foreign
text (labels, reasons quoting a server), which renderings escape. This module only names things.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from servegate_action.config.limits import Limit, MetricName
from servegate_action.errors import ExitCode
from servegate_action.records import Absent, Change, Evidence, Failure, MaybeStr, Record, Side


class Word(StrEnum):
    """The verdict of a gate."""

    PASS = "PASS"
    REJECT = "REJECT"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"

    @property
    def exit_code(self) -> ExitCode:
        """What the process exits with."""
        return ExitCode[self.name]


class Outcome(StrEnum):
    """The verdict of one metric. SUSPECT and UNCERTAIN are both undecided; SUSPECT's estimate lies beyond the limit."""

    PASS = "PASS"
    REJECT = "REJECT"
    SUSPECT = "SUSPECT"
    UNCERTAIN = "UNCERTAIN"
    ABSENT = "ABSENT"


class Direction(StrEnum):
    """Which way is better."""

    HIGHER = "higher is better"
    LOWER = "lower is better"


class MetricKey(Record):
    """A metric over the whole mix (`cell` is None) or in one cell."""

    metric: MetricName
    cell: str | None = None

    def __str__(self) -> str:
        return self.metric.value if self.cell is None else f"{self.metric.value} {self.cell}"


class Change95(Record):
    """Candidate against baseline, with its real sign: a relative change (0.02 = +2 %) or percentage points.

    `level` is the confidence of the two-sided interval: 1 − 2a at the look where the run stopped.
    `rounds` is the number of paired rounds behind it.
    """

    point: float
    low: float
    high: float
    level: float
    rounds: int
    unit: Literal["ratio", "points"]


class MetricVerdict(Record):
    """One metric, judged."""

    key: MetricKey
    unit: str = Field(description="of the two values: tok/s, ms, tok/GPU-h, USD/1M tok, %")
    direction: Direction
    baseline: float | Absent = Field(description="geometric mean over rounds (arithmetic for points)")
    candidate: float | Absent
    per_round: tuple[tuple[float, float], ...] = Field(description="(baseline, candidate) of each paired round")
    requests: int | None = Field(description="fewest requests behind a value of one launch")
    change: Change95 | Absent
    limit: Limit
    gated: bool
    why_not_gated: str | None
    outcome: Outcome
    p_value: float | None
    p_adjusted: float | None = Field(description="Holm-adjusted over the distinct gated metrics")
    counted_with: MetricKey | None = Field(description="the metric of which this one is a copy, counted once")
    worse_within_allowance: bool
    better: bool = Field(description="shown to be better than the baseline")
    noise_sd: float | None = Field(description="SD of the per-round log-ratio (or points)")
    detectable: float | None = Field(description="smallest worsening this run would have caught 9 times out of 10")
    projected_rounds: int | None = Field(
        description="smallest even number of rounds expected to decide; None when decided or out of reach"
    )


class HardCheck(Record):
    """A yes-or-no check beside the statistical tests."""

    name: str = Field(description="failed_share, slo_ttft_p95, identity_model, load_equal, client, telemetry …")
    kind: Literal["reject", "invalid", "inconclusive"] = Field(description="what a failure makes of the gate")
    ok: bool
    cell: str | None = None
    side: Side | None = None
    detail: str = Field(description="one sentence with the numbers")
    advice: str = ""


class Mark(StrEnum):
    """How a checklist row stands."""

    OK = "ok"
    BAD = "bad"
    OPEN = "open"
    INFO = "info"


class Quantity(Record):
    """A number with its unit, ready to be formatted; `note` qualifies it (a counter's name, `median`, `declared`)."""

    value: float
    unit: str
    note: str = ""


Shown = Quantity | MaybeStr


class RowLine(Record):
    """One line of a checklist row: what is compared, both sides, the change and what is allowed."""

    label: str
    cell: str | None = None
    baseline: Shown
    candidate: Shown
    change: Change95 | Absent
    allowed: Limit | str | None
    direction: Direction | None = Field(default=None, description="which way is better, where the line is a metric")
    verdict: str = Field(description="PASS, REJECT, …, proven, declared, unknown, shown")
    mark: Mark


class Row(Record):
    """One of the eight rows; always all of them, in this order."""

    number: int = Field(ge=1, le=8)
    title: str
    mark: Mark
    lines: tuple[RowLine, ...] = Field(min_length=1, description="the first is the one that a short table shows")
    notes: tuple[str, ...] = ()


class CostItem(Record):
    """One line of the bill, per month of the declared traffic, and per 1M output tokens."""

    name: str = Field(description="busy, warm idle, loading, power, migration")
    usd_per_month: float
    usd_per_1m_output: float


class SideCost(Record):
    """The bill of one side."""

    busy_only_per_1m_output: float | Absent = Field(description="GPU money while busy, nothing else")
    per_1m_output: float
    per_1m_total: float
    usd_per_month: float
    items: tuple[CostItem, ...]
    effective_tokens_per_gpu_hour: float
    share_busy: float | Absent
    share_warm_idle: float | Absent
    share_loading: float
    share_off: float
    idle_policy: str
    tokens_per_joule_board: float | Absent
    tokens_per_joule_grid: float | Absent
    kwh_per_month_board: float | Absent
    kwh_per_month_grid: float | Absent
    poisson_check: str = ""


class CurvePoint(Record):
    """Cost of both sides at one traffic level."""

    requests_per_hour: float
    baseline_per_1m_output: float
    candidate_per_1m_output: float


class CostComparison(Record):
    """Row 6 in full."""

    baseline: SideCost
    candidate: SideCost
    requests_per_hour: float
    traffic: str
    break_even_requests_per_hour: float | Absent
    break_even_sentence: str
    fragile: bool
    payback_tokens: float | Absent
    migration_usd: float
    curve: tuple[CurvePoint, ...]
    notes: tuple[str, ...]


class Difference(Record):
    """Something that differs between the two stacks besides speed."""

    what: str = Field(description="driver, container, GPU pool, engine, flags …")
    baseline: str
    candidate: str
    migration: bool = Field(description="brings the migration cost")


class Phase(Record):
    """One phase of a cold start: its name, and the seconds from the request to start until its end."""

    name: str
    until_s: float


class LaunchSummary(Record):
    """One judged launch, for tables and charts."""

    round: int
    side: Side
    position: int
    seconds_to_first_token: float | Absent
    tokens_per_second: float | Absent
    phases: tuple[Phase, ...] = Field(description="the cold start, in order; phases that were not seen are left out")
    page_cache: str = Field(description="of the weight files: dropped, as found, unknown")
    loading_energy_j: float | Absent


class TraceSeries(Record):
    """Output tok/s over time of one launch and cell, one-second bins from the cell's start."""

    round: int
    side: Side
    cell: str
    tokens_per_second: tuple[float, ...]


class IdentitySummary(Record):
    """Row 1 in full for one side."""

    side: Side
    model: str
    model_evidence: Evidence
    quantization: str
    quantization_evidence: Evidence
    batch: str
    batch_evidence: Evidence
    engine: str
    details: tuple[str, ...]


class Judgement(Record):
    """Everything that a report says. `verdict.json`."""

    schema_version: Literal[1] = 1
    tool_version: str
    gate: str
    run_id: str
    run_url: str | None
    date: str = Field(description="UTC start of the run, ISO 8601")
    operator: str
    word: Word
    headline: str = Field(
        description="English, one sentence, no Markdown: the metric or check that decided it, with numbers"
    )
    advice: tuple[str, ...] = Field(description="what to do about it")
    change: Change | None
    baseline_label: str
    candidate_label: str
    workload_sha256: str
    config_sha256: str
    accelerator: str = Field(description="`1x NVIDIA H100 80GB HBM3`, or the CPU's name")
    rounds_used: int
    rounds_planned: int
    looks: tuple[int, ...]
    level: float = Field(description="a of the last look that was reached; of the first, before it")
    requests_replayed: int
    distinct_metrics: int = Field(description="m of Holm's correction")
    noise: float | Absent = Field(description="median SD of the per-round log-ratio over gated metrics")
    rejected: tuple[str, ...] = Field(description="metrics or checks that reject, as printed")
    checks: tuple[HardCheck, ...]
    rows: tuple[Row, ...] = Field(min_length=8, max_length=8)
    metrics: tuple[MetricVerdict, ...]
    cost: CostComparison | Absent
    identities: tuple[IdentitySummary, ...]
    differences: tuple[Difference, ...]
    launches: tuple[LaunchSummary, ...]
    traces: tuple[TraceSeries, ...]
    voided: tuple[str, ...]
    notes: tuple[str, ...]
    failure: Failure | None = Field(description="why the run stopped early, when it did")
    method: str = Field(description="one paragraph: rule, looks, error rates")
