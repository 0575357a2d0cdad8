from __future__ import annotations

import json

import pytest

from servegate_action.report.schema import FILE, verdict_schema


def test_the_published_schema_is_what_the_model_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        FILE.write_text(verdict_schema(), encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == verdict_schema(), "if that is meant: pytest --update-golden"


def test_the_schema_describes_the_whole_verdict() -> None:
    schema = json.loads(verdict_schema())
    assert schema["additionalProperties"] is False
    assert {"word", "headline", "rows", "metrics", "cost"} <= set(schema["required"])
