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

CELL = 26


def terminal(j: Judgement, *, language: Language = "en") -> Group:
    """Word, sentence, checklist, advice; plain words beside every colour."""
    w = wording(language)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column(w.check, overflow="fold", min_width=24)
    for title in (w.baseline, w.candidate, w.change, w.allowed):
        table.add_column(title, justify="right", no_wrap=True, max_width=CELL)
    table.add_column("", overflow="fold", max_width=CELL)
    for row in view.rows(j, w):
        line = row.first
        cells = (line.baseline, line.candidate, line.whole_change, line.allowed)
        shown = (Text(plain(cell, max_chars=CELL)) for cell in cells)
        table.add_row(
            f"{row.number}", Text(plain(_what(row))), *shown, Text(f"{_SIGNS[row.mark]}: {plain(line.verdict)}")
        )
    verdict = Text.assemble((j.word.value, _STYLES[j.word]), ": ", plain(view.headline(j, w).whole, max_chars=600))
    return Group(verdict, Text(""), table, *(Text(f"→ {plain(one)}") for one in j.advice), Text(""))


def _what(row: view.RowText) -> str:
    cell = row.first.cell
    return f"{row.title} {cell}" if cell else row.title
