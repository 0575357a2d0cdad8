"""What a server accepts is found out by asking it; both stacks then get the same body."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from servegate_action.errors import CannotMeasure
from servegate_action.load import (
    Target,
    agree,
    complete,
    complete_with_logprobs,
    count_tokens,
    negotiate,
    probe_tokens,
)
from servegate_action.load.dialect import request_body
from servegate_action.records import Absent, Dialect
from tests.integration.load.measuring import DIALECT
from tests.support.scripted_server import Answer, Part, plain, scripted, sse
from tests.support.scripted_server.script import MS, chat_event, completion_event, usage_event

ONE = Answer(tokens=1, first_ns=1 * MS)


def ask(url: str, *, model: str | None = None) -> Dialect:
    """Negotiate for completions."""
    return negotiate(url, api="completions", served_model=model, headers={}, timeout_s=30)


def test_a_server_that_accepts_everything_is_asked_once() -> None:
    with scripted({"default": ONE.script()}) as server:
        dialect = ask(server.url)
        server.stop()
    assert dialect == DIALECT
    assert len(server.bodies) == 1


@pytest.mark.parametrize("option", ["stream_options", "ignore_eos", "min_tokens"])
def test_an_option_that_is_refused_is_left_out_and_noted(option: str) -> None:
    with scripted({"default": ONE.script()}, refuses=[option]) as server:
        dialect = ask(server.url)
        server.stop()
    assert getattr(dialect, option) is False
    assert [getattr(dialect, other) for other in ("stream_options", "ignore_eos", "min_tokens")].count(True) == 2
    assert option in dialect.notes[0]
    assert option not in server.bodies[-1]


def test_the_newer_name_of_the_token_limit_is_tried() -> None:
    with scripted({"default": ONE.script()}, refuses=["max_tokens"]) as server:
        dialect = ask(server.url)
        server.stop()
    assert dialect.max_tokens_field == "max_completion_tokens"
    assert server.bodies[-1]["max_completion_tokens"] == 1


def test_a_server_without_usage_is_noted() -> None:
    parts = (
        Part(0, sse(completion_event("a")), 1),
        Part(0, sse(completion_event("", finish="length"))),
        Part(0, sse("[DONE]")),
    )
    with scripted({"default": replace(ONE, parts=parts).script()}) as server:
        assert "no usage" in ask(server.url, model="m").notes[0]


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (plain(404, b'{"error": "no such route"}'), "no such route"),
        (plain(401, b'{"error": "who are you"}'), "who are you"),
        (plain(500, b"<h1>oops</h1>"), "oops"),
        (plain(200, b'{"choices": []}'), "without streaming"),
        (replace(ONE, parts=(Part(0, sse({"error": "out of memory"})),)).script(), "out of memory"),
    ],
)
def test_a_server_that_does_not_complete_is_quoted(script: object, what: str) -> None:
    with scripted({"default": script}) as server, pytest.raises(CannotMeasure) as raised:  # type: ignore[dict-item]
        ask(server.url, model="m")
    assert what in str(raised.value)


def test_a_server_that_lists_no_models_needs_a_name() -> None:
    with scripted(pages={"/v1/models": (404, "text/plain", "nope")}) as server:
        with pytest.raises(CannotMeasure, match="list its models"):
            ask(server.url)
        assert ask(server.url, model="mine").served_model == "mine"


def test_both_stacks_get_only_what_both_accept() -> None:
    a = DIALECT.model_copy(update={"ignore_eos": False, "notes": ("a",)})
    b = DIALECT.model_copy(update={"min_tokens": False, "served_model": "other", "notes": ("b",)})
    common, mirrored = agree(a, b), agree(b, a)
    assert (common.stream_options, common.ignore_eos, common.min_tokens) == (True, False, False)
    assert common.notes[:2] == ("a", "b")
    assert len(common.notes) == 4
    same = mirrored.model_copy(update={"served_model": common.served_model})
    assert request_body(common, prompt="p", output_tokens=3) == request_body(same, prompt="p", output_tokens=3)
    assert agree(DIALECT, DIALECT) == DIALECT


@pytest.mark.parametrize("change", [{"api": "chat"}, {"max_tokens_field": "max_completion_tokens"}])
def test_stacks_without_a_common_body_cannot_be_compared(change: dict[str, str]) -> None:
    with pytest.raises(CannotMeasure, match="no common request body"):
        agree(DIALECT, DIALECT.model_copy(update=change))


def test_a_single_answer_comes_back_whole() -> None:
    parts = (
        Part(0, sse(chat_event({"role": "assistant", "content": ""}))),
        Part(0, sse(chat_event({"reasoning_content": "hmm "})), 1),
        Part(0, sse(chat_event({"content": "sí"})), 1),
        Part(0, sse(chat_event({}, finish="length"))),
        Part(0, sse(usage_event(7, 2))),
        Part(0, sse("[DONE]")),
    )
    with scripted({"default": replace(ONE, parts=parts).script()}) as server:
        target = Target(server.url, DIALECT.model_copy(update={"api": "chat"}))
        answer = complete(target, "?", output_tokens=2)
        assert probe_tokens(target, ["a", "b"]) == [7, 7]
    assert (answer.text, answer.prompt_tokens, answer.output_tokens, answer.finish_reason) == ("hmm sí", 7, 2, "length")


def test_a_single_request_that_fails_is_quoted() -> None:
    with scripted({"default": plain(503, b"busy")}) as server, pytest.raises(CannotMeasure, match="busy"):
        complete(Target(server.url, DIALECT), "?", output_tokens=1)


def test_prompt_lengths_need_usage() -> None:
    parts = (Part(0, sse(completion_event("a", finish="length")), 1), Part(0, sse("[DONE]")))
    with (
        scripted({"default": replace(ONE, parts=parts).script()}) as server,
        pytest.raises(CannotMeasure, match=r"usage\.prompt_tokens"),
    ):
        probe_tokens(Target(server.url, DIALECT), ["a"])


@pytest.mark.parametrize("told", [{"count": 3, "tokens": [1, 2, 3]}, {"tokens": [1, 2, 3]}])
def test_texts_are_counted_by_the_servers_tokenizer(told: dict[str, object]) -> None:
    pages = {"/tokenize": (200, "application/json", json.dumps(told))}
    with scripted(pages=pages) as server:
        assert count_tokens(Target(server.url, DIALECT), ["x y z"]) == [3]


def test_a_server_without_tokenize_counts_nothing() -> None:
    with scripted(pages={"/tokenize": (404, "text/plain", "")}) as server:
        assert count_tokens(Target(server.url, DIALECT), ["x"]) is None


NEW = {"content": [{"token": " a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]}
OLD = {"tokens": [" a", "b"], "token_logprobs": [-0.5, -1.5]}


@pytest.mark.parametrize("told", [NEW, OLD], ids=["content", "tokens"])
def test_log_probabilities_come_in_either_shape(told: object) -> None:
    event = {"choices": [{"index": 0, "text": " ab", "logprobs": told}]}
    parts = (Part(0, sse(event), 1), Part(0, sse(completion_event("", finish="length"))), Part(0, sse("[DONE]")))
    with scripted({"default": replace(ONE, parts=parts).script()}) as server:
        found = complete_with_logprobs(Target(server.url, DIALECT), "hello", output_tokens=2)
        server.stop()
    assert found == ((" a", -0.5), ("b", -1.5))
    assert server.bodies[-1]["logprobs"] == 1


@pytest.mark.parametrize("logprob", [None, "low", float("-inf")])
def test_a_log_probability_that_is_no_number_ends_the_comparison(logprob: object) -> None:
    told = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": logprob}, "odd"]}
    event = {"choices": [{"index": 0, "text": "ab", "logprobs": told}, "odd"]}
    with scripted({"default": replace(ONE, parts=(Part(0, sse(event), 1), Part(0, sse("[DONE]")))).script()}) as server:
        assert complete_with_logprobs(Target(server.url, DIALECT), "hello", output_tokens=3) == (("a", -0.5),)


def test_a_server_without_log_probabilities_is_named_with_its_reason() -> None:
    with scripted({"default": ONE.script()}) as server:
        found = complete_with_logprobs(Target(server.url, DIALECT), "hello", output_tokens=1)
    assert found == Absent(absent="the server gives no log-probabilities")
    with scripted({"default": ONE.script()}, refuses=["logprobs"]) as server:
        refused = complete_with_logprobs(Target(server.url, DIALECT), "hello", output_tokens=1)
    assert isinstance(refused, Absent)
    assert refused.absent.startswith("a request for log-probabilities was not answered: HTTP 4")
