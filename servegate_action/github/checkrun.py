"""The optional check run: the same verdict on the Checks tab, with the summary as its page.

Only `success` and `failure` are ever concluded: GitHub lets `neutral` and `skipped` pass a required check. Limits kept:
65,535 bytes a text, 50 annotations a call. This module renders nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from servegate_action.github.api import Answer, Api
from servegate_action.github.outputs import shorten_bytes

TEXT_MAX_BYTES = 65_535
TITLE_MAX = 255
ANNOTATIONS_PER_CALL = 50


class CheckRun(Answer):
    """A check run as GitHub holds it."""

    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    details_url: str | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark at a line of a file of the repository."""

    path: str
    line: int
    level: Literal["notice", "warning", "failure"]
    message: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a check run ends."""

    success: bool
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()


def start(api: Api, *, sha: str, name: str, details_url: str) -> CheckRun:
    """Show that the gate is at work."""
    body = {"name": name, "head_sha": sha, "status": "in_progress", "details_url": details_url}
    return api.post(api.path("check-runs"), CheckRun, body)


def find(api: Api, *, sha: str, name: str, details_url: str) -> CheckRun | None:
    """The check run that this very run started, so that it ends and no second one stands beside it."""
    for run in api.pages(api.path("commits", sha, "check-runs"), CheckRun, check_name=name):
        if run.name == name and run.details_url == details_url:
            return run
    return None


def finish(api: Api, *, run_id: int, conclusion: Conclusion) -> CheckRun:
    """Conclude. Annotations beyond the first fifty follow in further calls: GitHub adds them up."""
    batches = _batches(conclusion.annotations)
    done = api.patch(
        api.path("check-runs", run_id),
        CheckRun,
        {
            "status": "completed",
            "conclusion": "success" if conclusion.success else "failure",
            "output": _output(conclusion, batches[0]),
        },
    )
    for batch in batches[1:]:
        api.patch(api.path("check-runs", run_id), CheckRun, {"output": _output(conclusion, batch)})
    return done


def _output(conclusion: Conclusion, annotations: Sequence[Annotation]) -> dict[str, object]:
    summary, _ = shorten_bytes(conclusion.summary, TEXT_MAX_BYTES)
    output: dict[str, object] = {"title": conclusion.title[:TITLE_MAX], "summary": summary}
    if annotations:
        output["annotations"] = [
            {
                "path": note.path,
                "start_line": note.line,
                "end_line": note.line,
                "annotation_level": note.level,
                "message": note.message,
            }
            for note in annotations
        ]
    return output


def _batches(notes: Sequence[Annotation]) -> list[Sequence[Annotation]]:
    starts = range(0, max(1, len(notes)), ANNOTATIONS_PER_CALL)
    return [notes[start : start + ANNOTATIONS_PER_CALL] for start in starts]
