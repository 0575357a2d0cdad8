from __future__ import annotations

import pytest

from servegate_action.analysis.judgement import Word
from servegate_action.report import status_line
from tests.support import judgements
from tests.support.hostile import HOSTILE


def test_the_status_names_the_verdict_and_what_decided_it() -> None:
    assert status_line(judgements.rejected()).startswith(
        "REJECT: p95 TPOT long/4: +7.5 % (95 % interval +6.0 … +9.0, 4 rounds), allowed +5 %"
    )
    assert status_line(judgements.rejected(), language="es").startswith(
        "REJECT: p95 de TPOT long/4: +7,5 % (intervalo del 95 %: "
    )
    assert status_line(judgements.passed()).startswith("PASS: All 18 metrics within their limits.")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_status_is_one_short_line_whatever_it_quotes(text: str) -> None:
    line = status_line(judgements.judgement(Word.INVALID, headline=f"INVALID: {text}", checks=judgements.CHECKS))
    assert len(line) <= 140
    assert line.isprintable()
    assert "::" not in line
    assert line.startswith("INVALID:")
