from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from servegate_action.analysis.judgement import CostComparison, Judgement, Mark, Outcome
from servegate_action.config.limits import Limit
from servegate_action.github import selfcheck
from servegate_action.records import Absent, Change, Failure
from servegate_action.report import EarlierRun, Marker, Place, comment, summary
from servegate_action.report.wording import Language, wording
from tests.support import judgements, markdown, recordings
from tests.support.hostile import HOSTILE

Make = Callable[[], Judgement]


def priced(cost: CostComparison) -> Judgement:
    """A passed gate with another bill."""
    return judgements.passed().model_copy(update={"cost": cost})


VERDICTS = pytest.mark.parametrize(
    "make", [*judgements.ALL.values(), judgements.without_rounds], ids=lambda make: make.__name__
)
LANGUAGES = pytest.mark.parametrize("language", ["en", "es"])


def checklist(text: str) -> list[list[str]]:
    return markdown.tables(text)[0]


@VERDICTS
@LANGUAGES
def test_every_comment_has_the_eight_rows_with_all_their_columns(make: Make, language: Language) -> None:
    text = comment(make(), language=language)
    rows = checklist(text)[1:]
    assert [row[0][0] for row in rows] == list("12345678")
    assert {len(row) for row in rows} == {7}
    assert set(markdown.source_columns(text)) == {7}
    titles = wording(language).row_titles
    assert all(row[1].startswith(f"**{title}**") for row, title in zip(rows, titles, strict=True))


@VERDICTS
@LANGUAGES
def test_every_comment_passes_the_last_look_before_it_is_posted(make: Make, language: Language) -> None:
    found = selfcheck.findings(comment(make(), language=language), expected=selfcheck.Expected())
    assert found == []


@VERDICTS
def test_the_first_line_is_the_marker_and_the_second_the_verdict(make: Make) -> None:
    j = make()
    first, second = comment(j).splitlines()[:2]
    head = "5d6e7f8" if j.change else "-"
    assert first == f"<!-- servegate:v1 gate=llama-8b-chat head={head} run=1234.1 verdict={j.word.value.lower()} -->"
    assert second.startswith("### ")
    assert second.endswith(f": {wording('en').words[j.word]}")


def test_the_deciding_sentence_has_interval_and_limit() -> None:
    text = comment(judgements.rejected())
    assert "**p95 TPOT long/2: +10.3 %** (96 % interval +9.4 … +11.2, 6 rounds), allowed +5 %" in text
    assert "5 of 8 checks hold." in text


def test_what_was_compared_on_what_is_said_in_one_line() -> None:
    text = comment(judgements.rejected())
    assert (
        "Baseline **vLLM 0.33** → candidate **Luminal build 412** · workload `3f9c00000000` · 1x NVIDIA H100 80GB HBM3"
        " · 6 rounds, alternating · noise ±0.7 %"
    ) in text
    assert "reproduce: `servegate judge servegate-report`" in text


def test_marks_are_said_in_words_too() -> None:
    rows = checklist(comment(judgements.rejected()))[1:]
    assert [(row[0][0], row[6]) for row in rows if "❌" in row[0]] == [(n, "**REJECT**") for n in "258"]
    assert all(row[6] for row in rows)


def test_higher_is_better_keeps_its_real_sign_and_values_have_equal_digits() -> None:
    row = checklist(comment(judgements.rejected()))[4]
    assert [cell.replace("\u00a0", " ") for cell in row[2:6]] == [
        "175 tok/s",
        "179 tok/s",
        "+2.6 % (+2.2 … +3.0)",
        "−2 %",
    ]


# ---------------------------------------------------------------- surroundings


def test_a_pull_request_that_edits_the_gate_is_told_so() -> None:
    j = judgements.passed()
    assert j.change is not None
    edits = j.change.model_copy(update={"policy_edits": ("limits.ttft_p95", "rounds.max")})
    text = comment(j.model_copy(update={"change": edits}))
    assert "> [!IMPORTANT]" in text
    assert "edits the gate (`limits.ttft_p95`, `rounds.max`)" in text
    assert "It is judged by the policy of base commit `1a2b3c4`" in text
    assert "[!IMPORTANT]" not in comment(j)


def test_a_head_that_moved_on_is_named() -> None:
    place = Place(newer_head="aaaabbbbccccdddd")
    text = comment(judgements.passed(), place=place)
    assert "this is the verdict for `5d6e7f8`; the head of the pull request is now `aaaabbb`" in text
    assert "Outdated" not in comment(judgements.without_rounds(), place=place)


