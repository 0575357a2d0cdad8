from __future__ import annotations

import io

import pytest
from rich.console import Console

from servegate_action.analysis.judgement import Judgement
from servegate_action.report.terminal import terminal
from tests.support import judgements
from tests.support.hostile import HOSTILE
from tests.unit.report.test_comment import hostile


def printed(j: Judgement, *, colour: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=160, force_terminal=colour, color_system="standard" if colour else None).print(terminal(j))
    return out.getvalue()


def test_the_terminal_says_verdict_reason_rows_and_advice() -> None:
    text = printed(judgements.rejected())
    assert text.startswith("REJECT: p95 TPOT long/2: +10.3 % (96 % interval +9.4 … +11.2, 6 rounds), allowed +5 %")
    assert [line[0] for line in text.splitlines() if line[:1].isdigit()] == list("12345678")
    assert "BAD: REJECT" in text
    assert "+10.3 % (+9.4 … +11.2)" in text
    assert "→ serve the same quantization on both sides" in printed(judgements.invalid())


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_foreign_text_moves_no_cursor_and_speaks_to_no_runner(text: str) -> None:
    shown = printed(hostile(text))
    assert "\x1b" not in shown
    assert "::" not in shown
    assert "##[" not in shown
