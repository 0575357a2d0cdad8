"""What GitHub accepts as a request's body: its own published schema, and the limits that it enforces without writing
them down. Returns GitHub's 422 answer, or None when the body is fine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from githubkit_schemas.v2026_03_10 import models as schema
from pydantic import BaseModel, ValidationError

COMMENT_MAX = 65_536
DESCRIPTION_MAX = 140
CONTEXT_MAX = 255
ANNOTATIONS_MAX = 50
OUTPUT_MAX = 65_535
REACTIONS = {"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

Json = Mapping[str, object]


def refuse_comment(body: Json) -> Json | None:
    """A comment's body: a text of 1 to 65,536 characters, not blank."""
    text = str(body.get("body", ""))
    if not text.strip():
        return _failed("IssueComment", "body", "Body cannot be blank")
    if len(text) > COMMENT_MAX:
        return _failed("IssueComment", "body", f"Body is too long (maximum is {COMMENT_MAX} characters)")
    return _by_schema(body, schema.ReposOwnerRepoIssuesIssueNumberCommentsPostBody)


def refuse_status(body: Json) -> Json | None:
    """A commit status."""
    if len(str(body.get("description") or "")) > DESCRIPTION_MAX:
        return _failed("Status", "description", f"description is too long (maximum is {DESCRIPTION_MAX} characters)")
    if len(str(body.get("context") or "")) > CONTEXT_MAX:
        return _failed("Status", "context", f"context is too long (maximum is {CONTEXT_MAX} characters)")
    target = body.get("target_url")
    if target is not None and not str(target).startswith(("http://", "https://")):
        return _failed("Status", "target_url", "target_url must use http(s) scheme")
    return _by_schema(body, schema.ReposOwnerRepoStatusesShaPostBody)


def refuse_check_run(body: Json) -> Json | None:
    """A new check run: complete with a conclusion, or not complete and without one."""
    model = (
        schema.ReposOwnerRepoCheckRunsPostBodyOneof0
        if body.get("status") == "completed"
        else schema.ReposOwnerRepoCheckRunsPostBodyOneof1
    )
    return _output(body) or _by_schema(body, model)


def refuse_check_run_change(body: Json) -> Json | None:
    """A change of a check run."""
    model = (
        schema.ReposOwnerRepoCheckRunsCheckRunIdPatchBodyAnyof0
        if body.get("status") == "completed"
        else schema.ReposOwnerRepoCheckRunsCheckRunIdPatchBodyAnyof1
    )
    return _output(body) or _by_schema(body, model)


def refuse_reaction(body: Json) -> Json | None:
    """A reaction: one of eight."""
    if body.get("content") not in REACTIONS:
        return _failed("Reaction", "content", "content is not a reaction")
    return _by_schema(body, schema.ReposOwnerRepoIssuesCommentsCommentIdReactionsPostBody)


Refuse = Callable[[Json], Json | None]


def _output(body: Json) -> Json | None:
    output = body.get("output")
    if not isinstance(output, Mapping):
        return None
    for field in ("summary", "text"):
        if len(str(output.get(field) or "")) > OUTPUT_MAX:
            return _failed("CheckRun", field, f"{field} exceeds a maximum bytesize of {OUTPUT_MAX}")
    annotations = output.get("annotations")
    if isinstance(annotations, list) and len(annotations) > ANNOTATIONS_MAX:
        return _failed("CheckRun", "annotations", f"No more than {ANNOTATIONS_MAX} annotations are allowed; maximum")
    return None


def _by_schema(body: Json, model: type[BaseModel]) -> Json | None:
    try:
        model.model_validate(body)
    except ValidationError as error:
        return {
            "message": "Invalid request.\n\n" + "; ".join(f"{p['loc']}: {p['msg']}" for p in error.errors()),
            "documentation_url": "https://docs.github.com/rest",
            "status": "422",
        }
    unknown = sorted(set(body) - set(model.model_fields))
    return _failed("Body", unknown[0], f"unknown field {unknown[0]}") if unknown else None


def _failed(resource: str, field: str, message: str) -> Json:
    return {
        "message": "Validation Failed",
        "errors": [{"resource": resource, "code": "unprocessable", "field": field, "message": message}],
        "documentation_url": "https://docs.github.com/rest",
        "status": "422",
    }
