"""The job in GitHub: event and inputs in, the gate in the middle, status, comment and outputs out.

Four modes: `run` does all of it; `measure` and `publish` are its two halves, for a job that runs foreign code without
rights and a job with rights that runs nothing; `command` answers a slash command. Measuring and posting are separate
phases. What cannot be posted is a warning; it never changes the gate's exit code.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from servegate_action import __version__, gate, launch
from servegate_action.action.policy import BasePolicy, Gated, base_policy, gated, said_anew, same_policy
from servegate_action.action.publishing import (
    announce,
    names_rejected,
    nothing,
    options_of,
    place_of,
    report_outputs,
    saved,
    verdict,
)
from servegate_action.action.step import Step
from servegate_action.analysis.judgement import Judgement
from servegate_action.errors import Cancelled, CannotMeasure, ExitCode, RecordingUnreadable, ServegateError, UsageError
from servegate_action.github import artifact, checkout, commands, publish, pulls
from servegate_action.github.api import Refused
from servegate_action.github.degrade import Feature, Lost, explain
from servegate_action.github.event import Event, Kind
from servegate_action.github.inputs import CommentWhen, read_inputs
from servegate_action.github.publish import Options, Where
from servegate_action.github.upload import upload
from servegate_action.measure import Origin
from servegate_action.progress import reporting
from servegate_action.store import RunDirectory
from servegate_action.world import World

__all__ = ["main", "post", "publish_folder", "run_and_publish"]


def main(world: World) -> int:
    """The container's entry point. Returns the exit code of the step."""
    step = Step.begin(world, read_inputs(world.environment))
    modes = {"run": _run, "measure": _run, "publish": _publish, "command": _command}
    try:
        return modes[step.inputs.mode](step)
    except ServegateError as error:
        step.job_log.error("servegate", str(error))
        return error.exit_code
    finally:
        step.hand_over()


def run_and_publish(world: World, *, config_name: str, output: str) -> int:
    """`servegate run --publish`: the same without the container."""
    inputs = replace(read_inputs(world.environment), config=config_name, output_dir=output, mode="run")
    return _run(Step.begin(world, inputs))


def publish_folder(world: World, *, directory: str) -> int:
    """`servegate publish DIR`: the second stage without the container."""
    inputs = replace(read_inputs(world.environment), output_dir=directory, mode="publish")
    return _publish(Step.begin(world, inputs))


# ---------------------------------------------------------------- run, measure


def _run(step: Step) -> int:
    """Measure and judge; in mode `run`, tell GitHub at the start and in the end."""
    event = _resolved(step, step.event())
    if event.kind is Kind.ISSUE_COMMENT and event.sha is None:
        event = _commanded(step, event)
    where, options = place_of(step, event, gate="servegate", context="servegate"), Options()
    telling = step.inputs.mode == "run"
    try:
        found = gated(step, event)
        config = found.config
        where = place_of(step, event, gate=config.gate, context=config.status_context)
        options = options_of(config)
        found = found.with_note(checkout.confirm(event, folder=step.job.workspace, runner_sha=step.job.sha))
        if telling:
            _pending(step, where, options)
        finished = _measured(step, found)
    except ServegateError as error:
        if telling:
            said = nothing(error, gate=where.gate if where else "servegate")
            at_hand = step.hurried() if isinstance(error, Cancelled) else step
            published = announce(at_hand, said, where=where, options=replace(options, comment=_quiet(error, options)))
            report_outputs(step, word="", rejected=(), published=published)
        raise
    judgement = finished.judgement
    said = verdict(step, judgement, language=config.report.language, failure=finished.failure)
    published = announce(step, said, where=where, options=options) if telling else None
    if not telling:
        step.summary(said.summary)
    report_outputs(
        step, word=said.word or "", rejected=names_rejected(judgement) if said.word else (), published=published
    )
    _keep(step, config.gate)
    if finished.failure is not None:
        raise finished.failure
    step.job_log.line(judgement.headline)
    return judgement.word.exit_code


def _quiet(error: ServegateError, options: Options) -> CommentWhen:
    """A cancelled job says so in its status and leaves the comment as it is: seconds are all it has."""
    return "never" if isinstance(error, Cancelled) else options.comment


def _pending(step: Step, where: Where | None, options: Options) -> None:
    step.state(**saved(where, options))
    if step.api is not None and where is not None:
        step.warn(publish.pending(where, api=step.api, options=options).warnings)


def _measured(step: Step, found: Gated) -> gate.Finished:
    order = gate.Order(
        config=found.config,
        read_text=found.read_text,
        output=step.root,
        origin=Origin(
            run_id=str(step.job.run),
            tool_version=__version__,
            operator=step.world.operator(),
            run_url=step.job.run_url,
            change=found.change,
            notes=found.notes,
        ),
    )
    world = replace(step.world, folder=step.job.workspace)
    with reporting(step.world.err) as reporter:
        return gate.run(order, world=world, reporter=reporter)


def _keep(step: Step, name: str) -> None:
    if not step.inputs.upload_artifact:
        return
    found = upload(step.root, name=f"servegate-{name}", environment=step.job, sleep=time.sleep)
    if isinstance(found, Lost):
        step.warn([found])
    else:
        step.job_log.line(f"uploaded artifact {found.name}: {found.size_bytes} bytes, sha256 {found.sha256}")


# ---------------------------------------------------------------- publish


