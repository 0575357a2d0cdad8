"""The optional check run: the same verdict on the Checks tab, with the summary as its page.

Only `success` and `failure` are ever concluded: GitHub lets `neutral` and `skipped` pass a required check. A text holds at
most 65,535 bytes. This module renders nothing and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from servegate_action.github.api import Answer, Api
from servegate_action.github.outputs import shorten_bytes

TEXT_MAX_BYTES = 65_535
TITLE_MAX = 255


class CheckRun(Answer):
    """A check run as GitHub holds it."""

    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    details_url: str | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a check run ends."""

    success: bool
    title: str
    summary: str


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
    """Conclude."""
    summary, _ = shorten_bytes(conclusion.summary, TEXT_MAX_BYTES)
    return api.patch(
        api.path("check-runs", run_id),
        CheckRun,
        {
            "status": "completed",
            "conclusion": "success" if conclusion.success else "failure",
            "output": {"title": conclusion.title[:TITLE_MAX], "summary": summary},
        },
    )
