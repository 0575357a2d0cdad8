"""The story: the whole job on one screen, in the order of the data.

A configuration becomes a plan, the plan a recording, the recording a judgement, the judgement a report. Everything
after the recording is a function of the files in the run directory: `judge`, `report` and `verify` enter the story
there, and get the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from servegate_action import __version__, calibrations, launch, store, traces, workload
from servegate_action.analysis import calibration, checklist, plan_check
from servegate_action.analysis.calibration import Calibration
from servegate_action.analysis.judgement import Judgement, Word
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.tenants import tenants
from servegate_action.analysis.verdict import Decision
from servegate_action.config import load as configuration
from servegate_action.config.models import Config
from servegate_action.errors import CannotMeasure, RecordingUnreadable, VerificationFailed
from servegate_action.host import this_host
from servegate_action.measure import Job, Origin, measure
from servegate_action.progress import Reporter
from servegate_action.records import LaunchRecord, LaunchState, Recording, Side, TelemetrySample
from servegate_action.report import comment, page, summary
from servegate_action.store import RunDirectory
from servegate_action.traces import TraceRow
from servegate_action.workload import LengthFit
from servegate_action.world import World

Language = Literal["en", "es"]
RENDERED = frozenset({store.COMMENT, store.SUMMARY, store.PAGE})
DERIVED = RENDERED | {store.VERDICT, store.TRACE, store.MANIFEST}
"""Files that follow from the others."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be gated. `read_text` gives the files that the policy names (traces), by their name in it."""

    config: Config
    read_text: Callable[[str], str]
    output: Path
    origin: Origin


@dataclass(frozen=True, slots=True)
class Finished:
    """A judged run. `failure` is what stopped the measurement early, if anything did."""

    judgement: Judgement
    directory: RunDirectory
    failure: CannotMeasure | None = None


def run(order: Order, *, world: World, reporter: Reporter) -> Finished:
    """The whole gate: sweep, measure, judge, report. The evidence is in `order.output` whatever happens."""
    for line in launch.sweep(state_dir=launch.state_directory(world.environment), environment=world.environment):
        reporter.phase(line)
    directory = RunDirectory.create(order.output)
    text = configuration.dump(order.config)
    directory.write_text(store.CONFIG, text)
    if arrivals := _declared_arrivals(order.config, order.read_text):
        directory.write_text(store.TRAFFIC, "".join(f"{seconds!r}\n" for seconds in arrivals))
    failure = None
    try:
        measure(_job(order, directory, text, world, reporter))
    except CannotMeasure as error:
        if not directory.has(store.RECORDING):
            raise  # not even begun: no engine, no telemetry; there is nothing to judge
        failure = error
    reporter.phase("judging")
    return Finished(conclude(directory), directory, failure)


def conclude(directory: RunDirectory) -> Judgement:
    """From the recording to verdict, reports and manifest, all of them rewritten."""
    judgement = judge(directory)
    for name, text in rendered(judgement, language=configuration_of(directory).report.language).items():
        directory.write_text(name, text)
    directory.write_text(store.TRACE, checklist.trace_csv(directory.recording(), data_of(directory)))
    directory.write_manifest(__version__)
    return judgement


def judge(directory: RunDirectory, *, read_text: Callable[[str], str] | None = None) -> Judgement:
    """The judgement that follows from the files; nothing is written.

    Refused when the recording's plan is not the configuration's. With `read_text`, which gives the files that the policy names
    (traces), the plan and the priced traffic are held against those as well: for a directory that somebody else wrote.
    """
    config, recording, arrivals = configuration_of(directory), directory.recording(), _arrivals(directory)
    misfits = _misfits(config, recording, _trace_of(config, read_text) if read_text else None)
    if recording.plan.config_sha256 != _sha256(directory.read_text(store.CONFIG)):
        misfits = (*misfits, f"{store.CONFIG} is not, byte for byte, the one that was measured with")
    if read_text is not None and arrivals != _declared_arrivals(config, read_text):
        misfits = (*misfits, f"{store.TRAFFIC} is not the traffic that the configuration names")
    if misfits:
        raise RecordingUnreadable(
            "the plan in the recording is not the one that its configuration declares",
            why="; ".join(misfits),
            next_step=f"a file of the run directory was changed, or {store.CONFIG} is another run's: measure again",
        )
    return checklist.judge(config, recording, data_of(directory), arrivals_s=arrivals)