def test_a_run_that_stopped_early_says_why() -> None:
    assert "> The run stopped early: the candidate exited with code 1 in round 2" in comment(
        judgements.without_rounds()
    )


def test_links_lead_to_run_and_artifacts() -> None:
    url = "https://github.com/acme/serving/actions/runs/1234/artifacts/9"
    text = comment(judgements.passed(), place=Place(artifacts_url=url, artifacts_until="2027-02-28", directory="out"))
    assert f"[artifacts, kept until 2027-02-28](<{url}>)" in text
    assert "[Run 1234.1](<https://github.com/acme/serving/actions/runs/1234>)" in text
    assert "servegate judge out" in text
    assert "[artifacts](<" in comment(judgements.passed(), place=Place(artifacts_url=url))


def test_earlier_runs_are_listed() -> None:
    earlier = [
        EarlierRun(
            head="0123456789abcdef", verdict="REJECT", run="12.1", url="https://github.com/acme/serving/actions/runs/12"
        ),
        EarlierRun(head="fedcba9876543210", verdict="PASS", run="11.1"),
    ]
    table = markdown.tables(comment(judgements.passed(), earlier=earlier))[-1]
    assert table[1] == ["`0123456`", "REJECT", "[12.1](<https://github.com/acme/serving/actions/runs/12>)"]
    assert table[2] == ["`fedcba9`", "PASS", "11.1"]


@pytest.mark.parametrize("gate", ["x--> <b>", "--", "a b", "\n", ""])
def test_nothing_ends_the_marker_early(gate: str) -> None:
    line = str(Marker(gate=gate, head="5d6e7f8", run="1.1", verdict="PASS"))
    assert line.count("-->") == 1
    assert line.endswith(" verdict=pass -->")
    assert "\n" not in line
    assert "=  " not in line


# ---------------------------------------------------------------- what is in the sections


def test_a_rejection_says_how_sure_it_is() -> None:
    assert (
        "**p95 TPOT `long/2`**: +10.3 % (+9.4 … +11.2), allowed +5 %, 6 rounds (Holm-adjusted p &lt; 0.001 over 15 metrics)"
        in comment(judgements.rejected())
    )


def test_an_undecided_metric_says_how_many_rounds_would_decide() -> None:
    assert "(undecided; about 16 rounds would decide)" in comment(judgements.inconclusive())


def test_a_win_and_a_loss_within_allowance_are_named() -> None:
    j = judgements.slower()
    assert {one.outcome for one in j.metrics if one.worse_within_allowance} == {Outcome.PASS}
    text = comment(j)
    assert "Slower, within allowance: p95 TPOT +1.0\u00a0% (+0.9" in text
    assert "Shown to be better: tokens per GPU-hour +" in text


def test_metrics_without_numbers_are_named_once_with_their_reason() -> None:
    text = comment(judgements.without_rounds())
    assert text.count("(not measured): no complete round\n") == 1


def test_a_failed_check_is_named_with_its_place_and_advice() -> None:
    text = comment(judgements.invalid())
    said = "**identity quantization**: the quantization differs: baseline weights bf16, activations bf16, "
    assert said in text
    assert "candidate weights fp8_e4m3, " in text
    assert "fp8\\_e4m3" not in text
    assert "- serve the same quantization on both sides" in text
    failed = comment(judgements.with_failures())
    assert "**failed share** (candidate, `chat/1`): 12 of 408 requests failed (12x the stream ended" in failed


def test_a_passed_gate_says_that_nothing_got_worse() -> None:
    text = comment(judgements.passed())
    assert "Every gated metric is shown to be within its limit." in text
    assert "Slower, within allowance" not in text


def test_cost_has_items_a_total_a_chart_and_its_numbers() -> None:
    text = comment(judgements.passed())
    bill = next(table for table in markdown.tables(text) if table[0][0] == "Item")
    assert [row[0] for row in bill[1:]] == [
        "busy",
        "warm idle",
        "power",
        "power penalty",
        "loading",
        "migration",
        "**Total**",
    ]
    assert "xychart-beta" in text
    assert "Break-even: the candidate is cheaper below one request per 48.6 s, the baseline above it" in text


def test_a_cost_that_was_not_computed_says_why() -> None:
    assert "No cost was computed: no complete round\n" in comment(judgements.without_rounds())


