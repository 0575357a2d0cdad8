"""The job's summary: the comment's content without its marker, unfolded where it matters, and larger."""

from __future__ import annotations

from servegate_action.analysis.judgement import Judgement
from servegate_action.report import markdown as md
from servegate_action.report.comment import Place, checklist, first_lines, fitted
from servegate_action.report.sections import sections
from servegate_action.report.wording import Language, wording

SUMMARY_BYTES = 1_000_000  # GitHub drops a step's summary of more than 1 MiB as a whole


def summary(
    j: Judgement, *, language: Language = "en", place: Place | None = None, max_bytes: int = SUMMARY_BYTES
) -> str:
    """The whole summary, at most `max_bytes` of UTF-8."""
    w = wording(language)
    core = md.paragraphs(first_lines(j, w, place or Place()), checklist(j, w))
    return fitted(core, sections(j, w), w, lambda text: len(text.encode()) < max_bytes) + "\n"
