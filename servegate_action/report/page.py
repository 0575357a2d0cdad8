"""The page: one HTML file that holds everything, readable in any browser, without a script and without the network.

Jinja2 escapes whatever it places; what is not a drawing of ours is text. This module gathers texts and drawings for the
template and computes nothing. Jinja2 is imported on the first call, so that a command that makes no page does not pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from servegate_action.analysis.judgement import (
    CostComparison,
    HardCheck,
    Judgement,
    LaunchSummary,
    Mark,
    MetricVerdict,
    SideCost,
)
from servegate_action.records import Absent, Side
from servegate_action.report import bill, numbers, view
from servegate_action.report.bill import BillLine, Fact
from servegate_action.report.comment import Place
from servegate_action.report.escape import clean, web_address
from servegate_action.report.wording import Language, Wording, wording

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_TEXT = 1500
FEWEST_FOR_P95 = 59
KINDS = {Side.BASELINE: "base", Side.CANDIDATE: "cand"}
MARK_KINDS = {Mark.OK: "ok", Mark.BAD: "bad", Mark.OPEN: "open", Mark.INFO: "info"}
MARK_SIGNS = {Mark.OK: "✓", Mark.BAD: "✕", Mark.OPEN: "!", Mark.INFO: "i"}


def page(j: Judgement, *, language: Language = "en", place: Place | None = None) -> str:
    """The whole page."""
    w = wording(language)
    content = Content(j=j, w=w, place=place or Place(), metrics=_metrics(j, w))
    return _environment().get_template("report.html").render(c=content, j=j, w=w, view=view, style=_style()) + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: object) -> object:
    """Every text that the template places, made one visible line; drawings pass as they are."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return clean(value, max_chars=LONGEST_TEXT)
    return value


@cache
def _style() -> Markup:
    from markupsafe import Markup

    return Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704 our own file, read once


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric on the page: its words, its drawing, and the values of every round."""

    text: view.MetricText
    kind: str
    drawing: Markup
    rounds: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """The metrics of one cell, or of the whole mix (an empty cell)."""

    cell: str
    metrics: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with the sentence below it."""

    title: str
    drawing: Markup
    caption: str


def _metrics(j: Judgement, w: Wording) -> tuple[MetricRow, ...]:
    """Every metric."""
    from servegate_action.report.charts import strips

    return tuple(
        MetricRow(
            text=view.metric(one, w), kind=strips.forest_kind(one), drawing=strips.forest(one), rounds=_rounds(one, w)
        )
        for one in j.metrics
    )


