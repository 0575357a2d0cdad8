from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest

from servegate_action.analysis.judgement import Judgement
from servegate_action.records import Absent
from servegate_action.report import page
from servegate_action.report.wording import Language, wording
from tests.support import html, judgements
from tests.support.hostile import HOSTILE
from tests.unit.report.test_comment import hostile, priced

Make = Callable[[], Judgement]
VERDICTS = pytest.mark.parametrize(
    "make", [*judgements.ALL.values(), judgements.without_rounds], ids=lambda make: make.__name__
)
LANGUAGES = pytest.mark.parametrize("language", ["en", "es"])


@VERDICTS
@LANGUAGES
def test_the_page_is_well_formed_and_names_its_language(make: Make, language: Language) -> None:
    text = page(make(), language=language)
    document = html.read(text)
    assert document.complaints == []
    assert text.startswith("<!DOCTYPE html>\n")
    assert document.all("html")[0].attributes == {"lang": language}
    assert document.all("title")[0].text.startswith("servegate llama-8b-chat: ")


@VERDICTS
def test_the_page_needs_no_script_and_no_network(make: Make) -> None:
    document = html.read(page(make()))
    policy = next(e.attributes["content"] for e in document.all("meta") if e.attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert {element.name for element in document.elements}.isdisjoint(
        {"script", "iframe", "object", "embed", "img", "form", "base"}
    )
    assert [element.attributes["href"] for element in document.all("link")] == ["data:,"]
    assert not [
        name
        for element in document.elements
        for name in element.attributes
        if name.startswith("on") or name in {"src", "style"}
    ]
    css = document.all("style")[0].text
    assert "url(" not in css
    assert "@import" not in css


@VERDICTS
@LANGUAGES
def test_every_anchor_leads_somewhere_and_every_name_is_given_once(make: Make, language: Language) -> None:
    document = html.read(page(make(), language=language))
    names = [element.attributes["id"] for element in document.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    targets = [element.attributes["href"] for element in document.all("a")]
    assert {target[1:] for target in targets if target.startswith("#")} <= set(names)
    labels = {
        element.attributes["aria-labelledby"]
        for element in document.elements
        if "aria-labelledby" in element.attributes
    }
    assert labels <= set(names)


@VERDICTS
def test_headings_go_down_one_step_at_a_time(make: Make) -> None:
    levels = [
        int(element.name[1]) for element in html.read(page(make())).elements if re.fullmatch(r"h[1-6]", element.name)
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))


@VERDICTS
def test_tables_have_scoped_heads_and_can_be_scrolled_by_keyboard(make: Make) -> None:
    document = html.read(page(make()))
    assert all(element.attributes.get("scope") in {"col", "row", "rowgroup"} for element in document.all("th"))
    regions = [element for element in document.all("div") if element.attributes.get("class") == "scroll"]
    assert len(regions) == len(document.all("table"))
    assert all(element.attributes["tabindex"] == "0" and element.attributes["aria-label"] for element in regions)


@VERDICTS
def test_drawings_are_described_or_hidden_from_screen_readers(make: Make) -> None:
    drawings = html.read(page(make())).all("svg")
    described = [svg for svg in drawings if svg.attributes.get("role") == "img" and svg.attributes.get("aria-label")]
    hidden = [svg for svg in drawings if "aria-hidden" in svg.attributes or "aria-hidden" in "".join(svg.path)]
    legends = [svg for svg in drawings if svg.attributes.get("viewbox") == "0 0 34 10"]
    assert len(described) + len(hidden) + len(legends) == len(drawings)


def test_every_metric_every_round_and_every_check_is_on_the_page() -> None:
    j = judgements.passed()
    document = html.read(page(j))
    text = document.all("main")[0].text
    assert len([svg for svg in document.all("svg") if svg.attributes.get("class", "").startswith("forest")]) == len(
        j.metrics
    )
    assert all(name in text for name in wording("en").metrics.values())
    assert all(check.detail in text for check in j.checks)
    assert all(str(number) in text for number in range(1, 5))
    rows = [element for element in document.all("th") if element.attributes.get("scope") == "row"]
    assert len(rows) > 3 * len(j.metrics)
    assert j.workload_sha256 in text
    assert "acme/serving#42" in text


def test_the_checklist_has_eight_rows() -> None:
    text = page(judgements.invalid())
    short = text[text.index('<table class="short">') :]
    body = short[: short.index("</table>")]
    assert body.count('<th scope="row">') == 8


def test_a_page_without_rounds_says_what_is_missing() -> None:
    text = html.read(page(judgements.without_rounds())).all("main")[0].text
    assert "No paired values." in text
    assert "No cost was computed: no complete round" in text
    assert "No trace of tokens over time was recorded." in text


def test_edits_of_the_policy_and_early_ends_are_announced() -> None:
    j = judgements.passed()
    assert j.change is not None
    edited = j.model_copy(
        update={
            "change": j.change.model_copy(
                update={"policy_edits": ("limits.default",), "base_sha": None, "number": None}
            )
        }
    )
    assert "This pull request edits the gate (limits.default)" in page(edited)
    assert "The run stopped early: the candidate exited with code 1" in page(judgements.without_rounds())


def test_english_sentences_are_marked_on_a_spanish_page() -> None:
    j = judgements.passed().model_copy(update={"notes": ("A sentence that no language knows.",)})
    assert '<span lang="en">A sentence that no language knows.</span>' in page(j, language="es")
    assert '<span lang="en">' not in page(j)
    assert '<span lang="en">' not in page(judgements.rejected(), language="es")


def test_a_slower_metric_and_a_metric_that_is_only_shown_are_named() -> None:
    j = judgements.slower()
    first = j.metrics[0].model_copy(update={"gated": False, "why_not_gated": "neither stack is saturated"})
    text = page(j.model_copy(update={"metrics": (first, *j.metrics[1:])}))
    assert "Slower, within allowance:" in text
    assert "neither stack is saturated" in text
    assert 'class="forest info"' in text


def test_a_gate_where_nothing_moved_says_so() -> None:
    j = judgements.passed()
    calm = tuple(one.model_copy(update={"better": False, "worse_within_allowance": False}) for one in j.metrics)
    text = page(j.model_copy(update={"metrics": calm}))
    assert "none is shown to be worse" in text
    assert "Shown to be better" not in text


def test_launches_without_a_first_token_are_a_dash_and_many_bound_a_percentile() -> None:
    j = judgements.passed()
    absent = Absent(absent="the endpoint is not launched by servegate")
    endpoint = tuple(one.model_copy(update={"seconds_to_first_token": absent}) for one in j.launches)
    text = page(j.model_copy(update={"launches": endpoint}))
    assert "Slowest of" not in text
    assert "Slowest of 4: baseline 38.2 s, candidate 45.2 s." in page(j)
    assert "Slowest of" not in page(j.model_copy(update={"launches": j.launches * 20}))
    half = tuple(one for one in j.launches if one.side.value == "baseline")
    assert "Slowest of 4: baseline 38.2 s." in page(j.model_copy(update={"launches": half}))


def test_costs_of_zero_are_drawn_on_an_even_axis_and_short_curves_are_not_drawn() -> None:
    cost = judgements.cost()
    zero = cost.model_copy(
        update={"curve": (cost.curve[0].model_copy(update={"candidate_per_1m_output": 0.0}), *cost.curve[1:])}
    )
    assert "Cost against traffic" in page(priced(zero))
    none = cost.model_copy(
        update={"curve": cost.curve[:1], "break_even_requests_per_hour": Absent(absent="never"), "notes": ()}
    )
    assert 'aria-label="Cost against traffic"' not in page(priced(none))
    no_break_even = cost.model_copy(update={"break_even_requests_per_hour": Absent(absent="never")})
    assert page(priced(no_break_even)).count('class="rule"') == 1


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_foreign_text_gets_through(text: str) -> None:
    j = hostile(text)
    source = page(j)
    document = html.read(source)
    assert document.complaints == []
    assert {element.name for element in document.elements} <= allowed_elements()
    assert not [name for element in document.elements for name in element.attributes if name.startswith("on")]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", source)
    assert len(source) < 2_000_000


@cache
def allowed_elements() -> set[str]:
    """The elements of a page in which every foreign text is one letter."""
    return {element.name for element in html.read(page(hostile("x"))).elements}


# ---------------------------------------------------------------- colours


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def palettes() -> dict[str, dict[str, str]]:
    css = html.read(page(judgements.passed())).all("style")[0].text
    found = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    return {"light": found[0], "dark": {**found[0], **found[1]}}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(theme: str) -> None:
    colours = palettes()[theme]
    for ink in ("ink", "soft", "ok", "bad", "open", "void", "info", "cand", "base"):
        assert contrast(colours[ink], colours["paper"]) >= 4.5, ink
    for kind in ("ok", "bad", "open", "void"):
        assert contrast(colours[kind], colours[f"{kind}-paper"]) >= 4.5, kind
        assert contrast(colours["ink"], colours[f"{kind}-paper"]) >= 7, kind
        assert contrast(colours["soft"], colours[f"{kind}-paper"]) >= 4.5, kind
    assert contrast(colours["idle-ink"], colours["idle"]) >= 4.5
    assert contrast(colours["ink"], colours["info-paper"]) >= 4.5


# ---------------------------------------------------------------- start-up


def test_templates_and_drawings_are_loaded_only_when_a_page_is_made() -> None:
    program = (
        "import sys, servegate_action.report as report\n"
        "assert not {'jinja2', 'markupsafe', 'servegate_action.report.charts.lines', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
