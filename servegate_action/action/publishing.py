"""Finished runs in words for GitHub, and what is said when there is no verdict. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from servegate_action.action.step import Step, relative
from servegate_action.analysis.judgement import Judgement, Outcome, Word
from servegate_action.config.models import Config
from servegate_action.errors import ConfigError, ExitCode, ServegateError
from servegate_action.github import publish
from servegate_action.github.comment import Occasion
from servegate_action.github.event import Event
from servegate_action.github.outputs import guard_line
from servegate_action.github.publish import Finished, Options, Published, Where
from servegate_action.report import EarlierRun, Place, comment, status_line, summary
from servegate_action.report import markdown as md
from servegate_action.report.escape import inline
from servegate_action.report.wording import Language

SENTENCE = 600
MOST_PROBLEMS = 20


def place_of(step: Step, event: Event, *, gate: str, context: str) -> Where | None:
    """Where the verdict goes; None when the event names no commit."""
    return publish.where(event, step.job, gate=gate, context=context)


def options_of(config: Config) -> Options:
    """What is published, as configured."""
    return Options(comment=config.github.comment, check_run=config.github.check_run)


def verdict(step: Step, judgement: Judgement, *, language: Language, failure: ServegateError | None = None) -> Finished:
    """A judged run as GitHub is told. A run that could not be measured has its report, but no verdict."""
    code = failure.exit_code if failure else judgement.word.exit_code
    line = status_line(judgement, language=language)

    def text(occasion: Occasion) -> str:
        return comment(
            judgement,
            language=language,
            place=_place(step, occasion.newer_head),
            earlier=tuple(
                EarlierRun(head=one.head, verdict=one.verdict, run=str(one.run), url=step.job.url_of(one.run))
                for one in occasion.earlier
            ),
            max_chars=occasion.max_chars,
        )

    return Finished(
        word=None if failure else judgement.word.value,
        exit_code=code,
        status_line=_no_verdict(failure) if failure else line,
        text=text,
        summary=summary(judgement, language=language),
    )


def nothing(error: ServegateError, *, gate: str) -> Finished:
    """A run without a judgement: a wrong configuration, a refused artifact, a cancelled job."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    body = md.paragraphs(
        f"### ⚠️ servegate `{gate}`: no verdict",
        md.bold(inline(error.what, max_chars=SENTENCE)),
        md.bullets(inline(str(problem), max_chars=SENTENCE) for problem in problems[:MOST_PROBLEMS]),
        inline(error.why, max_chars=SENTENCE),
        f"Next: {inline(error.next_step, max_chars=SENTENCE)}" if error.next_step else "",
        "The job's log says more.",
    )
    said = _no_verdict(error)
    return Finished(word=None, exit_code=error.exit_code, status_line=said, text=lambda _: f"{body}\n", summary=body)


def _no_verdict(error: ServegateError) -> str:
    if error.exit_code in (ExitCode.SIGINT, ExitCode.SIGTERM):
        return "cancelled: nothing was decided"
    return f"no verdict: {guard_line(error.what, max_chars=110)}"


def _place(step: Step, newer_head: str | None) -> Place:
    """The run's page lists its artifacts; how long they stay is the repository's setting, when the runner says it."""
    days = step.job.retention_days
    until = (datetime.now(UTC) + timedelta(days=days)).date().isoformat() if days else None
    return Place(
        artifacts_url=f"{step.job.run_url}#artifacts",
        artifacts_until=until,
        newer_head=newer_head,
        directory=step.inputs.output_dir,
    )


def announce(step: Step, finished: Finished, *, where: Where | None, options: Options) -> Published | None:
    """Post it where there is a token and a place; say what did not arrive."""
    step.summary(finished.summary)
    if step.api is None or where is None:
        step.job_log.notice(
            "Nothing was posted", "no token was given (input github-token), or the event names no commit"
        )
        return None
    published = publish.publish(finished, place=where, api=step.api, options=options)
    step.warn(published.warnings)
    if published.kept:
        step.job_log.line(f"comment: {published.kept}")
    return published


def names_rejected(judgement: Judgement) -> tuple[str, ...]:
    """What rejects, by name: metrics as `tpot_p95` or `tpot_p95 long/4`, and hard checks such as `failed_share chat/1`."""
    if judgement.word is not Word.REJECT:
        return ()
    metrics = [str(one.key) for one in judgement.metrics if one.gated and one.outcome is Outcome.REJECT]
    checks = [
        f"{one.name} {one.cell}" if one.cell else one.name
        for one in judgement.checks
        if one.kind == "reject" and not one.ok
    ]
    return (*metrics, *checks)


def report_outputs(step: Step, *, word: str, rejected: tuple[str, ...], published: Published | None) -> None:
    """The four outputs, always all of them."""
    step.output(
        verdict=word,
        report_dir=relative(step.root, step.job.workspace),
        comment_url=(published.comment_url if published else None) or "",
        rejected=json.dumps(list(rejected)),
    )


def saved(where: Where | None, options: Options) -> Mapping[str, str]:
    """What the post step needs to finish a pending status."""
    if where is None:
        return {}
    return {
        "sha": where.sha,
        "context": where.context,
        "gate": where.gate,
        "number": str(where.number or ""),
        "check_run": str(options.check_run).lower(),
    }