def test_a_fragile_saving_and_a_migration_that_never_pays_are_said() -> None:
    cost = judgements.cost().model_copy(
        update={
            "fragile": True,
            "payback_tokens": Absent(absent="It never pays for itself."),
            "break_even_requests_per_hour": Absent(absent="none"),
        }
    )
    text = comment(priced(cost))
    assert "Fragile: the declared traffic lies within 20 % of break-even." in text
    assert "Moving to the candidate costs 60.00 USD once. It never pays for itself." in text


def test_a_curve_far_from_the_declared_traffic_is_shown_as_a_whole() -> None:
    cost = judgements.cost().model_copy(
        update={"requests_per_hour": 1e9, "break_even_requests_per_hour": Absent(absent="none"), "migration_usd": 0.0}
    )
    assert f'x-axis "requests per hour" ["{cost.curve[0].requests_per_hour:g}",' in comment(priced(cost))
    bare = cost.model_copy(update={"curve": ()})
    assert '"Cost against traffic"' not in comment(priced(bare))


def test_an_item_of_one_side_only_and_a_poisson_check_are_shown() -> None:
    cost = judgements.cost()
    baseline = cost.baseline.model_copy(
        update={"items": cost.baseline.items[:1], "poisson_check": "off 44 %, formula 44 %"}
    )
    text = comment(priced(cost.model_copy(update={"baseline": baseline})))
    bill = next(table for table in markdown.tables(text) if table[0][0] == "Item")
    assert bill[2][:2] == ["warm idle", "–"]
    assert "off 44 %, formula 44 %" in text


def test_an_energy_that_was_not_read_has_its_reason_in_the_bill() -> None:
    rows = {row[0]: row[1:] for table in markdown.tables(comment(judgements.without_power())) for row in table}
    assert rows["kWh per month, board"] == ["chat/1: no RAPL energy counter is readable on this machine"] * 2


def test_stacks_that_nobody_identified_have_no_table() -> None:
    j = judgements.without_rounds()
    heads = [table[0][0] for table in markdown.tables(comment(j.model_copy(update={"identities": ()})))]
    assert "Part" in [table[0][0] for table in markdown.tables(comment(j))]
    assert "Part" not in heads


def test_tokens_over_time_are_shown_for_the_cell_that_decided() -> None:
    assert "Cell `long/2`, round 6:\n\n```mermaid" in comment(judgements.rejected())
    assert "Cell `chat/1`, round 4:\n\n```mermaid" in comment(judgements.invalid())


def test_a_trace_of_one_side_or_of_one_second_makes_no_chart() -> None:
    j = judgements.passed()
    one_side = tuple(trace for trace in j.traces if trace.side.value == "baseline")
    assert 'title "Output tok/s"' not in comment(j.model_copy(update={"traces": one_side}))
    short = tuple(trace.model_copy(update={"tokens_per_second": (1.0,)}) for trace in j.traces)
    assert 'title "Output tok/s"' not in comment(j.model_copy(update={"traces": short}))


def test_no_difference_is_said() -> None:
    assert "Nothing was found to differ" in comment(judgements.passed().model_copy(update={"differences": ()}))


def test_one_unknown_identity_is_a_dash() -> None:
    j = judgements.invalid()
    j = j.model_copy(update={"identities": j.identities[:1]})
    table = next(table for table in markdown.tables(comment(j)) if table[0][0] == "Part")
    assert [row[2] for row in table[1:]] == ["–"] * 4


def test_a_run_says_what_it_would_have_caught() -> None:
    text = comment(judgements.passed())
    assert "this run would have caught a worsening of 2.0 % to 11.1 % nine times out of ten" in text


def test_a_judgement_without_metrics_and_checks_is_rendered() -> None:
    text = comment(judgements.inconclusive().model_copy(update={"metrics": (), "checks": (), "notes": ("a note",)}))
    assert "nine times out of ten" not in text
    assert "- a note" in text


def test_an_advisory_metric_is_shown_and_not_gated() -> None:
    j = judgements.passed()
    first = j.metrics[0].model_copy(update={"gated": False, "why_not_gated": "advisory"})
    table = markdown.tables(comment(j.model_copy(update={"metrics": (first, *j.metrics[1:])})))[-1]
    assert table[1][-1] == "shown only"


def test_a_limit_without_a_known_direction_has_no_sign() -> None:
    j = judgements.passed()
    line = (
        j.rows[1]
        .lines[0]
        .model_copy(update={"direction": None, "change": Absent(absent="none"), "allowed": Limit(value=0.02)})
    )
    row = j.rows[1].model_copy(update={"lines": (line,), "mark": Mark.OPEN})
    rows = checklist(comment(j.model_copy(update={"rows": (j.rows[0], row, *j.rows[2:])})))
    assert rows[2][5].replace("\u00a0", " ") == "2 %"


