from __future__ import annotations

import pytest

from servegate_action.report import status_line
from tests.support import judgements
from tests.support.hostile import HOSTILE


def test_the_status_names_the_verdict_and_what_decided_it() -> None:
    assert status_line(judgements.rejected()).startswith(
        "REJECT: p95 TPOT long/2: +10.3 % (96 % interval +9.4 … +11.2, 6 rounds), allowed +5 %"
    )
    assert status_line(judgements.rejected(), language="es").startswith(
        "REJECT: p95 de TPOT long/2: +10,3 % (intervalo del 96 %: "
    )
    assert status_line(judgements.passed()).startswith("PASS: All 16 metrics within their limits.")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_status_is_one_short_line_whatever_it_quotes(text: str) -> None:
    line = status_line(judgements.invalid().model_copy(update={"headline": f"INVALID: {text}"}))
    assert len(line) <= 140
    assert line.isprintable()
    assert "::" not in line
    assert line.startswith("INVALID:")