def _misfits(config: Config, recording: Recording, trace: Sequence[TraceRow] | None) -> tuple[str, ...]:
    """What a verdict hangs on and a recording only repeats: cells, looks, order of launches, API, the gate's name."""
    plan, looks = recording.plan, config.rounds.looks
    order = tuple(workload.round_order(number) for number in range(1, looks[-1] + 1))
    api = config.workload.api if recording.dialect is None else recording.dialect.api
    repeated = (
        ("gate", recording.gate, config.gate),
        ("api", api, config.workload.api),
        ("looks after rounds", plan.looks, looks),
        ("order of launches", _listed(plan.order), _listed(order)),
    )
    found = (f"{what} {said}, declared {declared}" for what, said, declared in repeated if said != declared)
    return (*found, *plan_check.undeclared(config.workload, plan.cells, trace=trace))


def _listed(order: tuple[tuple[Side, Side], ...]) -> str:
    return ", ".join(f"{first} {second}" for first, second in order)


def rendered(judgement: Judgement, *, language: Language) -> dict[str, str]:
    """Every text that is made from a judgement, by file name."""
    return {
        store.VERDICT: judgement.model_dump_json(indent=1) + "\n",
        store.COMMENT: comment(judgement, language=language),
        store.SUMMARY: summary(judgement, language=language),
        store.PAGE: page(judgement, language=language),
    }


def judge_again(directory: RunDirectory) -> Judgement:
    """Verdict and reports from the recording, written anew; refused when a recorded file was changed meanwhile."""
    _untouched(directory, but=DERIVED)
    return conclude(directory)


def _untouched(directory: RunDirectory, *, but: frozenset[str]) -> None:
    """Before a manifest is written anew: what is not made anew with it must be what the old one says."""
    if directory.has(store.MANIFEST):
        changed = [line for line in directory.check_manifest() if line.partition(":")[0] not in but]
        if changed:
            raise VerificationFailed(changed)


def report(directory: RunDirectory, *, language: Language | None = None) -> list[Path]:
    """Render the stored verdict again; returns the files written. Refused when anything else was changed meanwhile."""
    judgement = stored(directory)
    _untouched(directory, but=RENDERED)
    texts = rendered(judgement, language=language or configuration_of(directory).report.language)
    written = [directory.write_text(name, text) for name, text in texts.items() if name != store.VERDICT]
    directory.write_manifest(__version__)
    return written


def stored(directory: RunDirectory) -> Judgement:
    """The verdict on disk. Raises RecordingUnreadable when it is none."""
    try:
        return Judgement.model_validate_json(directory.read_text(store.VERDICT))
    except ValueError as error:
        raise RecordingUnreadable(
            f"{directory.root / store.VERDICT} is no verdict that this version reads: {str(error).splitlines()[0]}",
            next_step="`servegate judge DIR` makes it again from the recording",
        ) from None


def failure_of(directory: RunDirectory) -> CannotMeasure | None:
    """What stopped the recorded run early, as the error that it was."""
    failure = directory.recording().failure
    if failure is None:
        return None
    return CannotMeasure(failure.what, why=failure.why, next_step=failure.next_step)


def verify(directory: RunDirectory) -> Judgement:
    """Check every file against the manifest, and that verdict and reports, in whatever language, follow from the recording, byte
    for byte."""
    findings = directory.check_manifest()
    if findings:
        raise VerificationFailed(findings)
    judgement = judge(directory)
    texts = [rendered(judgement, language=language) for language in get_args(Language)]
    for name in texts[0]:
        if directory.read_bytes(name) not in [text[name].encode() for text in texts]:
            findings.append(f"{name}: does not follow from the recording")
    if findings:
        raise VerificationFailed(findings)
    return judgement


def local_origin(world: World, *, notes: tuple[str, ...] = ()) -> Origin:
    """The origin of a run that no workflow started."""
    return Origin(
        run_id=f"local-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}",
        tool_version=__version__,
        operator=world.operator(),
        notes=notes,
    )


