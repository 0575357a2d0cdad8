"""Absolute promises of the candidate: failures, service levels, capacity."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.promises import capacity_checks, failed_share_checks, slo_checks, typical
from servegate_action.analysis.rounds import gather
from servegate_action.records import Absent, Side
from tests.support.recordings import Built, Scene, SceneCell, build, passing


def failures(built: Built) -> dict[tuple[str | None, Side | None], HardCheck]:
    evidence = gather(built.config, built.recording, built.data)
    checks = failed_share_checks(built.config, built.recording, evidence)
    return {(check.cell, check.side): check for check in checks}


def levels(built: Built, cold: float | Absent | None = None) -> list[HardCheck]:
    return slo_checks(built.config, gather(built.config, built.recording, built.data), cold)


# ---------------------------------------------------------------- failures


def test_every_cell_and_side_has_its_failed_share() -> None:
    checks = failures(build(passing()))
    assert len(checks) == 6
    assert all(check.ok for check in checks.values())
    assert checks["chat/1", Side.CANDIDATE].detail == "0 of 408 requests failed, allowed 0 of them"


def test_a_failed_request_of_the_candidate_rejects() -> None:
    check = failures(build(passing(failed={Side.CANDIDATE: 1})))["chat/1", Side.CANDIDATE]
    assert not check.ok
    assert check.kind == "reject"
    assert check.detail == ("4 of 408 requests failed (4x the stream ended without a finish_reason), allowed 0 of them")
    assert "server.log" in check.advice


def test_a_failed_warm_up_is_a_failure_too() -> None:
    built = build(passing())
    name = "rounds/01-candidate"
    spoiled = tuple(
        request.model_copy(update={"ok": False, "error": "HTTP 500", "token_ns": ()})
        if (request.phase, request.cell) == ("warmup", "chat/1")
        else request
        for request in built.data[name].requests
    )
    data = {**built.data, name: replace(built.data[name], requests=spoiled)}
    check = failures(Built(built.config, built.recording, data))["chat/1", Side.CANDIDATE]
    assert (check.ok, check.kind) == (False, "reject")
    assert check.detail == "2 of 408 requests failed (2x HTTP 500), allowed 0 of them"


def test_a_failed_request_of_the_baseline_makes_it_no_reference() -> None:
    check = failures(build(passing(failed={Side.BASELINE: 1})))["chat/1", Side.BASELINE]
    assert not check.ok
    assert check.kind == "invalid"
    assert "no reference" in check.advice


def test_a_declared_share_of_failures_is_allowed() -> None:
    scene = passing(failed={Side.CANDIDATE: 2}, limits={"failed_share": 0.02})
    assert failures(build(scene))["chat/1", Side.CANDIDATE].ok
    more = passing(failed={Side.CANDIDATE: 3}, limits={"failed_share": 0.02})
    assert not failures(build(more))["chat/1", Side.CANDIDATE].ok


def test_without_a_round_there_is_no_failed_share() -> None:
    assert failures(build(Scene(rounds=0))) == {}


# ---------------------------------------------------------------- service levels


def test_without_a_declared_level_none_is_checked() -> None:
    assert levels(build(passing())) == []


def test_a_kept_level_holds_in_every_cell() -> None:
    checks = levels(build(passing(slo_ttft_p95_ms=500, slo_tpot_p95_ms=50)))
    assert [(check.name, check.cell) for check in checks] == [
        (name, cell) for name in ("slo_ttft_p95", "slo_tpot_p95") for cell in ("chat/1", "chat/4", "long/2")
    ]
    assert all(check.ok and check.side is Side.CANDIDATE for check in checks)


def test_a_broken_level_rejects_and_names_the_cell() -> None:
    broken = [check for check in levels(build(passing(slo_tpot_p95_ms=10))) if not check.ok]
    assert [check.cell for check in broken] == ["long/2"]
    assert broken[0].kind == "reject"
    assert broken[0].detail.startswith("p95 TPOT is 13.")
    assert broken[0].detail.endswith("its service level is 10 ms")


def test_a_p95_that_failed_requests_reach_breaks_every_level() -> None:
    checks = levels(build(passing(slo_ttft_p95_ms=1e6, failed={Side.CANDIDATE: 10})))
    assert not checks[0].ok
    assert checks[0].detail == "p95 TTFT is a failed request, its service level is 1e+06 ms"


def test_a_level_that_cannot_be_read_allows_no_pass() -> None:
    built = build(passing(slo_ttft_p95_ms=500))
    checks = levels(built, cold=Absent(absent="no cold start was seen"))
    assert not checks[-1].ok
    assert checks[-1].kind == "inconclusive"
    assert checks[-1].detail == ("p95 TTFT with cold starts cannot be held against its level: no cold start was seen")


def test_the_level_holds_with_cold_starts_too() -> None:
    built = build(passing(slo_ttft_p95_ms=500))
    assert not levels(built, cold=45_000.0)[-1].ok
    assert levels(built, cold=400.0)[-1].ok
    assert levels(build(passing()), cold=45_000.0) == []


def test_a_cell_of_one_token_answers_has_no_level_of_tpot() -> None:
    cells = (SceneCell("chat/1", 1, requests=100), SceneCell("class/1", 1, requests=100, output_tokens=1))
    checks = levels(build(passing(cells=cells, slo_tpot_p95_ms=50)))
    assert [check.cell for check in checks] == ["chat/1"]


def test_the_typical_value_is_the_geometric_mean() -> None:
    assert typical([1.0, 4.0]) == pytest.approx(2.0)
    assert typical([1.0, math.inf]) == math.inf
    gone = Absent(absent="no")
    assert typical([1.0, gone]) == gone


# ---------------------------------------------------------------- capacity


def duty(baseline: float, candidate: float) -> HardCheck:
    (check,) = capacity_checks({Side.BASELINE: baseline, Side.CANDIDATE: candidate})
    return check


def test_traffic_that_both_can_serve_is_fine() -> None:
    check = duty(0.4, 0.5)
    assert check.ok
    assert check.detail == "the declared traffic needs 40.0% of the baseline's time and 50.0% of the candidate's"


def test_traffic_that_only_the_candidate_cannot_serve_rejects_it() -> None:
    check = duty(0.9, 1.1)
    assert not check.ok
    assert check.kind == "reject"


def test_traffic_that_the_baseline_cannot_serve_either_shows_nothing() -> None:
    check = duty(1.2, 1.1)
    assert not check.ok
    assert check.kind == "inconclusive"
    assert check.advice == "declare more replicas, or the traffic of one replica"


def test_without_traffic_there_is_no_capacity_to_check() -> None:
    assert capacity_checks({}) == []