def test_a_value_of_one_side_only_is_shown_with_the_reason_for_the_other() -> None:
    j = judgements.passed()
    line = j.rows[3].lines[0].model_copy(update={"candidate": Absent(absent="no token came")})
    row = j.rows[3].model_copy(update={"lines": (line,)})
    text = comment(j.model_copy(update={"rows": (*j.rows[:3], row, *j.rows[4:])}))
    assert [cell.replace("\u00a0", " ") for cell in checklist(text)[4][2:4]] == ["164 tok/s", "–"]
    assert "- 4: decode tok/s, server: no token came" in text


def test_a_long_text_that_holds_for_both_sides_is_written_once() -> None:
    j = judgements.passed()
    both = "a sentence about both stacks"
    line = j.rows[0].lines[0].model_copy(update={"baseline": both, "candidate": both})
    row = j.rows[0].model_copy(update={"lines": (line,)})
    assert checklist(comment(j.model_copy(update={"rows": (row, *j.rows[1:])})))[1][2:4] == [both, "the same"]


def test_why_a_line_is_only_shown_stands_below_the_table() -> None:
    j = judgements.passed()
    shown = {"allowed": "an idle core is not an idle GPU", "mark": Mark.INFO, "verdict": "shown"}
    row = j.rows[2].model_copy(update={"lines": (j.rows[2].lines[0].model_copy(update=shown),), "mark": Mark.INFO})
    text = comment(j.model_copy(update={"rows": (*j.rows[:2], row, *j.rows[3:])}))
    assert checklist(text)[3][5:] == ["–", "shown only"]
    assert "- 3: GPU utilization (GPM SM_UTIL): an idle core is not an idle GPU" in text


def test_the_reasons_of_absent_values_stand_below_the_table() -> None:
    text = comment(judgements.without_rounds())
    assert (
        "- 2: tokens per GPU-hour · output tok/s chat/1 · output tok/s chat/4 · output tok/s long/2 · input tok/s"
        in text
    )
    assert [text.count(f"\n- {row}: ") for row in (2, 3, 4, 5)] == [2] * 4, "a note of its own, and one reason"


# ---------------------------------------------------------------- size


@VERDICTS
def test_a_comment_never_exceeds_its_size_and_never_loses_the_checklist(make: Make) -> None:
    j = make()
    core = len(comment(j, max_chars=0))
    for size in range(1000, 16_000, 1500):
        text = comment(j, max_chars=size)
        assert len(text) <= max(size, core)
        assert len(checklist(text)) == 9
        assert text.count("<details>") == text.count("</details>") == text.count("<summary>")


def test_sections_are_left_out_in_a_fixed_order_and_the_rest_is_named() -> None:
    j = judgements.rejected()
    earlier = [EarlierRun("a" * 40, "PASS", "1.1")] * 9
    whole = comment(j, earlier=earlier)
    kept = [comment(j, max_chars=size, earlier=earlier) for size in range(len(whole), 3000, -500)]
    counts = [text.count("|") for text in kept]
    assert counts == sorted(counts, reverse=True)
    assert "Left out" not in whole
    assert "Left out to fit GitHub's size limit: Output tok/s over time, Earlier runs." in kept[1]
    assert "Left out to fit GitHub's size limit: Earlier runs." in comment(j, max_chars=len(whole) - 1, earlier=earlier)
    assert "Every check in full" in kept[-1].partition("Left out")[2]


def test_a_summary_is_the_same_without_marker_and_within_its_bytes() -> None:
    j = judgements.rejected()
    text = summary(j)
    assert text.startswith("### ❌ servegate `llama-8b-chat`: rejected")
    assert "servegate:v1" not in text
    assert len(checklist(text)) == 9
    assert len(summary(j, max_bytes=6000).encode()) <= 6000


def test_hundreds_of_cells_still_fit() -> None:
    j = judgements.with_many_cells(300)
    assert len(comment(j)) <= 60_000
    assert len(summary(j).encode()) <= 1_000_000


# ---------------------------------------------------------------- foreign text


