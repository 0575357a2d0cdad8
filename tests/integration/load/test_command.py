"""`servegate load` as a function: from a URL to lines and a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from servegate_action.errors import CannotMeasure, ConfigError, UsageError
from servegate_action.load import LoadOptions, run_load
from servegate_action.records import Absent, Certificate
from tests.integration.load.measuring import LIMITS
from tests.support.scripted_server import Answer, plain, scripted
from tests.support.scripted_server.script import MS, WORDS

FOUR = Answer(tokens=4, first_ns=5 * MS, gap_ns=2 * MS, prompt_tokens=WORDS)
FIELDS = [
    *("id", "scheduled_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns"),
    *("prompt_tokens", "output_tokens", "events", "ok", "error", "token_ns"),
]


class Told:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def advance(self, done: int, total: int, text: str) -> None:
        self.steps.append((done, total))


def options(url: str, **changes: object) -> LoadOptions:
    """Small and without a certificate."""
    plain_options = LoadOptions(url=url, concurrency=2, requests=6, output_tokens=4, limits=LIMITS, certify=False)
    return replace(plain_options, **changes)  # type: ignore[arg-type]


def value(report: object, name: str, column: str = "value") -> object:
    """One cell of the table."""
    (row,) = [row for row in report.rows if row.name == name]  # type: ignore[attr-defined]
    return row.values[column]


def test_each_measured_request_is_one_line_of_json() -> None:
    told = Told()
    with scripted({"default": FOUR.script()}) as server:
        report = run_load(options(server.url), progress=told)
    lines = [json.loads(line) for line in report.lines()]
    assert [list(line) for line in lines] == [FIELDS] * 6
    assert all(line["ok"] and len(line["token_ns"]) == line["output_tokens"] == 4 for line in lines)
    assert all(line["first_token_ns"] == line["token_ns"][0] for line in lines)
    assert value(report, "requests") == 6
    assert {line["prompt_tokens"] for line in lines} == {256}
    assert value(report, "failed") == 0
    assert isinstance(value(report, "TTFT", "p95"), float)
    assert len(told.phases) == 3
    assert json.loads(json.dumps(report.as_json()))["rows"][0] == {"name": "requests", "unit": "", "value": 6.0}


@pytest.mark.parametrize("changes", [{"rate_per_second": 50.0}, {"trace": ("", "t.jsonl")}])
def test_open_loop_and_traces_are_sent_too(changes: dict[str, object]) -> None:
    if "trace" in changes:
        rows = [{"timestamp": 20 * n, "input_length": 9, "output_length": 4} for n in range(9)]
        changes = {"trace": ("\n".join(json.dumps(row) for row in rows), "t.jsonl")}
    with scripted({"default": FOUR.script()}) as server:
        report = run_load(options(server.url, concurrency=None, **changes), progress=Told())
    assert (value(report, "requests"), value(report, "failed")) == (9 if "trace" in changes else 6, 0)


def test_the_client_is_certified_at_the_point_that_was_seen() -> None:
    with scripted({"default": FOUR.script()}) as server:
        report = run_load(options(server.url, certify=True), progress=Told())
    assert isinstance(report.certificate, Certificate)
    assert report.certificate.concurrency == 2
    assert 100 < report.certificate.events_per_second < 2000


def test_failures_are_counted_and_percentiles_that_fall_on_them_do_not_exist() -> None:
    usable = FOUR.script()
    with scripted({"default": usable}) as server:
        good = run_load(options(server.url), progress=Told())
    short = replace(FOUR, tokens=3).script()
    with scripted({"default": short}) as server:
        bad = run_load(options(server.url), progress=Told())
    assert value(good, "failed") == 0
    assert value(bad, "failed") == 6
    assert isinstance(value(bad, "TTFT", "p50"), Absent)
    assert value(bad, "requests") == 6


def test_a_server_that_counts_every_prompt_alike_cannot_be_calibrated() -> None:
    with (
        scripted({"default": replace(FOUR, prompt_tokens=9).script()}) as server,
        pytest.raises(CannotMeasure, match="same number of tokens"),
    ):
        run_load(options(server.url), progress=Told())


def test_the_same_seed_sends_the_same_prompts() -> None:
    sent = []
    for _ in range(2):
        with scripted({"default": FOUR.script()}) as server:
            run_load(options(server.url, seed=3), progress=Told())
            server.stop()
        sent.append(sorted(body["prompt"] for body in server.bodies))
    assert sent[0] == sent[1]


@pytest.mark.parametrize("changes", [{"concurrency": None}, {"rate_per_second": 2.0}])
def test_exactly_one_way_of_sending_is_needed(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="exactly one"):
        run_load(options("http://127.0.0.1:9", **changes), progress=Told())


def test_a_broken_trace_is_named_before_anything_is_sent() -> None:
    with scripted({"default": plain(500, b"")}) as server:
        with pytest.raises(ConfigError):
            run_load(options(server.url, concurrency=None, trace=("nonsense", "t.jsonl")), progress=Told())
        server.stop()
    assert server.bodies == []
