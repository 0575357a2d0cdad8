"""Which launches count."""

from __future__ import annotations

from dataclasses import replace

from servegate_action.analysis.rounds import Evidence, gather
from servegate_action.records import LaunchRecord, LaunchState, Side
from tests.support.recordings import Built, Scene, build, killed, passing


def gathered(built: Built) -> Evidence:
    return gather(built.config, built.recording, built.data)


def with_launches(built: Built, *launches: LaunchRecord) -> Built:
    return Built(built.config, built.recording.model_copy(update={"launches": launches}), built.data)


def test_every_complete_round_counts_with_both_sides_in_their_place() -> None:
    evidence = gathered(build(passing()))
    assert [one.number for one in evidence.rounds] == [1, 2, 3, 4]
    assert all(one.baseline.record.side is Side.BASELINE for one in evidence.rounds)
    assert [one.record.side for one in evidence.of(Side.CANDIDATE)] == [Side.CANDIDATE] * 4
    assert evidence.left_out == ()


def test_a_file_that_was_cut_off_is_told() -> None:
    built = build(passing())
    name = "rounds/01-baseline"
    torn = replace(built.data[name], damaged="telemetry.jsonl: the last line was cut off while it was written")
    found = gather(built.config, built.recording, {**built.data, name: torn}).left_out
    assert found == ("rounds/01-baseline: telemetry.jsonl: the last line was cut off while it was written",)


def test_an_unfinished_round_is_left_out_with_the_reason() -> None:
    evidence = gathered(build(killed()))
    assert len(evidence.rounds) == 2
    assert evidence.left_out == ("round 3, candidate: the launch is running",)


def test_a_voided_attempt_is_not_read_and_the_next_one_counts() -> None:
    built = build(passing(voided_round=2))
    evidence = gathered(built)
    assert [one.baseline.record.attempt for one in evidence.rounds] == [1, 2, 1, 1]
    assert all(one.record.state is not LaunchState.VOIDED for one in evidence.launches)


def test_launches_of_different_attempts_make_no_round() -> None:
    built = build(passing(voided_round=2))
    kept = [
        one
        for one in built.recording.launches
        if not (one.round == 2 and one.attempt == 2 and one.side is Side.CANDIDATE)
    ]
    first = next(one for one in kept if one.round == 2 and one.attempt == 1 and one.side is Side.CANDIDATE)
    kept[kept.index(first)] = first.model_copy(update={"state": LaunchState.COMPLETE})
    assert len(gathered(with_launches(built, *kept)).rounds) == 1


def test_rounds_after_a_gap_are_not_used_and_it_is_said() -> None:
    built = build(passing())
    kept = [one for one in built.recording.launches if not (one.round == 2 and one.side is Side.BASELINE)]
    evidence = gathered(with_launches(built, *kept))
    assert [one.number for one in evidence.rounds] == [1]
    assert evidence.left_out == (
        "round 3: not used, because round 2 is not complete",
        "round 4: not used, because round 2 is not complete",
    )


def test_a_launch_whose_files_are_missing_is_not_complete() -> None:
    built = build(passing())
    del built.data["rounds/01-candidate"]
    evidence = gathered(built)
    assert evidence.rounds == ()
    assert evidence.left_out[0] == "round 1, candidate: not measured in this launch: chat/1, chat/4, long/2"


def test_cached_tokens_are_a_share_of_all_prompt_tokens() -> None:
    built = build(passing(rounds=1))
    name = "rounds/01-baseline"
    half = [one.model_copy(update={"cached_tokens": 100, "prompt_tokens": 200}) for one in built.data[name].requests]
    silent = [one.model_copy(update={"prompt_tokens": None}) for one in built.data[name].requests]
    for requests, share in ((half, 0.5), (silent, 0.0)):
        data = {
            **built.data,
            name: type(built.data[name])(requests, built.data[name].telemetry, built.data[name].samples),
        }
        evidence = gather(built.config, built.recording, data)
        assert evidence.launches[0].cached_share["chat/1"] == share


def test_nothing_measured_is_no_round() -> None:
    evidence = gathered(build(Scene(rounds=0)))
    assert evidence.launches == ()
    assert evidence.rounds == ()
