"""The table of what each refusal costs: complete, exact, and the one that the document prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate_action.github.api import Refusal, Refused
from servegate_action.github.degrade import REASONS, TABLE, Feature, explain, markdown_table, yaml_for

DOCUMENT = Path(__file__).parents[3] / "docs" / "github.md"


def test_every_feature_and_every_reason_has_its_place() -> None:
    assert set(TABLE) == set(Feature)
    assert set(REASONS) == set(Refusal)


@pytest.mark.parametrize("feature", list(Feature))
@pytest.mark.parametrize("kind", list(Refusal))
def test_every_refusal_of_every_feature_says_what_why_and_what_instead(feature: Feature, kind: Refusal) -> None:
    lost = explain(feature, Refused(kind, status=403, message="a reason\n::error::b"))
    assert lost.title == f"No {feature.value}"
    assert REASONS[kind] in lost.text
    assert TABLE[feature].without in lost.text
    assert "\n::error::" not in lost.text


def test_the_yaml_is_exact() -> None:
    assert yaml_for([Feature.STATUS, Feature.COMMENT]) == (
        "permissions:\n  contents: read\n  statuses: write\n  pull-requests: write"
    )


def test_reading_never_takes_writing_away() -> None:
    assert "pull-requests: write" in yaml_for([Feature.COMMENT, Feature.PULL_REQUEST])


def test_permissions_that_help_are_named_only_where_they_help() -> None:
    def text(kind: Refusal) -> str:
        return explain(Feature.COMMENT, Refused(kind, status=None, message="x")).text

    assert "permissions:" in text(Refusal.READ_ONLY)
    assert "two-job" in text(Refusal.READ_ONLY)
    assert "permissions:" not in text(Refusal.LOCKED)
    assert "permissions:" not in text(Refusal.SERVER)


def test_the_document_prints_this_table() -> None:
    assert markdown_table() in DOCUMENT.read_text(encoding="utf-8")