# ---------------------------------------------------------------- from an order to a job


def _declared_arrivals(config: Config, read_text: Callable[[str], str]) -> tuple[float, ...]:
    traffic = config.cost.traffic if config.cost else None
    if traffic is None or traffic.trace is None:
        return ()
    rows = traces.parse_trace(read_text(traffic.trace), name=traffic.trace)
    return tuple(row.t_ns / 1e9 for row in rows)


def _trace_of(config: Config, read_text: Callable[[str], str]) -> tuple[TraceRow, ...] | None:
    trace = config.workload.trace
    return traces.parse_trace(read_text(trace.path), name=trace.path) if trace else None


def _job(order: Order, directory: RunDirectory, config_text: str, world: World, reporter: Reporter) -> Job:
    declared, trace = order.config.workload, _trace_of(order.config, order.read_text)

    def plan(fit: LengthFit) -> workload.Workload:
        return workload.build(declared, fit=fit, trace=trace)

    return Job(
        config=order.config,
        config_sha256=_sha256(config_text),
        plan=plan,
        directory=directory,
        environment=world.environment,
        workspace=world.folder,
        cache=launch.state_directory(world.environment) / "hashes",
        origin=order.origin,
        host=this_host(),
        thinking=Judging(order.config, directory, calibrations.find(order.config, world)),
        reporter=reporter,
    )


@dataclass(frozen=True, slots=True)
class Judging:
    """Answers what measuring asks of judging, from the files written so far."""

    config: Config
    directory: RunDirectory
    calibration: Calibration | None

    def incomparable(self, recording: Recording) -> bool:
        """Whether the checks before the first round make the comparison INVALID already."""
        return self._standing(recording).word is Word.INVALID

    def warnings(self, recording: Recording) -> tuple[str, ...]:
        """Limits below the floor that a calibration of this runner found."""
        if self.calibration is None:
            return ()
        series = checklist.series_of(self.config, recording, {}, arrivals_s=_arrivals(self.directory))
        gated = [(one.key, one.limit) for one in series if one.gated]
        runner = calibrations.runner_of(recording)
        return calibration.warnings(self.calibration, gated, runner=runner, looks=recording.plan.looks)

    def decided(self, recording: Recording) -> bool:
        """Whether a verdict stands at this look."""
        return self._standing(recording).next_look is None

    def void_reason(self, record: LaunchRecord, data: store.LaunchData, *, floor: TelemetrySample | None) -> str | None:
        """Whether the environment spoiled the launch."""
        return checklist.void_reason(record, _launch_data(data), floor=floor)

    def occupied(self, now: TelemetrySample, *, floor: TelemetrySample) -> bool:
        """Whether the accelerator is not (or not yet) as free as it was at first."""
        return bool(tenants(now, bare=floor))

    def _standing(self, recording: Recording) -> Decision:
        arrivals = _arrivals(self.directory)
        return checklist.standing(self.config, recording, data_of(self.directory), arrivals_s=arrivals)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def configuration_of(directory: RunDirectory) -> Config:
    """The configuration that a run was made with."""
    return configuration.load(directory.read_text(store.CONFIG), file=str(directory.root / store.CONFIG))


def data_of(directory: RunDirectory) -> Mapping[str, LaunchData]:
    """Bulk facts of every launch that counts, by the launch's directory."""
    launches = (one for one in directory.recording().launches if one.state is not LaunchState.VOIDED)
    return {one.directory: _launch_data(directory.data(one)) for one in launches}


def _arrivals(directory: RunDirectory) -> tuple[float, ...]:
    """Arrival times of the day that the money is computed for, in seconds, when a trace gives them."""
    if not directory.has(store.TRAFFIC):
        return ()
    try:
        return tuple(float(line) for line in directory.read_text(store.TRAFFIC).split())
    except ValueError as error:
        raise RecordingUnreadable(f"{directory.root / store.TRAFFIC} is damaged: {error}") from None


def _launch_data(data: store.LaunchData) -> LaunchData:
    return LaunchData(data.requests, data.telemetry, data.samples, data.damaged)
