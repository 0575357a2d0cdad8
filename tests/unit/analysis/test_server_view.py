"""What the server itself counted, held against what the client saw."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from servegate_action.analysis.checklist import judge
from servegate_action.analysis.judgement import Quantity
from servegate_action.analysis.rounds import gather
from servegate_action.analysis.server_view import ServerView, client_mean_ttft_ms, server_view
from servegate_action.records import Absent, RequestRecord
from tests.support.making import MS, failed, request, run
from tests.support.recordings import Built, build, judged, passing

ANSWERS = [request([100 * MS + index * MS for index in range(32)], prompt_tokens=100) for _ in range(10)]


def view(before: dict[str, float], after: dict[str, float], requests: Sequence[RequestRecord] = ANSWERS) -> ServerView:
    record = run().model_copy(update={"server_metrics_before": before, "server_metrics_after": after})
    return server_view(record, requests)


def test_a_server_without_counters_stays_unchecked() -> None:
    assert view({}, {}) == ServerView(None, None, None, None, None)


def test_counters_are_differences_over_the_cell() -> None:
    seen = view(
        {
            "vllm:generation_tokens_total": 5000.0,
            "vllm:prefix_cache_hits_total": 10.0,
            "vllm:num_preemptions_total": 1.0,
        },
        {
            "vllm:generation_tokens_total": 5320.0,
            "vllm:prefix_cache_hits_total": 510.0,
            "vllm:num_preemptions_total": 4.0,
        },
    )
    assert seen == ServerView(generated=320.0, cached_share=0.5, preemptions=3.0, mean_ttft_ms=None, miscounted=None)


def test_sglang_counts_cached_tokens_once_a_rank_as_it_does_generated_ones() -> None:
    names = ("sglang:generation_tokens_total", "sglang:cached_tokens_total")
    for ranks in (1, 4):
        seen = view(dict.fromkeys(names, 7.0), dict(zip(names, (7.0 + 320 * ranks, 7.0 + 250 * ranks), strict=True)))
        assert seen.cached_share == 0.25
    assert view({names[1]: 0.0}, {names[1]: 250.0}).cached_share == 0.25
    assert view(dict.fromkeys(names, 0.0), dict.fromkeys(names, 5.0), [failed()]).cached_share == 0.05


def test_the_server_s_own_ttft_is_a_mean_over_the_cell() -> None:
    name = "vllm:time_to_first_token_seconds"
    seen = view({f"{name}_sum": 1.0, f"{name}_count": 10.0}, {f"{name}_sum": 2.0, f"{name}_count": 30.0})
    assert seen.mean_ttft_ms == pytest.approx(50.0)
    assert view({f"{name}_sum": 0.0}, {f"{name}_sum": 0.0, f"{name}_count": 0.0}).mean_ttft_ms is None


@pytest.mark.parametrize(
    "name, counted, told",
    [
        ("vllm:generation_tokens_total", 320, True),
        ("vllm:generation_tokens_total", 334, True),
        ("vllm:generation_tokens_total", 336, False),
        ("vllm:generation_tokens_total", 300, False),
        ("vllm:generation_tokens_total", 640, False),
        ("llamacpp:tokens_predicted_total", 320, True),
        ("sglang:generation_tokens_total", 640, True),
        ("sglang:generation_tokens_total", 500, False),
    ],
)
def test_a_miscount_is_more_than_a_stop_token_per_request(name: str, counted: int, told: bool) -> None:
    """10 requests of 32 tokens: 15 tokens either way may be stop tokens; SGLang may count once per rank."""
    assert (view({name: 0.0}, {name: float(counted)}).miscounted is None) is told


@pytest.mark.parametrize("before, after", [({}, {"x": 1.0}), ({"x": 1.0}, {})])
def test_a_reading_that_was_not_answered_is_no_count_of_zero(before: dict[str, float], after: dict[str, float]) -> None:
    """A counter that had reached 5,000 before the cell would otherwise look like 5,000 tokens made in it."""
    names = ("vllm:generation_tokens_total", "vllm:prefix_cache_hits_total")
    first, last = ({**dict.fromkeys(names, 5000.0), **one} if one else {} for one in (before, after))
    assert view(first, last) == ServerView(None, None, None, None, None, unread=True)


def test_a_counter_that_a_server_names_only_after_its_first_use_began_at_0() -> None:
    assert view({"vllm:x": 1.0}, {"vllm:generation_tokens_total": 320.0}).generated == 320.0


def test_cells_with_failed_requests_are_left_alone() -> None:
    name = "vllm:generation_tokens_total"
    assert view({name: 0.0}, {name: 1.0}, [*ANSWERS, failed()]).miscounted is None


def test_a_count_for_a_cell_without_tokens_is_a_miscount() -> None:
    name = "sglang:generation_tokens_total"
    assert view({name: 0.0}, {name: 500.0}, []).miscounted is not None


def test_without_prompt_tokens_there_is_no_cached_share() -> None:
    silent = [one.model_copy(update={"prompt_tokens": None}) for one in ANSWERS]
    name = "vllm:prefix_cache_hits_total"
    assert view({name: 0.0}, {name: 5.0}, silent).cached_share is None


def test_the_client_s_mean_counts_from_the_real_send_and_only_successes() -> None:
    assert client_mean_ttft_ms([ANSWERS[0], failed()]) == pytest.approx(100.0)
    assert client_mean_ttft_ms([failed()]) is None


# ---------------------------------------------------------------- in a run


def counting(built: Built, **after: float) -> Built:
    """The run with candidate servers that offer these counters, from 0."""
    names = {name.replace("_0_", ":"): value for name, value in after.items()}
    zeros = dict.fromkeys(names, 0.0)
    launches = tuple(
        one.model_copy(
            update={
                "cells": tuple(
                    run_.model_copy(update={"server_metrics_before": zeros, "server_metrics_after": names})
                    for run_ in one.cells
                )
            }
        )
        if one.side == "candidate"
        else one
        for one in built.recording.launches
    )
    return Built(built.config, built.recording.model_copy(update={"launches": launches}), built.data)


def test_cache_hits_that_only_the_server_counts_are_found() -> None:
    built = counting(build(passing(rounds=1)), vllm_0_prefix_cache_hits_total=26_000.0)
    evidence = gather(built.config, built.recording, built.data)
    assert evidence.rounds[0].candidate.cached_share["chat/1"] == pytest.approx(26_000 / 102 / 515, rel=0.01)
    assert evidence.rounds[0].baseline.cached_share["chat/1"] == 0.0


def test_a_launch_without_files_has_no_view_to_read() -> None:
    built = build(passing(rounds=1))
    evidence = gather(built.config, built.recording, {})
    assert evidence.launches[0].cached_share == {}


def test_row_5_puts_the_server_s_ttft_beside_the_client_s() -> None:
    name = "vllm_0_time_to_first_token_seconds"
    built = counting(
        build(passing()), **{f"{name}_sum": 4.0, f"{name}_count": 100.0, "vllm_0_num_preemptions_total": 2.0}
    )
    lines = [one for one in judge(built.config, built.recording, built.data).rows[4].lines if one.cell == "chat/1"]
    shown = {one.label: (one.baseline, one.candidate) for one in lines}
    silent = Absent(absent="the server does not count it")
    assert shown["mean TTFT, the server's own"] == (silent, Quantity(value=40.0, unit="ms"))
    assert shown["preemptions"] == (silent, Quantity(value=2.0, unit=""))
    assert isinstance(shown["mean TTFT, the client's"][0], Quantity)


def test_row_5_says_nothing_of_servers_that_count_nothing() -> None:
    assert not any("server" in line.label for line in judged(passing()).rows[4].lines)
