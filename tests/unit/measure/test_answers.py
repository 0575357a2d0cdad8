"""What both stacks are asked, in three ways, and how their answers become one record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servegate_action import workload
from servegate_action.config.models import Also, Numerics
from servegate_action.config.workload import Cell, Workload
from servegate_action.measure.answers import NOT_NAMED, OFF, Answers, Questions, compared, questions
from servegate_action.records import Absent, NumericsProbe


def planned(*, words: int, concurrency: tuple[int, ...] = (1, 4), rate: float | None = None) -> workload.Workload:
    shape = {"name": "chat", "prompt_tokens": words, "output_tokens": 9, "requests": 20}
    pace = {"rate_per_second": rate} if rate else {"concurrency": concurrency}
    return workload.build(Workload(seed=7, cells=(Cell.model_validate({**shape, **pace}),)))


def answered(about: Questions, *, short: str = "a", long: str = "a", together: str = "a") -> Answers:
    def each(asked: tuple[str, ...] | Absent, text: str) -> tuple[str, ...]:
        return () if isinstance(asked, Absent) else tuple(f"{text} {prompt}" for prompt in asked)

    none = Absent(absent="the server gives no log-probabilities")
    return Answers(each(about.short, short), each(about.long, long), each(about.together, together), none, 1.0)


def test_long_prompts_are_as_long_as_the_workloads_less_room_for_the_answer() -> None:
    about = questions(Numerics(output_tokens=16), planned(words=400))
    assert not isinstance(about.long, Absent)
    assert len(about.long) == 8
    assert {len(prompt.split()) for prompt in about.long} == {400 - 16}
    assert len(about.short) == 20


def test_a_workload_of_short_prompts_has_no_long_ones_to_ask() -> None:
    about = questions(Numerics(), planned(words=63))
    assert about.long == Absent(absent="the workload's longest prompt has 63 words")
    assert about.together == about.short


@pytest.mark.parametrize(
    ("shape", "at_once"),
    [({"concurrency": (2,)}, 2), ({"concurrency": (1, 48)}, 48), ({"concurrency": (512,)}, 64), ({"rate": 3.0}, 16)],
)
def test_as_many_are_asked_at_once_as_the_workload_does_within_reason(shape: dict[str, object], at_once: int) -> None:
    about = questions(Numerics(), planned(words=100, **shape))  # type: ignore[arg-type]
    assert about.at_once == at_once
    assert not isinstance(about.together, Absent)
    assert not isinstance(about.long, Absent)
    assert len(about.together) == max(20, at_once) + len(about.long)
    first_long = [about.together.index(prompt) for prompt in about.long]
    assert first_long == sorted(first_long)
    assert first_long[0] == 0
    assert first_long[-1] > len(about.together) // 2, "long ones run beside short ones"


def test_a_workload_without_concurrency_is_not_asked_together() -> None:
    about = questions(Numerics(), planned(words=100, concurrency=(1,)))
    assert about.together == Absent(absent="the workload asks one request at a time")


def test_what_is_switched_off_is_not_asked() -> None:
    about = questions(Numerics(also=()), planned(words=100))
    assert (about.long, about.together) == (NOT_NAMED, NOT_NAMED)
    about = questions(Numerics(also=(Also.TOGETHER,)), planned(words=100))
    assert (about.long, about.together) == (NOT_NAMED, about.short)
    off = questions(Numerics(enabled=False), planned(words=100))
    assert (len(off.short), off.long, off.together, off.for_logprobs) == (1, OFF, OFF, OFF)
    one = answered(off)
    assert compared(off, one, one, one) == OFF


@pytest.mark.parametrize("way", ["short", "long", "together"])
def test_each_way_is_compared_by_itself(way: str) -> None:
    about = questions(Numerics(), planned(words=100))
    ours = answered(about)
    probe = compared(about, ours, ours, answered(about, **{way: "b"}))
    assert isinstance(probe, NumericsProbe)
    passed = {"short": probe.alone, "long": probe.long, "together": probe.together}
    assert {name: not isinstance(one, Absent) and one.passed for name, one in passed.items()} == {
        name: name != way for name in passed
    }


def test_what_was_not_asked_says_why_in_the_record() -> None:
    about = questions(Numerics(), planned(words=20, concurrency=(1,)))
    ours = answered(about)
    probe = compared(about, ours, ours, replace(ours))
    assert isinstance(probe, NumericsProbe)
    assert probe.alone.passed
    assert probe.long == Absent(absent="the workload's longest prompt has 20 words")
    assert probe.together == Absent(absent="the workload asks one request at a time")
    assert probe.logprobs == Absent(absent="the baseline: the server gives no log-probabilities")
