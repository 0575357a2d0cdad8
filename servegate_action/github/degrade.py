"""What happens when GitHub says no: one table, feature by permission by loss, and one sentence for each reason.

A gate that cannot post still measures, writes its evidence and blocks by its exit code. What the user reads is a warning
that names the loss and prints the exact YAML to add. The table is the one in docs/github.md. This module formats; it
asks nobody and never changes a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from servegate_action.github.api import Refusal, Refused
from servegate_action.github.outputs import guard_line


class Feature(StrEnum):
    """Everything that is done on GitHub's side."""

    STATUS = "commit status"
    COMMENT = "comment"
    ISSUE_COMMENT = "comment on an issue"
    CHECK_RUN = "check run"
    PULL_REQUEST = "looking up the pull request"
    POLICY = "reading the policy at the base commit"
    COMMANDER = "asking what the commenter may do"
    REACTION = "reaction to the command"
    ARTIFACT = "upload from inside the action"


@dataclass(frozen=True, slots=True)
class Row:
    """One feature: the permissions that it needs, and what happens without them."""

    permissions: Mapping[str, str]
    without: str


TABLE: Mapping[Feature, Row] = {
    Feature.STATUS: Row(
        {"statuses": "write"},
        "the job's exit code, the step summary and the files still carry the verdict; a required "
        "`servegate/…` status stays missing, so the pull request stays blocked",
    ),
    Feature.COMMENT: Row(
        {"pull-requests": "write"},
        "the whole report is in the step summary and in comment.md of the artifact",
    ),
    Feature.ISSUE_COMMENT: Row(
        {"issues": "write"},
        "the whole report is in the step summary and in comment.md of the artifact",
    ),
    Feature.CHECK_RUN: Row({"checks": "write"}, "the commit status says the same"),
    Feature.PULL_REQUEST: Row(
        {"pull-requests": "read"},
        "no comment; and on workflow_run or a slash command nothing is published, because the commit cannot be tied to "
        "its pull request",
    ),
    Feature.POLICY: Row(
        {"contents": "read"},
        "the policy is read from the checkout's history; without that (a shallow clone) the gate does not run, rather "
        "than trust the limits that the pull request brings",
    ),
    Feature.COMMANDER: Row({"metadata": "read"}, "the command is refused: who asks must be known to have write access"),
    Feature.REACTION: Row({"pull-requests": "write"}, "the command is carried out without a sign under it"),
    Feature.ARTIFACT: Row({}, "the files are in output-dir; `actions/upload-artifact` as the next step keeps them"),
}

_ALWAYS_THERE = frozenset({"metadata"})  # every token has it; it cannot be asked for in a workflow

REASONS: Mapping[Refusal, str] = {
    Refusal.BAD_TOKEN: "GitHub does not know the token; it may have expired (a job's token lives as long as the job)",
    Refusal.READ_ONLY: "the token may only read: a pull request from a fork or from Dependabot, or a workflow without the "
    "permission",
    Refusal.FORBIDDEN: "GitHub forbids it to this token",
    Refusal.LOCKED: "the conversation is locked",
    Refusal.NOT_FOUND: "GitHub does not find it; to a token without permission a private repository looks the same",
    Refusal.GONE: "it was removed, or issues are switched off in this repository",
    Refusal.TOO_LONG: "GitHub finds the text too long, even at its shortest",
    Refusal.INVALID: "GitHub does not accept the request; this is a fault of servegate or of its configuration",
    Refusal.RATE_LIMITED: "the rate limit is used up, and the wait would be longer than a minute",
    Refusal.SERVER: "GitHub had trouble and did not recover within four tries",
    Refusal.UNREACHABLE: "GitHub did not answer; proxy, name service, certificates (SSL_CERT_FILE) or an outage",
}

_YAML_HELPS = frozenset({Refusal.READ_ONLY, Refusal.FORBIDDEN, Refusal.NOT_FOUND})


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that could not be done on GitHub. Never a verdict. `text` is one paragraph, and YAML where it helps."""

    feature: Feature
    kind: Refusal
    title: str
    text: str


def explain(feature: Feature, refused: Refused) -> Lost:
    """The warning for one thing that GitHub refused."""
    row = TABLE[feature]
    parts = [
        f"{REASONS[refused.kind]}. GitHub said: {guard_line(refused.message, max_chars=200)}.",
        f"Without it: {row.without}.",
    ]
    needed = {name: way for name, way in row.permissions.items() if name not in _ALWAYS_THERE}
    if refused.kind in _YAML_HELPS and needed:
        parts.append(f"Add to the job:\n{yaml_for([feature])}")
        if refused.kind is Refusal.READ_ONLY:
            parts.append("For forks no YAML helps: use the two-job workflow or the slash command (docs/github.md).")
    return Lost(feature, refused.kind, f"No {feature.value}", "\n".join(parts))


def yaml_for(features: Iterable[Feature]) -> str:
    """The exact `permissions:` block that these features need; reading the repository always belongs to it."""
    needed: dict[str, str] = {"contents": "read"}
    for feature in features:
        for name, way in TABLE[feature].permissions.items():
            if name not in _ALWAYS_THERE and needed.get(name) != "write":
                needed[name] = way
    return "\n".join(["permissions:", *(f"  {name}: {way}" for name, way in needed.items())])


def markdown_table() -> str:
    """The table, as docs/github.md prints it."""
    lines = ["| what | permission | without it |", "|---|---|---|"]
    for feature, row in TABLE.items():
        needed = ", ".join(f"`{name}: {way}`" for name, way in row.permissions.items()) or "–"
        lines.append(f"| {feature.value} | {needed} | {row.without} |")
    return "\n".join(lines)
