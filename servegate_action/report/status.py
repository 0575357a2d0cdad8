"""The one line beside the commit: GitHub allows 140 characters."""

from __future__ import annotations

from servegate_action.analysis.judgement import Judgement
from servegate_action.report import view
from servegate_action.report.escape import plain
from servegate_action.report.wording import Language, wording

STATUS_CHARS = 140


def status_line(j: Judgement, *, language: Language = "en", max_chars: int = STATUS_CHARS) -> str:
    """`REJECT: p95 TPOT long/4: +6.3 % …`, cut where GitHub would refuse it."""
    return plain(f"{j.word.value}: {view.headline(j, wording(language)).whole}", max_chars=max_chars)