def _publish(step: Step) -> int:
    """Second stage: believe nothing in the folder but what follows from the recording, and the server about the rest.

    Gate, context and what is published come from the base's configuration, so that an artifact cannot choose which status
    it turns green. Whatever is wrong with the artifact becomes an `error` there.
    """
    if step.api is None:
        raise UsageError("publishing needs a token", next_step="set the input github-token")
    event = pulls.resolve(step.event(), api=step.api)
    policy = base_policy(step, event)
    base = policy.config
    where = place_of(step, event, gate=base.gate, context=base.status_context)
    options = options_of(base)
    try:
        judgement, failure = _believed(step, event, policy)
    except ServegateError as error:
        published = announce(step, nothing(error, gate=base.gate), where=where, options=options)
        report_outputs(step, word="", rejected=(), published=published)
        raise
    said = verdict(step, judgement, language=base.report.language, failure=failure)
    published = announce(step, said, where=where, options=options)
    report_outputs(
        step, word=said.word or "", rejected=names_rejected(judgement) if said.word else (), published=published
    )
    if failure is not None:
        raise failure
    return judgement.word.exit_code


def _believed(step: Step, event: Event, policy: BasePolicy) -> tuple[Judgement, CannotMeasure | None]:
    """The judgement that follows from the artifact, once it is about this commit and by this policy."""
    artifact.admit(step.root)
    directory = RunDirectory(step.root)
    change = directory.recording().change
    if change is None or change.head_sha != event.sha or change.repository.lower() != event.repository.lower():
        raise RecordingUnreadable(
            f"the artifact speaks of {change.head_sha[:7] if change else 'no commit'}, the event of {(event.sha or '')[:7]}",
            why="the job that measured ran the pull request's code, and may have written anything",
            next_step="look at that job before anything else; nothing was published",
        )
    measured = gate.configuration_of(directory)
    if not same_policy(policy.config, measured):
        raise RecordingUnreadable(
            "the artifact was not measured by the policy of the base commit",
            why="workload, limits, prices, baseline, or what only the base may say of the candidate, differ from the base's",
            next_step="nothing was published; measure again with servegate's own `measure` mode",
        )
    judgement = gate.judge(directory, read_text=policy.read_text)
    notes = dict.fromkeys((*judgement.notes, *said_anew(policy.config, measured)))
    return judgement.model_copy(update={"notes": tuple(notes)}), gate.failure_of(directory)


def _resolved(step: Step, event: Event) -> Event:
    """The event with what only the server knows. Without an answer it stays as it is: its policy is then the default branch's."""
    if step.api is None:
        return event
    try:
        return pulls.resolve(event, api=step.api)
    except Refused as refused:
        step.warn([explain(Feature.PULL_REQUEST, refused)])
        return event


# ---------------------------------------------------------------- command


def _command(step: Step) -> int:
    """Answer `/servegate run <sha>`: accepted commands leave the sha as an output for the measuring job."""
    answered = _answer(step, step.event())
    if isinstance(answered, commands.Accepted):
        step.output(sha=answered.pull.head_sha, number=str(answered.pull.number))
        _announce_command(step, answered.event)
        step.job_log.line(f"accepted: {answered.pull.head_sha} of #{answered.pull.number}")
        return ExitCode.PASS
    step.output(sha="", number="")
    if isinstance(answered, commands.RefusedCommand):
        step.job_log.error("The command is not carried out", answered.reason)
        return ExitCode.USAGE
    step.job_log.line("no command")
    return ExitCode.PASS


def _announce_command(step: Step, event: Event) -> None:
    """Pending, so that people see that it runs. No state is left for this job's post step: another job finishes it."""
    try:
        config = base_policy(step, event).config
    except ServegateError as error:
        step.job_log.warning("The status does not show yet that the gate is at work", str(error))
        return
    where = place_of(step, event, gate=config.gate, context=config.status_context)
    if step.api is not None and where is not None:
        step.warn(publish.pending(where, api=step.api, options=options_of(config)).warnings)


def _commanded(step: Step, event: Event) -> Event:
    """`run` on a comment: the command is checked here and now, and its commit is what is measured."""
    answered = _answer(step, event)
    if isinstance(answered, commands.Accepted):
        return answered.event
    reason = answered.reason if isinstance(answered, commands.RefusedCommand) else "the comment holds no command"
    raise UsageError(f"nothing was measured: {reason}")


def _answer(step: Step, event: Event) -> commands.Outcome:
    if step.api is None:
        raise UsageError("a command needs a token: who asks must be looked up", next_step="set the input github-token")
    answered = commands.answer(event, api=step.api)
    if not isinstance(answered, commands.NoCommand):
        step.warn(answered.warnings)
    return answered


# ---------------------------------------------------------------- post


def post(world: World) -> int:
    """After the job, however it ended: end what a killed step left running, and turn a pending status into an error."""
    step = Step.begin(world, read_inputs(world.environment))
    _end_leftovers(step)
    step.hand_over()
    state = step.job.state
    if step.api is None or not state.get("sha"):
        return ExitCode.PASS
    number = state.get("number", "")
    where = Where(
        gate=state["gate"],
        context=state["context"],
        sha=state["sha"],
        number=int(number) if number.isdigit() else None,
        on_pull_request=bool(number),
        run=step.job.run,
        run_url=step.job.run_url,
    )
    told = publish.interrupted(
        where,
        api=step.api.hurried(),
        options=Options(check_run=state.get("check_run") == "true"),
        description="the job ended before the gate did: no verdict",
    )
    step.warn(told.warnings)
    return ExitCode.PASS


def _end_leftovers(step: Step) -> None:
    """The main step's own container first: it may still start others. What fails here must not cost the status."""
    environment = step.world.environment
    state_dir, run_id = launch.state_directory(environment), str(step.job.run)
    for end in (
        partial(launch.end_main_step, environment=environment),
        partial(launch.sweep, state_dir=state_dir, run_id=run_id, environment=environment),
    ):
        try:
            for line in end():
                step.job_log.line(line)
        except ServegateError as error:
            step.job_log.warning("Something of this job may still run", str(error))