def _rounds(one: MetricVerdict, w: Wording) -> tuple[tuple[str, str], ...]:
    """Both values of each round, all with the same digits."""
    values = [value for pair in one.per_round for value in pair]
    shown = numbers.measures(values, one.unit, w.marks)
    return tuple(zip(shown[::2], shown[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class Content:
    """What the template asks for."""

    j: Judgement
    w: Wording
    place: Place
    metrics: tuple[MetricRow, ...]

    def kind(self, mark: Mark) -> str:
        """The style class of a mark."""
        return MARK_KINDS[mark]

    def sign(self, mark: Mark) -> str:
        """A mark as one character that every font has."""
        return MARK_SIGNS[mark]

    @property
    def verdict_kind(self) -> str:
        """The style class of the verdict."""
        return {"PASS": "ok", "REJECT": "bad", "INCONCLUSIVE": "open", "INVALID": "void"}[self.j.word.value]

    @property
    def verdict_sign(self) -> str:
        """The verdict as one character."""
        return {"PASS": "✓", "REJECT": "✕", "INCONCLUSIVE": "?", "INVALID": "≠"}[self.j.word.value]

    def said(self, sentence: str) -> Markup:
        """A sentence of the analysis, marked as English where this language does not have it."""
        from markupsafe import Markup

        here = self.w.translated(sentence)
        shown = clean(sentence if here is None else here, max_chars=LONGEST_TEXT)
        return Markup('<span lang="en">{}</span>').format(shown) if here is None else Markup("{}").format(shown)

    @property
    def run_url(self) -> str | None:
        """The run's address, if it is one."""
        return web_address(self.j.run_url)

    # ------------------------------------------------------------ metrics

    @property
    def metric_groups(self) -> list[MetricGroup]:
        """Every metric, the whole mix first, then cell by cell."""
        groups: dict[str, list[MetricRow]] = {"": []}
        for one in self.metrics:
            groups.setdefault(one.text.cell, []).append(one)
        return [MetricGroup(cell, tuple(rows)) for cell, rows in groups.items() if rows]

    @property
    def most_rounds(self) -> int:
        """How many columns the table of rounds needs."""
        return max((len(one.per_round) for one in self.j.metrics), default=0)

    # ------------------------------------------------------------ why

    @property
    def explained(self) -> list[view.Headline]:
        """The gated metrics that are not shown to be within their limits."""
        return [view.explained(self.j, one, self.w) for one in view.undecided_or_bad(self.j)] + [
            view.Headline(", ".join(texts), reason) for reason, texts in view.absent_by_reason(self.j, self.w).items()
        ]

    @property
    def slower(self) -> list[str]:
        """Metrics shown to be worse, within their limits."""
        return [view.moved(one, self.w) for one in self.j.metrics if one.worse_within_allowance and one.gated]

    @property
    def better(self) -> list[str]:
        """Metrics shown to be better."""
        return [view.moved(one, self.w) for one in self.j.metrics if one.better and one.gated]

    @property
    def advice(self) -> list[str]:
        """What to do, each thing once."""
        return view.advice(self.j)

    @property
    def failed_checks(self) -> list[HardCheck]:
        """The hard checks that failed."""
        return [check for check in self.j.checks if not check.ok]

    # ------------------------------------------------------------ cost

    @property
    def cost(self) -> CostComparison | None:
        """The bill, when there is one."""
        return None if isinstance(self.j.cost, Absent) else self.j.cost

    @property
    def no_cost(self) -> str:
        """Why there is none."""
        return self.j.cost.absent if isinstance(self.j.cost, Absent) else ""

    def bill_lines(self) -> list[BillLine]:
        """The items; the total comes last."""
        return bill.lines(self.cost, self.w) if self.cost else []

    def bill_facts(self) -> list[Fact]:
        """What else belongs to the bill; the shares of time have a drawing of their own."""
        found = bill.facts(self.cost, self.w) if self.cost else []
        return [fact for fact in found if fact.name != self.w.share_of_time]

    def bill_sentences(self) -> list[str]:
        """Traffic, break-even, payback."""
        return bill.sentences(self.cost, self.w) if self.cost else []

    def cost_figure(self) -> Figure | None:
        """Cost against traffic."""
        from servegate_action.report.charts.lines import Chart, Line, Rule, draw

        if self.cost is None or len(self.cost.curve) < 2:
            return None
        points = self.cost.curve
        rules = [Rule(self.cost.requests_per_hour, self.w.declared)]
        if not isinstance(self.cost.break_even_requests_per_hour, Absent):
            rules.append(Rule(self.cost.break_even_requests_per_hour, self.w.break_even))
        chart = Chart(
            title=self.w.chart_cost,
            x_label=self.w.chart_cost_x,
            y_label=self.w.chart_cost_y,
            lines=(
                Line([(p.requests_per_hour, p.baseline_per_1m_output) for p in points], "base"),
                Line([(p.requests_per_hour, p.candidate_per_1m_output) for p in points], "cand"),
            ),
            rules=rules,
            log_x=True,
            log_y=all(min(p.baseline_per_1m_output, p.candidate_per_1m_output) > 0 for p in points),
        )
        return Figure(self.w.chart_cost, draw(chart, self.w.marks), self.w.cost_caption)

    def share_figures(self) -> list[Figure]:
        """How the time divides, one bar for each side."""
        sides = ((self.w.baseline, self.cost.baseline), (self.w.candidate, self.cost.candidate)) if self.cost else ()
        return [
            self._shares(title, side, busy=side.share_busy, idle=side.share_warm_idle)
            for title, side in sides
            if not isinstance(side.share_busy, Absent) and not isinstance(side.share_warm_idle, Absent)
        ]

    def _shares(self, title: str, side: SideCost, *, busy: float, idle: float) -> Figure:
        from servegate_action.report.charts.strips import Share, shares

        values = {"busy": busy, "idle": idle, "loading": side.share_loading, "off": side.share_off}
        parts = [Share(value, kind, numbers.percent(value, self.w.marks, decimals=0)) for kind, value in values.items()]
        texts = {kind: numbers.percent(value, self.w.marks) for kind, value in values.items()}
        return Figure(title, shares(parts, title=title), self.w.shares.format(**texts))

    # ------------------------------------------------------------ time

    def trace_figures(self) -> list[Figure]:
        """Output tok/s over time, one drawing for each cell."""
        from servegate_action.report.charts.lines import Chart, Line, draw

        made = []
        for cell in dict.fromkeys(one.cell for one in self.j.traces):
            series = [one for one in self.j.traces if one.cell == cell]
            lines = [
                Line(list(enumerate(one.tokens_per_second)), KINDS[one.side]) for one in series if one.tokens_per_second
            ]
            title = clean(self.w.trace_caption.format(cell=cell))
            chart = Chart(title=title, x_label=self.w.seconds, y_label="tok/s", lines=lines, width=520, height=230)
            made.append(Figure(cell, draw(chart, self.w.marks), title))
        return made

    def cold_figure(self) -> Figure | None:
        """Seconds to first token of every launch."""
        from servegate_action.report.charts.strips import Dots, dots

        rows = [Dots(self._side(side), self._starts(side), KINDS[side]) for side in Side]
        if not any(row.values for row in rows):
            return None
        drawing = dots(rows, x_label=self.w.first_answer, title=self.w.cold_caption, marks=self.w.marks)
        return Figure(self.w.cold_starts, drawing, self.w.cold_caption)

    def _side(self, side: Side) -> str:
        return self.w.baseline if side is Side.BASELINE else self.w.candidate

    def _starts(self, side: Side) -> list[float]:
        starts = [one.seconds_to_first_token for one in self.j.launches if one.side is side]
        return [value for value in starts if not isinstance(value, Absent)]

    @property
    def few_starts(self) -> str:
        """The slowest start of each side, where there are too few to bound a percentile."""
        starts = {side: self._starts(side) for side in Side}
        count = max(len(values) for values in starts.values())
        if not 0 < count < FEWEST_FOR_P95:
            return ""
        slowest = [
            f"{self._side(side).lower()} {numbers.measure(max(values), 's', self.w.marks)}"
            for side, values in starts.items()
            if values
        ]
        return self.w.fewer_than_59.format(count=count, slowest=", ".join(slowest))

    def phases(self) -> list[str]:
        """The phases of a cold start that any launch shows, in their order; the first token has a column of its own."""
        seen = dict.fromkeys(phase.name for launch in self.j.launches for phase in launch.phases)
        return [name for name in seen if name != "first token"]

    def launch(self, one: LaunchSummary) -> list[str]:
        """One launch: seconds until each phase and to first token, energy, tok/s, with the digits of their columns."""
        return [
            *(
                _like([_until(each, name) for each in self.j.launches], _until(one, name), "s", self.w)
                for name in self.phases()
            ),
            *(
                _like([getattr(each, name) for each in self.j.launches], getattr(one, name), unit, self.w)
                for name, unit in (
                    ("seconds_to_first_token", "s"),
                    ("loading_energy_j", "J"),
                    ("tokens_per_second", "tok/s"),
                )
            ),
        ]

    def side(self, side: Side | None) -> str:
        """A side in this language."""
        return "" if side is None else self._side(side)

    # ------------------------------------------------------------ evidence

    def evidence(self) -> list[tuple[str, str]]:
        """What identifies the run and its evidence."""
        change = self.j.change
        facts = [(self.w.run_id, self.j.run_id), (self.w.date, self.j.date), (self.w.operator, self.j.operator)]
        facts += [(self.w.accelerator, self.j.accelerator)]
        if change is not None:
            number = f"{change.repository}#{change.number}" if change.number is not None else change.repository
            facts += [(self.w.pull_request, number), (self.w.commit, change.head_sha)]
            facts += [(self.w.base_commit, change.base_sha)] if change.base_sha else []
        facts += [(self.w.sha_workload, self.j.workload_sha256), (self.w.sha_config, self.j.config_sha256)]
        return [*facts, (self.w.tool, self.j.tool_version)]


def _until(launch: LaunchSummary, name: str) -> float | Absent:
    """Seconds from the request to start until the end of a phase."""
    found = [phase.until_s for phase in launch.phases if phase.name == name]
    return found[0] if found else Absent(absent="not seen")


def _like(column: list[float | Absent], value: float | Absent, unit: str, w: Wording) -> str:
    """A value with the digits that its whole column has."""
    if isinstance(value, Absent):
        return w.none
    known = [one for one in column if not isinstance(one, Absent)]
    return numbers.measures([value, *known], unit, w.marks)[0]
