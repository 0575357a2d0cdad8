"""The verdict on a terminal: the word, the deciding sentence, the eight rows, and what to do.

The same judgement as everywhere; foreign text loses its control characters, and nothing in it is markup here.
"""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from servegate_action.analysis.judgement import Judgement, Mark, Word
from servegate_action.report import view
from servegate_action.report.escape import plain
from servegate_action.report.wording import Language, wording

_STYLES = {Word.PASS: "bold green", Word.REJECT: "bold red", Word.INCONCLUSIVE: "bold yellow", Word.INVALID: "bold red"}
_SIGNS = {Mark.OK: "ok", Mark.BAD: "BAD", Mark.OPEN: "open", Mark.INFO: "info"}


def terminal(j: Judgement, *, language: Language = "en") -> Group:
    """Word, sentence, checklist, advice; plain words beside every colour."""
    w = wording(language)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column(w.check, overflow="fold")
    for title in (w.baseline, w.candidate, w.change, w.allowed):
        table.add_column(title, justify="right", overflow="fold")
    table.add_column("", overflow="fold")
    for row in view.rows(j, w):
        line = row.first
        cells = (f"{row.number}", _what(row), line.baseline, line.candidate, line.whole_change, line.allowed)
        table.add_row(*(Text(plain(cell)) for cell in cells), Text(f"{_SIGNS[row.mark]}: {plain(line.verdict)}"))
    verdict = Text.assemble((j.word.value, _STYLES[j.word]), ": ", plain(view.headline(j, w).whole, max_chars=600))
    return Group(verdict, Text(""), table, *(Text(f"→ {plain(one)}") for one in j.advice), Text(""))


def _what(row: view.RowText) -> str:
    line = row.first
    label = row.title if line.label.lower() == row.title.lower() else f"{row.title}: {line.label}"
    return f"{label} {line.cell}" if line.cell else label
