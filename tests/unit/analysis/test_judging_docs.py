"""What docs/cost.md and docs/metrics.md state is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servegate_action.analysis import cells, client_trouble, compared, cost, line_item, validity
from servegate_action.analysis.cost import Operation, Power, Prices, Use, bill, busy_only
from servegate_action.analysis.judgement import SideCost
from servegate_action.analysis.traffic import Lifecycle, poisson_form
from servegate_action.config import limits
from servegate_action.config.limits import MetricName

DOCS = Path(__file__).parents[3] / "docs"
COST = (DOCS / "cost.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in COST.splitlines()
    if re.match(r"\| \d+ s \|", line)
]


def operation(rate: float, busy_w: float) -> Operation:
    power = Power(busy_w=busy_w, idle_w=118.0, loading_w=200.0, off_w=72.0)
    return Operation(rate, output_tokens=512, prompt_tokens=1024, served_share=1.0, gpus=1, power=power)


def priced(one: Operation, gap: float, price: float, timeout_s: float | None) -> SideCost:
    life = Lifecycle(one.service_s, idle_timeout_s=timeout_s, cold_starts_s=(45.0,))
    use = Use(rate=1 / gap, replicas=1, occupancy=poisson_form(1 / gap, life), policy="")
    cost_ = bill(one, use, Prices(price, electricity_usd_per_kwh=0.10, efficiency=0.60))
    assert isinstance(cost_, SideCost)
    return cost_


def shown(value: float, like: str) -> str:
    number = like.removesuffix(" %")
    return f"{value:.{len(number.partition('.')[2])}f}" + like[len(number) :]


def test_the_worked_example_has_all_its_rows() -> None:
    assert [row[0] for row in ROWS] == ["500 s", "100 s", "50 s", "20 s"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_worked_example_of_the_document_is_what_the_code_computes(row: list[str]) -> None:
    gap = float(row[0].removesuffix(" s"))
    ours = priced(operation(2400, 610), gap, 2.50, None)
    theirs = priced(operation(2100, 600), gap, 3.60, 60.0)
    waiting = poisson_form(1 / gap, Lifecycle(512 / 2100, idle_timeout_s=60.0, cold_starts_s=(45.0,))).delays.share
    assert isinstance(ours.kwh_per_month_board, float)
    assert isinstance(theirs.kwh_per_month_board, float)
    values = [
        ours.per_1m_output,
        theirs.per_1m_output,
        100 * theirs.share_off,
        100 * waiting,
        ours.kwh_per_month_board / cost.HOURS_PER_MONTH,
        theirs.kwh_per_month_board / cost.HOURS_PER_MONTH,
    ]
    assert [shown(value, like) for value, like in zip(values, row[1:], strict=True)] == row[1:]


def test_the_busy_only_prices_of_the_document_are_right() -> None:
    found = re.search(r"Busy only: A ([\d.]+), B ([\d.]+) USD", COST)
    assert found is not None
    assert shown(busy_only(operation(2400, 610), Prices(2.50)), found[1]) == found[1]
    assert shown(busy_only(operation(2100, 600), Prices(3.60)), found[2]) == found[2]


@pytest.mark.parametrize(
    "text, value",
    [
        ("within ±20 %", cost.FRAGILE_SHARE == 0.20),
        ("· 730 h ·", cost.HOURS_PER_MONTH == 730),
        ("(25 rates on a log scale, from a hundredth", line_item.CURVE_POINTS == 25 and line_item.REACH == 100),
        ("Fewer than 59 never bound", line_item.LEAST_FOR_P95 == 59),
    ],
)
def test_the_constants_of_the_cost_document_are_those_of_the_code(text: str, value: bool) -> None:
    assert text.lower() in COST.lower().replace("\n", " ")
    assert value


@pytest.mark.parametrize(
    "text, value",
    [
        ("If more than 1 % of a cell's answered requests", cells.UNMEASURED_SHARE == 0.01),
        ("at least 80 % of the time", compared.SATURATED_PERCENT == 80),
        ("slots empty for more than 2 % of the time", client_trouble.MOST_THINNING == 0.02),
        (
            "above 10 ms or 5 % of the median TTFT",
            (client_trouble.OPEN_LOOP_LAG_NS, client_trouble.LAG_SHARE) == (10e6, 0.05),
        ),
        ("more than 90 % of its cores used", client_trouble.CPU_SHARE == 0.9),
        ("stepped by more than 1 ms", client_trouble.CLOCK_DRIFT_NS == 1e6),
        ("`limits.failed_share`, which is 5 % at most", limits.TAIL_SHARE == 0.05),
        ("means, plus 5 %", validity.CACHED_SLACK_SHARE == 0.05),
    ],
)
def test_the_constants_of_the_metrics_document_are_those_of_the_code(text: str, value: bool) -> None:
    assert text in METRICS.replace("\n", " ").replace("  ", " ")
    assert value


def test_every_metric_that_can_be_gated_is_in_the_table_of_what_is_compared() -> None:
    table = METRICS.partition("## What is compared")[2].partition("##")[0].lower()
    words = {
        MetricName.TOKENS_PER_GPU_HOUR: "tokens per gpu-hour",
        MetricName.DECODE_TOKENS_PER_SECOND: "decode tok/s",
        MetricName.TTFT_P95: "p95 ttft",
        MetricName.TPOT_P95: "p95 tpot",
        MetricName.TTFT_P95_WITH_COLD_STARTS: "p95 ttft with cold starts",
        MetricName.GPU_UTILIZATION: "gpu utilization",
        MetricName.COST_PER_1M_OUTPUT_TOKENS: "cost per 1m output tokens",
        MetricName.TOKENS_PER_SECOND: "output tok/s",
    }
    assert set(words) == set(MetricName)
    assert all(word in table for word in words.values())
