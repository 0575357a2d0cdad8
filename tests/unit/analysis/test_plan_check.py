"""A recorded plan against what is declared: every plan that is made fits, and every forged one is named."""

from __future__ import annotations

import pytest

from servegate_action import workload
from servegate_action.analysis.plan_check import undeclared
from servegate_action.config.workload import Cell, Lognormal, Trace, Uniform, Workload
from servegate_action.records import CellPlan
from servegate_action.traces import TraceRow
from servegate_action.workload import LengthFit


def one_cell(**changes: object) -> Workload:
    shape: dict[str, object] = {
        "name": "chat",
        "prompt_tokens": 50,
        "output_tokens": 9,
        "concurrency": (2,),
        "requests": 20,
    }
    return Workload(seed=7, cells=(Cell.model_validate(shape | changes),))


def plans(declared: Workload, rows: tuple[TraceRow, ...] = ()) -> tuple[CellPlan, ...]:
    """What a recording says of a workload, once the baseline's way to count is known."""
    built = workload.build(declared, fit=LengthFit(3.0, 1.3), trace=rows)
    return tuple(cell.plan() for cell in built.cells)


ROWS = tuple(TraceRow(t_ns=index * 10**9, prompt_tokens=40, output_tokens=4 + index) for index in range(12))
DECLARED = {
    "closed": one_cell(concurrency=(1, 3), weight=5),
    "open": one_cell(concurrency=(), rate_per_second=0.1 + 0.2),
    "uniform": one_cell(output_tokens=Uniform(low=2, high=9)),
    "lognormal": one_cell(output_tokens=Lognormal(mean=9, sigma=0.4), warmup_requests=3),
    "trace": Workload(trace=Trace(path="t.jsonl", speedup=3)),
    "a part of a trace": Workload(trace=Trace(path="t.jsonl", start_s=2, duration_s=3)),
}


@pytest.mark.parametrize("declared", DECLARED.values(), ids=list(DECLARED))
def test_every_plan_that_is_made_is_the_declared_one(declared: Workload) -> None:
    assert undeclared(declared, plans(declared, ROWS)) == ()
    assert undeclared(declared, plans(declared, ROWS), trace=ROWS) == ()


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("closed", {"id": "chat/2"}),
        ("closed", {"name": "other"}),
        ("closed", {"concurrency": 2}),
        ("closed", {"weight": 0.1}),
        ("closed", {"requests": 19}),
        ("closed", {"output_tokens": 8.0}),
        ("open", {"rate_per_second": 0.1}),
        ("open", {"concurrency": 1}),
        ("uniform", {"output_tokens": 1.0}),
        ("uniform", {"output_tokens": 10.0}),
        ("lognormal", {"output_tokens": 0.5}),
        ("lognormal", {"warmup_requests": 2}),
        ("trace", {"id": "chat/1"}),
        ("trace", {"weight": 2.0}),
        ("trace", {"requests": 5}),
        ("trace", {"rate_per_second": None, "concurrency": 1}),
    ],
)
def test_a_plan_that_differs_from_what_is_declared_is_named(kind: str, change: dict[str, object]) -> None:
    first, *rest = plans(DECLARED[kind], ROWS)
    forged = (first.model_copy(update=change), *rest)
    (finding,) = undeclared(DECLARED[kind], forged)
    assert str(next(iter(change.values()))) in finding


@pytest.mark.parametrize("change", [{"requests": 9}, {"rate_per_second": 1.0}, {"output_tokens": 4.0}])
def test_a_plan_that_is_not_the_traces_is_named_where_the_trace_is_known(change: dict[str, object]) -> None:
    declared = DECLARED["trace"]
    (cell,) = plans(declared, ROWS)
    forged = (cell.model_copy(update=change),)
    assert undeclared(declared, forged) == ()
    assert len(undeclared(declared, forged, trace=ROWS)) == 1


def test_missing_and_additional_cells_are_named() -> None:
    declared = DECLARED["closed"]
    first, second = plans(declared)
    assert undeclared(declared, (first,)) == ("cells chat/1, declared chat/1, chat/3",)
    assert undeclared(declared, (first, second, second)) == ("cells chat/1, chat/3, chat/3, declared chat/1, chat/3",)
    assert undeclared(declared, ()) == ("no cells, declared chat/1, chat/3",)
