"""Whether answers agree: a pure comparison, with the baseline against itself as the scale."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate_action.identity import compare_answers, compare_logprobs, long_prompts, probe_prompts
from servegate_action.records import Absent, LogprobComparison

ANSWERS = tuple(f"answer number {number}, which goes on for a while until it ends" for number in range(20))


def differing(count: int, *, at: int = 30) -> tuple[str, ...]:
    return tuple(text[:at] + "#" + text[at + 1 :] if index < count else text for index, text in enumerate(ANSWERS))


def test_a_candidate_that_is_the_baseline_passes() -> None:
    found = compare_answers(ANSWERS, ANSWERS, ANSWERS)
    assert found.passed
    assert (found.self_match, found.cross_match, found.cross_agreement) == (1.0, 1.0, 1.0)
    assert found.first_divergence_median == Absent(absent="no answer differs")
    assert found.reason == "100% of 20 answers are the same, 100% of the baseline's own when asked twice"


@pytest.mark.parametrize("count,passes", [(1, True), (2, True), (3, False), (4, False), (10, False), (20, False)])
def test_a_few_flipped_tokens_are_borne_and_many_are_not(count: int, passes: bool) -> None:
    found = compare_answers(ANSWERS, ANSWERS, differing(count))
    assert found.passed is passes
    assert found.cross_match == 1 - count / 20
    assert found.first_divergence_median == 30


def test_the_reason_names_both_rates_and_what_is_needed() -> None:
    found = compare_answers(ANSWERS, ANSWERS, differing(20, at=10))
    assert found.reason.startswith("0% of 20 are the same, the baseline agrees with itself in 100%")
    assert "and at least 86% are needed" in found.reason
    assert "; on average 18% of a text is the same from its beginning, 100% for" in found.reason


def test_a_baseline_that_wavers_allows_as_much_to_the_candidate() -> None:
    assert compare_answers(ANSWERS, differing(8), differing(8, at=29)).passed
    assert not compare_answers(ANSWERS, differing(8), differing(20, at=5)).passed


def test_a_baseline_that_never_agrees_with_itself_still_tells_nonsense_from_answers() -> None:
    again, nonsense = differing(20, at=40), tuple("zzz" for _ in ANSWERS)
    assert compare_answers(ANSWERS, again, differing(20, at=41)).passed
    found = compare_answers(ANSWERS, again, nonsense)
    assert not found.passed
    assert found.reason.startswith("on average 0% of a text is the same from its beginning")


def test_answers_that_part_early_on_average_fail_although_they_vary() -> None:
    again = differing(20, at=50)
    varying = tuple(text[:at] + "#" for text, at in zip(ANSWERS, (20, 30, 40, 50) * 5, strict=True))
    found = compare_answers(ANSWERS, again, varying)
    assert found.cross_match == found.self_match == 0.0
    assert not found.passed


def test_answers_without_text_agree_with_everything_and_therefore_fail() -> None:
    silent = tuple("" for _ in ANSWERS)
    found = compare_answers(silent, silent, silent)
    assert not found.passed
    assert found.reason == "the baseline gave 20 of 20 answers without text"


def test_a_truncated_answer_differs() -> None:
    found = compare_answers(ANSWERS, ANSWERS, tuple(text[:10] for text in ANSWERS))
    assert not found.passed
    assert found.first_divergence_median == 10


def test_one_prompt_is_enough_to_see_a_difference() -> None:
    assert compare_answers(("abc",), ("abc",), ("abc",)).passed
    assert not compare_answers(("abc",), ("abc",), ("xyz",)).passed


@pytest.mark.parametrize("counts", [(0, 0, 0), (2, 1, 2), (2, 2, 1)])
def test_answers_must_be_to_the_same_prompts(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="answers to the same prompts are needed"):
        compare_answers(*(ANSWERS[:count] for count in counts))


@given(st.lists(st.text(max_size=20), min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_prompts_does_not_matter(texts: list[str], source: random.Random) -> None:
    candidate = [source.choice((text, text[::-1])) for text in texts]
    order = source.sample(range(len(texts)), len(texts))
    one = compare_answers(texts, texts, candidate)
    other = compare_answers([texts[i] for i in order], [texts[i] for i in order], [candidate[i] for i in order])
    assert (one.passed, one.cross_match) == (other.passed, other.cross_match)
    assert one.cross_agreement == pytest.approx(other.cross_agreement)


@given(st.integers(0, 20))
def test_more_differences_never_help(count: int) -> None:
    if compare_answers(ANSWERS, ANSWERS, differing(count)).passed:
        assert all(compare_answers(ANSWERS, ANSWERS, differing(fewer)).passed for fewer in range(count))


def test_probe_prompts_are_fixed_and_distinct() -> None:
    assert probe_prompts(20) == probe_prompts(500)[:20]
    assert len(set(probe_prompts(500))) == 500
    assert len(probe_prompts(7)) == 7


def test_logprobs_are_compared_up_to_the_first_token_that_differs() -> None:
    baseline = ((("a", -0.1), ("b", -0.2), ("c", -0.3)), (("x", -1.0),))
    again = ((("a", -0.1), ("b", -0.2), ("c", -0.4)), (("x", -1.0),))
    candidate = ((("a", -0.3), ("B", -0.1), ("c", -9.0)), (("x", -1.1), ("y", -5.0)))
    found = compare_logprobs(baseline, again, candidate)
    assert isinstance(found, LogprobComparison)
    assert (found.tokens, found.same_tokens) == (3, 2)
    assert found.mean_difference == pytest.approx((0.2 + 0.1) / 2)
    assert found.own_mean_difference == pytest.approx(0.1 / 4)


def test_answers_that_differ_from_the_first_token_have_no_logprobs_to_compare() -> None:
    one, other = ((("a", -0.1),),), ((("b", -0.1),),)
    assert compare_logprobs(one, one, other) == Absent(absent="no answer begins with the same token")
    assert compare_logprobs(one, other, one) == Absent(absent="no answer begins with the same token")


@given(st.integers(1, 40), st.integers(40, 3000))
def test_long_prompts_have_their_length_and_ask_for_a_fact_that_they_hold(count: int, words: int) -> None:
    prompts = long_prompts(count, words=words)
    assert len(set(prompts)) == count
    places = []
    for prompt in prompts:
        assert len(prompt.split()) == words
        question = " ".join(prompt.split()[-7:])
        assert question.startswith("The number of the ")
        assert question.endswith(" box is")
        assert prompt.count(question + " ") == 1
        places.append(len(prompt[: prompt.index(question)].split()))
    assert places == sorted(places)
    assert places[0] == 0
