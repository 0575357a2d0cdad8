"""The bill in words: items, facts and sentences of the cost comparison, as plain text in one language.

Shared by the comment, the summary and the page. Nothing is computed: every amount comes from the judgement.
"""

from __future__ import annotations

from dataclasses import dataclass

from servegate_action.analysis.judgement import CostComparison, CostItem, SideCost
from servegate_action.records import Absent
from servegate_action.report import numbers
from servegate_action.report.wording import Wording


@dataclass(frozen=True, slots=True)
class BillLine:
    """One item on both sides: USD per month, and USD per 1M output tokens."""

    name: str
    months: tuple[str, str]
    tokens: tuple[str, str]


def lines(cost: CostComparison, w: Wording) -> list[BillLine]:
    """The items of the bill; the total comes last. A column has the same digits in every line."""
    sides = (cost.baseline, cost.candidate)
    names = list(dict.fromkeys(item.name for side in sides for item in side.items))
    digits = max(3, numbers.decimals_for([side.per_1m_output for side in sides]))

    def amounts(name: str) -> BillLine:
        found = [next((item for item in side.items if item.name == name), None) for side in sides]
        months = [_amount(item, item.usd_per_month if item else 0.0, 2, w) for item in found]
        tokens = [_amount(item, item.usd_per_1m_output if item else 0.0, digits, w) for item in found]
        return BillLine(w.say(name), (months[0], months[1]), (tokens[0], tokens[1]))

    months = [numbers.figure(side.usd_per_month, 2, w.marks) for side in sides]
    tokens = [numbers.figure(side.per_1m_output, digits, w.marks) for side in sides]
    return [*(amounts(name) for name in names), BillLine(w.total, (months[0], months[1]), (tokens[0], tokens[1]))]


def _amount(item: CostItem | None, value: float, decimals: int, w: Wording) -> str:
    return w.none if item is None else numbers.figure(value, decimals, w.marks)


def sentences(cost: CostComparison, w: Wording) -> list[str]:
    """Traffic, break-even, migration and payback, one sentence each."""
    said = [w.traffic.format(traffic=w.say(cost.traffic)), f"{w.break_even}: {w.say(cost.break_even_sentence)}"]
    said += [w.fragile] if cost.fragile else []
    if cost.migration_usd > 0:
        usd = numbers.measure(cost.migration_usd, "USD", w.marks)
        if isinstance(cost.payback_tokens, Absent):
            said.append(f"{w.migration_cost.format(usd=usd)} {w.say(cost.payback_tokens.absent)}")
        else:
            said.append(w.payback.format(usd=usd, tokens=numbers.measure(cost.payback_tokens, "", w.marks)))
    return said


@dataclass(frozen=True, slots=True)
class Fact:
    """What else belongs to the bill, on both sides."""

    name: str
    baseline: str
    candidate: str


def facts(cost: CostComparison, w: Wording) -> list[Fact]:
    """Busy-only and total-token prices, effective tokens, idle policy, time shares, energy."""
    a, b = cost.baseline, cost.candidate
    made = [
        Fact(w.busy_only, *_both(a.busy_only_per_1m_output, b.busy_only_per_1m_output, "USD", w)),
        Fact(w.per_1m_total, *_both(a.per_1m_total, b.per_1m_total, "USD", w)),
        Fact(w.effective, *_both(a.effective_tokens_per_gpu_hour, b.effective_tokens_per_gpu_hour, "tok/GPU-h", w)),
        Fact(w.idle_policy, w.say(a.idle_policy), w.say(b.idle_policy)),
        Fact(w.share_of_time, _shares(a, w), _shares(b, w)),
        Fact(w.joule_board, *_both(a.tokens_per_joule_board, b.tokens_per_joule_board, "tok/J", w)),
        Fact(w.joule_grid, *_both(a.tokens_per_joule_grid, b.tokens_per_joule_grid, "tok/J", w)),
        Fact(w.kwh_board, *_both(a.kwh_per_month_board, b.kwh_per_month_board, "kWh", w)),
        Fact(w.kwh_grid, *_both(a.kwh_per_month_grid, b.kwh_per_month_grid, "kWh", w)),
    ]
    if a.poisson_check or b.poisson_check:
        made.append(Fact(w.poisson, w.say(a.poisson_check) or w.none, w.say(b.poisson_check) or w.none))
    return made


def _both(first: float | Absent, second: float | Absent, unit: str, w: Wording) -> tuple[str, str]:
    if isinstance(first, Absent) or isinstance(second, Absent):
        return _or_reason(first, unit, w), _or_reason(second, unit, w)
    return numbers.pair((first, second), unit, w.marks)


def _or_reason(value: float | Absent, unit: str, w: Wording) -> str:
    return w.say(value.absent) if isinstance(value, Absent) else numbers.measure(value, unit, w.marks)


def _shares(side: SideCost, w: Wording) -> str:
    if isinstance(side.share_busy, Absent) or isinstance(side.share_warm_idle, Absent):
        return w.none
    busy, idle, loading, off = (
        numbers.percent(share, w.marks)
        for share in (side.share_busy, side.share_warm_idle, side.share_loading, side.share_off)
    )
    return w.shares.format(busy=busy, idle=idle, loading=loading, off=off)
