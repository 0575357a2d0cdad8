"""From a recording to a judgement: every verdict, all eight rows, and the same words each time."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from servegate_action.analysis import headline
from servegate_action.analysis.checklist import judge, series_of, standing, trace_csv
from servegate_action.analysis.judgement import Judgement, Mark, Outcome, Quantity, Row, Word
from servegate_action.analysis.metrics import LaunchData
from servegate_action.config.cost import Cost
from servegate_action.records import Absent, Side, TokenSource
from tests.support.recordings import (
    CELLS,
    Built,
    SceneCell,
    build,
    inconclusive,
    invalid,
    judged,
    killed,
    nothing_measured,
    on_cpu,
    passing,
    rejecting,
)

SCENES = {
    "passing": passing(),
    "rejecting": rejecting(),
    "inconclusive": inconclusive(),
    "invalid": invalid(),
    "killed": killed(),
    "nothing measured": nothing_measured(),
    "cpu": on_cpu(),
    "sleeping": passing(scale_to_zero=True, requests_per_hour=12.0, slo_ttft_p95_ms=60_000, migration=True),
    "open loop": passing(cells=(*CELLS[:1], SceneCell("open@4", None, rate=4.0, requests=80))),
}


def again(built: Built) -> Judgement:
    return judge(built.config, built.recording, built.data)


def row(judgement: Judgement, number: int) -> Row:
    return judgement.rows[number - 1]


def labels(found: Row) -> list[str]:
    return [line.label for line in found.lines]


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    "name, word",
    [
        ("passing", Word.PASS),
        ("rejecting", Word.REJECT),
        ("inconclusive", Word.INCONCLUSIVE),
        ("invalid", Word.INVALID),
        ("killed", Word.INCONCLUSIVE),
        ("nothing measured", Word.INCONCLUSIVE),
        ("cpu", Word.PASS),
    ],
)
def test_each_scene_gets_its_verdict(name: str, word: Word) -> None:
    assert judged(SCENES[name]).word is word


@pytest.mark.parametrize("name", SCENES)
def test_all_eight_rows_are_there_in_their_order_whatever_happened(name: str) -> None:
    judgement = judged(SCENES[name])
    assert [one.number for one in judgement.rows] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [one.title for one in judgement.rows] == [
        "Same model, same quantization, same batch size",
        "Tokens per GPU-hour",
        "GPU utilization",
        "Decode tok/s",
        "p95 TTFT and p95 TPOT",
        "Cost per 1M tokens",
        "Compared against the current serving stack",
        "No metric regressed",
    ]
    assert all(one.lines for one in judgement.rows)


@pytest.mark.parametrize("name", SCENES)
def test_a_judgement_survives_its_own_json(name: str) -> None:
    judgement = judged(SCENES[name])
    assert Judgement.model_validate_json(judgement.model_dump_json()) == judgement


@pytest.mark.parametrize("name", ["passing", "rejecting", "sleeping"])
def test_the_same_recording_gives_the_same_bytes(name: str) -> None:
    built = build(SCENES[name])
    assert again(built).model_dump_json() == again(built).model_dump_json()


def test_a_killed_run_never_passes_however_good_its_rounds() -> None:
    judgement = judged(killed(rounds=5))
    assert judgement.rounds_used == 4
    assert all(metric.outcome is Outcome.PASS for metric in judgement.metrics if metric.gated)
    assert judgement.word is Word.INCONCLUSIVE
    assert "the run did not come to its end" in judgement.headline


def test_a_killed_run_that_was_rejected_at_a_look_stays_rejected() -> None:
    assert judged(rejecting(state="cancelled")).word is Word.REJECT


def test_a_run_that_goes_on_is_judged_as_it_stands() -> None:
    built = build(passing(state="running"))
    decision = standing(built.config, built.recording, built.data)
    assert decision.word is Word.PASS
    assert decision.next_look is None
    early = build(inconclusive(rounds=4, state="running"))
    assert standing(early.config, early.recording, early.data).next_look == 6


def test_a_finished_run_that_could_have_gone_on_says_so() -> None:
    judgement = judged(inconclusive(rounds=4))
    assert judgement.word is Word.INCONCLUSIVE
    assert "no further round was run" in judgement.headline
    assert "no further round" not in judged(inconclusive()).headline


def test_a_failed_request_rejects_with_its_cell() -> None:
    judgement = judged(passing(failed={Side.CANDIDATE: 2}))
    assert judgement.word is Word.REJECT
    assert "candidate, chat/1: 8 of 408 requests failed" in judgement.headline


def test_a_broken_service_level_rejects() -> None:
    judgement = judged(passing(slo_tpot_p95_ms=10))
    assert judgement.word is Word.REJECT
    assert row(judgement, 5).mark is Mark.BAD
    assert row(judgement, 5).lines[0].label == "service level, p95 TPOT"


def test_a_trace_of_traffic_is_needed_to_price_it() -> None:
    built = build(passing())
    cost = Cost.model_validate({"gpu_hour_usd": 2.5, "traffic": {"trace": "day.jsonl"}})
    config = built.config.model_copy(update={"cost": cost})
    assert judge(config, built.recording, built.data).word is Word.INCONCLUSIVE
    day = tuple(float(second) for second in range(0, 86_400, 40))
    assert judge(config, built.recording, built.data, arrivals_s=day).word is Word.PASS
    assert standing(config, built.recording, built.data, arrivals_s=day).word is Word.PASS


# ---------------------------------------------------------------- rows


def test_row_1_shows_both_tuples_and_how_well_they_are_known() -> None:
    first = row(judged(passing()), 1)
    assert first.mark is Mark.OK
    assert first.lines[0].verdict == "proven"
    assert labels(first) == [
        *("model, quantization, batch size", "model", "quantization", "batch size"),
        *("answers", "answers to long prompts", "answers to many at once"),
    ]
    differs = row(judged(invalid()), 1)
    assert differs.mark is Mark.BAD
    assert differs.lines[0].verdict == "differs"
    assert "fp8_e4m3" in str(differs.lines[0].candidate)


def test_row_1_is_open_when_nobody_identified_the_stacks() -> None:
    built = build(passing(rounds=0))
    bare = built.recording.model_copy(update={"identities": {}})
    first = row(judge(built.config, bare, {}), 1)
    assert first.mark is Mark.OPEN
    assert first.lines[0].verdict == "unknown"


def test_row_1_grades_a_part_that_cannot_be_told_as_unknown() -> None:
    built = build(passing(rounds=0))
    identity = built.recording.identities[Side.CANDIDATE]
    silent = identity.model_copy(
        update={"batch": identity.batch.model_copy(update={"cap": Absent(absent="it does not say")})}
    )
    recording = built.recording.model_copy(
        update={"identities": {**built.recording.identities, Side.CANDIDATE: silent}}
    )
    first = row(judge(built.config, recording, {}), 1)
    assert first.lines[0].verdict == "unknown"
    assert first.mark is Mark.OPEN


def test_row_2_shows_the_mix_first_then_cells_and_the_effective_rate() -> None:
    second = row(judged(passing()), 2)
    assert labels(second)[:4] == ["tokens per GPU-hour", "output tok/s", "output tok/s", "output tok/s"]
    assert "effective tokens per GPU-hour" in labels(second)
    assert "effective tokens per GPU-hour" not in labels(row(judged(passing(cost=False)), 2))
    assert "goodput" in labels(second)


def test_the_line_that_stands_worst_leads_its_row() -> None:
    fifth = row(judged(rejecting()), 5)
    assert fifth.mark is Mark.BAD
    assert fifth.lines[0].label == "p95 TPOT"
    failing = row(judged(passing(failed={Side.CANDIDATE: 2})), 2)
    assert failing.lines[0].label == "failed requests"
    assert failing.lines[0].cell == "chat/1"
    assert isinstance(failing.lines[0].baseline, Absent)


def test_row_3_names_the_counter_and_says_why_it_is_not_gated() -> None:
    third = row(judged(passing()), 3)
    assert third.notes[0] == "counter: GPM SM_UTIL"
    assert third.lines[0].label == "GPU utilization"
    cpu = row(judged(on_cpu()), 3)
    assert cpu.notes[0] == "counter: CPU share of the stack's process tree"
    assert cpu.notes[1].startswith("CPU utilization: an idle core is not an idle GPU")
    assert cpu.lines[0].label == "CPU utilization"
    assert cpu.mark is Mark.INFO


def test_row_3_says_when_there_is_no_counter() -> None:
    built = build(passing(rounds=0))
    dark = built.recording.model_copy(update={"telemetry": Absent(absent="no driver")})
    assert row(judge(built.config, dark, {}), 3).notes == ("no counter: no driver",)
    assert not isinstance(built.recording.telemetry, Absent)
    silent = built.recording.telemetry.model_copy(
        update={"utilization_counter": Absent(absent="not supported"), "notes": ("vGPU",)}
    )
    notes = row(judge(built.config, built.recording.model_copy(update={"telemetry": silent}), {}), 3).notes
    assert notes == ("no counter: not supported", "vGPU")


def test_on_a_cpu_the_rows_say_what_a_gpu_hour_is() -> None:
    note = "without a GPU, a GPU-hour or GPU-second here is one of the whole machine"
    assert all(note in row(judged(on_cpu()), number).notes for number in (2, 6))
    assert note in row(judged(on_cpu(cost=True, electricity=False)), 6).notes
    assert not any(note in one.notes for one in judged(passing()).rows)


def test_row_4_keeps_prefill_apart_and_shows_each_user_s_pace() -> None:
    fourth = row(judged(passing()), 4)
    assert fourth.lines[0].label == "decode tok/s, server"
    notes = {line.baseline.note for line in fourth.lines if isinstance(line.baseline, Quantity)}
    assert {"median", "p5"} <= notes


def test_row_5_shows_successes_beside_all_and_the_real_send_in_open_loop() -> None:
    fifth = row(judged(SCENES["open loop"]), 5)
    assert "p95 TTFT, successes only" in labels(fifth)
    assert any(
        isinstance(line.baseline, Quantity) and line.baseline.note == "from the real send" for line in fifth.lines
    )


def test_row_5_leaves_out_the_tpot_of_one_token_answers() -> None:
    cells = (CELLS[0], SceneCell("class/1", 1, requests=80, output_tokens=1))
    lines = [line for line in row(judged(passing(cells=cells)), 5).lines if line.cell == "class/1"]
    assert "p95 TPOT, successes only" not in [line.label for line in lines]


def test_row_5_mixes_cold_starts_in_where_a_side_sleeps() -> None:
    fifth = row(judged(SCENES["sleeping"]), 5)
    assert "p95 TTFT with cold starts" in labels(fifth)
    assert "service level, p95 TTFT with cold starts" in labels(fifth)


def test_row_6_itemises_the_bill_and_tells_where_they_meet() -> None:
    sixth = row(judged(SCENES["sleeping"]), 6)
    for label in ("cost per 1M output tokens", "item: loading", "item: migration", "time off", "energy at the grid"):
        assert label in labels(sixth)
    assert any("closed form for Poisson" in note for note in sixth.notes)
    assert any("cheaper" in note for note in sixth.notes)


def test_row_6_without_prices_shows_gpu_seconds_and_says_what_is_missing() -> None:
    sixth = row(judged(passing(cost=False)), 6)
    assert sixth.lines[0].label == "GPU-seconds per 1M output tokens"
    assert sixth.lines[0].verdict == "shown"
    assert sixth.mark is Mark.INFO
    assert sixth.notes == ("no line item: no prices are declared: the configuration has no `cost` block",)


def test_a_cell_that_never_got_steady_leaves_rows_without_rates_and_the_gate_open() -> None:
    built = build(passing())
    launches = tuple(
        one.model_copy(
            update={"cells": tuple(run.model_copy(update={"steady_end_ns": run.steady_start_ns}) for run in one.cells)}
        )
        for one in built.recording.launches
    )
    judgement = judge(built.config, built.recording.model_copy(update={"launches": launches}), built.data)
    assert judgement.word is not Word.PASS
    joule = next(line for line in row(judgement, 6).lines if line.label == "tokens per joule, at the board")
    assert joule.baseline == Absent(absent="the cell never reached a steady state")


def test_a_calibration_reads_the_same_series_as_the_verdict() -> None:
    built = build(passing())
    keys = [one.key for one in series_of(built.config, built.recording, built.data)]
    assert keys == [metric.key for metric in again(built).metrics]


def test_row_7_lists_what_differs_and_what_moving_costs() -> None:
    seventh = row(judged(passing(migration=True)), 7)
    assert seventh.lines[0].verdict == "measured"
    assert seventh.lines[0].allowed == "4 complete rounds"
    assert "container" in labels(seventh)
    assert seventh.notes == ("moving brings a migration cost of 4,800 USD",)
    assert row(judged(passing(cost=False)), 7).notes == ("moving brings a migration cost; none is declared",)
    assert row(judged(passing(endpoint=True, cost=False)), 7).mark is Mark.OPEN


def test_row_7_without_another_container_brings_no_migration_cost() -> None:
    built = build(passing())
    same = built.recording.identities[Side.CANDIDATE]
    recording = built.recording.model_copy(update={"identities": dict.fromkeys(Side, same)})
    assert row(judge(built.config, recording, built.data), 7).notes == ()


def test_row_8_counts_the_gated_metrics() -> None:
    eighth = row(judged(passing()), 8)
    assert eighth.mark is Mark.OK
    assert eighth.lines[0].candidate == "15 of 15 within their limit, 0 regressed, 0 undecided"
    bad = row(judged(rejecting()), 8)
    assert bad.mark is Mark.BAD
    assert row(judged(invalid()), 8).mark is Mark.OPEN
    assert any(note.startswith("check failed: the quantization differs") for note in row(judged(invalid()), 8).notes)


# ---------------------------------------------------------------- the rest of a judgement


def test_a_judgement_says_who_when_where_and_on_what() -> None:
    judgement = judged(passing())
    assert judgement.date == "2026-11-30T10:13:20Z"
    assert judgement.operator == "ada"
    assert judgement.accelerator == "1x NVIDIA H100 80GB HBM3"
    assert judgement.requests_replayed == 2400
    assert judgement.distinct_metrics == 15
    assert judgement.rounds_planned == 8
    assert judged(on_cpu()).accelerator == "AMD EPYC 9R14, 32 CPUs"


def test_launches_and_traces_are_those_of_the_rounds_that_count() -> None:
    judgement = judged(killed())
    assert [(one.round, one.side) for one in judgement.launches] == [
        (1, Side.BASELINE),
        (1, Side.CANDIDATE),
        (2, Side.BASELINE),
        (2, Side.CANDIDATE),
    ]
    assert len(judgement.traces) == 4 * 3
    assert judgement.launches[0].seconds_to_first_token == pytest.approx(38.0, rel=0.02)
    assert judgement.notes == ("round 3, candidate: the launch is running",)


def test_stacks_that_servegate_did_not_start_have_no_cold_start() -> None:
    judgement = judged(passing(endpoint=True, cost=False))
    assert judgement.launches[0].seconds_to_first_token == Absent(absent="servegate did not start this stack")
    assert judgement.word is Word.INCONCLUSIVE


def test_a_regression_is_to_be_mended_or_its_limit_raised_apart() -> None:
    assert judged(rejecting()).advice[-1] == headline.REGRESSED
    assert headline.REGRESSED not in judged(passing(failed={Side.CANDIDATE: 1})).advice


def test_voided_attempts_are_listed_with_their_reason() -> None:
    judgement = judged(passing(voided_round=2))
    assert judgement.voided == (
        "round 2, attempt 1, candidate: thermal slowdown for 4 s",
        "round 2, attempt 1, baseline: thermal slowdown for 4 s",
    )
    assert judgement.word is Word.PASS


def test_the_failure_of_a_run_is_kept() -> None:
    judgement = judged(nothing_measured())
    assert judgement.failure is not None
    assert judgement.failure.what == "the candidate exited with code 1 in round 2"
    assert judgement.headline == (
        "INCONCLUSIVE: 0 of 8 rounds used, the run did not come to its end: the candidate exited with code 1 in round 2"
    )
    assert judgement.requests_replayed == 0


def test_a_run_that_broke_off_advises_what_its_failure_does_and_no_larger_budget() -> None:
    built = build(nothing_measured())
    judgement = judge(built.config, built.recording, built.data)
    assert built.recording.failure is not None
    assert built.recording.failure.next_step in judgement.advice
    assert not [text for text in judgement.advice if "budget" in text or text.startswith("run it again")]


def noted(**changes: object) -> tuple[str, ...]:
    """The notes of a passing run whose requests were changed."""
    built = build(passing(rounds=2))
    data = {
        name: LaunchData(
            tuple(request.model_copy(update=changes) for request in one.requests), one.telemetry, one.samples
        )
        for name, one in built.data.items()
    }
    return judge(built.config, built.recording, data).notes


def test_events_of_several_tokens_and_fallback_counts_are_noted() -> None:
    assert noted() == ()
    assert noted(output_tokens=64, requested_output_tokens=64) == (
        "some token events carried more than one token: gaps between events are not gaps between tokens",
    )
    assert noted(resent=True)[0].startswith("baseline: ")
    assert noted(resent=True)[0].endswith(
        " requests met a connection that the server had just closed, and were sent again"
    )
    assert noted(token_source=TokenSource.EVENTS) == (
        "output tokens were counted by events, because the server reports no usage",
    )


def test_reads_that_held_several_events_are_noted_per_side() -> None:
    built = build(passing(rounds=1))
    launches = tuple(
        one.model_copy(
            update={
                "cells": tuple(
                    run.model_copy(
                        update={"client": run.client.model_copy(update={"reads": share, "coalesced_reads": 30})}
                    )
                    for run in one.cells
                )
            }
        )
        for one, share in zip(built.recording.launches, (0, 100), strict=True)
    )
    recording = built.recording.model_copy(update={"launches": launches, "dialect": None})
    assert judge(built.config, recording, built.data).notes == (
        "candidate: 30% of the reads held more than one token event, stamped as of the last",
    )


def test_answers_under_load_that_differ_are_noted_by_cell() -> None:
    """Every fourth answer of the candidate reads otherwise in one cell; failed requests are no answers."""
    built = build(passing(rounds=2))
    data = {}
    for name, one in built.data.items():
        mine = [request for request in one.requests if request.phase == "measured" and request.cell == "chat/1"]
        other = {request.id for request in mine[::4]} if name.endswith("candidate") else set()
        requests = tuple(
            request.model_copy(update={"text_sha256": "f" * 64}) if request.id in other else request
            for request in one.requests
        )
        data[name] = LaunchData(requests, one.telemetry, one.samples)
    (note,) = judge(built.config, built.recording, data).notes
    assert note.startswith("chat/1: 75% of ")
    assert note.endswith(" answers under load have the same text on both stacks")


def test_the_method_names_looks_level_and_both_error_rates() -> None:
    method = judged(passing()).method
    assert "looked at after 4, 6, 8 rounds" in method
    assert f"levels that rise with the look ({judged(passing()).level:.4g} at this one)" in method
    assert "the noise is estimated from the " in method
    assert method.count("at most 5 %") == 2


# ---------------------------------------------------------------- the raw trace


def test_the_raw_trace_holds_every_second_of_every_launch() -> None:
    built = build(passing(rounds=1))
    rows = list(csv.DictReader(io.StringIO(trace_csv(built.recording, built.data))))
    assert list(rows[0]) == ["round", "attempt", "stack", "cell", "second", "output_tokens"]
    chat = [one for one in rows if one["cell"] == "chat/1" and one["stack"] == "baseline"]
    assert sum(float(one["output_tokens"]) for one in chat) == pytest.approx(102 * 32)
    assert [int(one["second"]) for one in chat] == list(range(len(chat)))


def test_a_launch_without_files_has_a_silent_trace() -> None:
    built = build(passing(rounds=1))
    text = trace_csv(built.recording, {})
    assert {line.rsplit(",", 1)[1] for line in text.splitlines()[1:]} == {"0.00"}


def test_a_scene_can_be_played_with_other_cells() -> None:
    assert judged(replace(passing(), cells=CELLS[:1])).word is Word.PASS
