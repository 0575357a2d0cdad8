"""The room that renders: one judgement in, texts out.

`comment`, `summary`, `page` and `status_line` are four renderings of the same `Judgement`. This room formats; it refuses
to compute a value, to decide anything, to read a file that is not its own, and to let foreign text through unescaped.
"""

from servegate_action.report.comment import Marker, Place, comment
from servegate_action.report.page import page
from servegate_action.report.run_sections import EarlierRun
from servegate_action.report.status import status_line
from servegate_action.report.summary import summary

__all__ = ["EarlierRun", "Marker", "Place", "comment", "page", "status_line", "summary"]