def hostile(text: str) -> Judgement:
    """A judgement in which everything that others wrote is this text."""
    j = judgements.rejected()
    some = text or "x"
    rows = tuple(
        row.model_copy(
            update={
                "notes": (text,),
                "lines": tuple(
                    line.model_copy(
                        update={
                            "label": some,
                            "cell": text,
                            "baseline": text,
                            "candidate": Absent(absent=text),
                            "verdict": text,
                            "allowed": text,
                        }
                    )
                    for line in row.lines
                ),
            }
        )
        for row in j.rows
    )
    return j.model_copy(
        update={
            "headline": text,
            "advice": (text,),
            "baseline_label": text,
            "candidate_label": text,
            "accelerator": text,
            "operator": text,
            "run_id": text,
            "run_url": text,
            "rows": rows,
            "checks": tuple(
                check.model_copy(update={"ok": False, "name": text, "detail": text, "advice": text, "cell": text})
                for check in j.checks
            ),
            "metrics": tuple(
                one.model_copy(update={"key": one.key.model_copy(update={"cell": text}), "why_not_gated": text})
                for one in j.metrics
            ),
            "differences": tuple(
                one.model_copy(update={"what": text, "baseline": text, "candidate": text}) for one in j.differences
            ),
            "identities": tuple(
                one.model_copy(
                    update={"model": text, "quantization": text, "batch": text, "engine": text, "details": (text,)}
                )
                for one in j.identities
            ),
            "traces": tuple(one.model_copy(update={"cell": text}) for one in j.traces),
            "voided": (text,),
            "notes": (text,),
            "failure": Failure(
                kind="could not measure", what=text, why=text, next_step=text, side=None, log_tail=(text, text)
            ),
            "method": text,
            "change": Change(
                repository=text, head_sha=text, base_sha=text, number=1, policy_from=text, policy_edits=(text,)
            ),
            "cost": j.cost.model_copy(update={"traffic": text, "break_even_sentence": text, "notes": (text,)})
            if not isinstance(j.cost, Absent)
            else j.cost,
        }
    )


def test_a_run_that_could_not_be_measured_says_why_what_to_do_and_how_its_log_ends() -> None:
    text = comment(judgements.without_rounds())
    assert "> The run stopped early: the candidate exited with code 1 in round 2\n" in text
    assert "> CUDA out of memory\n" in text
    assert "> What to do: read server.log of that launch\n" in text
    assert "> The end of its log:\n>\n> - `RuntimeError: CUDA out of memory`\n" in text


def test_a_run_that_was_cancelled_says_no_more_than_it_knows() -> None:
    failure = Failure(kind="cancelled", what="cancelled", why="", next_step="", side=None)
    text = comment(judgements.without_rounds().model_copy(update={"failure": failure}))
    assert "> [!CAUTION]\n> The run stopped early: cancelled\n\n" in text


def test_a_bill_without_shares_of_time_shows_none() -> None:
    cell = recordings.SceneCell("chat@2", None, rate=2.0)
    j = recordings.judged(recordings.passing(cells=(cell,), electricity=False, requests_per_hour=7200.0))
    text = comment(j)
    assert "| Share of time | – | – |" in text
    assert "kept warm" in text


@pytest.mark.parametrize(
    ("text", "language"), list(zip(HOSTILE.values(), itertools.cycle(("en", "es")), strict=False)), ids=HOSTILE.keys()
)
def test_no_foreign_text_gets_through(text: str, language: Language) -> None:
    earlier = [EarlierRun(head=text, verdict=text, run=text, url=text)]
    place = Place(artifacts_url=text, artifacts_until=text, newer_head=text, directory=text)
    body = comment(hostile(text), language=language, place=place, earlier=earlier)
    assert selfcheck.findings(body, expected=selfcheck.Expected(hosts=frozenset({"evil.example"}))) == []
    assert len(checklist(body)) == 9
    assert set(markdown.source_columns(body)) == {7}
    assert {part.strip() for html in markdown.html_of(body)[1:] for part in html.splitlines()} <= allowed_html(language)
    plain = markdown.plain_text(body)
    for pattern in (markdown.MENTION, markdown.REFERENCE, markdown.BARE_LINK, markdown.EMOJI_CODE, markdown.BARE_SHA):
        assert not pattern.search(plain), pattern.pattern


def allowed_html(language: Language) -> set[str]:
    """The lines of HTML that a comment may hold: folded sections with our own titles."""
    w = wording(language)
    titles = (w.why, w.every_cell, w.cost, w.identity, w.over_time, w.method, w.earlier)
    return {"<details>", "</details>", *(f"<summary>{title}</summary>" for title in titles)}
