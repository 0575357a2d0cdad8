"""The rounds: alternating fresh launches with the identical requests, until a look decides or the budget ends.

Looks happen after the scheduled numbers of rounds and at no other moment. A round that the environment spoiled is run
again, both of its launches, at most twice per run; never because of a metric's value.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from servegate_action import identity, load, telemetry
from servegate_action.measure.first_look import Common, load_limits
from servegate_action.measure.job import Draft, Job, Pace
from servegate_action.measure.stack import Up, running
from servegate_action.records import CellRun, IdleBlock, LaunchRecord, LaunchState, Release, Side
from servegate_action.workload import PlannedCell, round_order

MAX_VOIDS = 2
IDLE_SECONDS: dict[telemetry.Kind, float] = {"nvidia": 30.0, "cpu": 3.0}
"""Warm-idle block. A100 and H100 report power over a quarter of the time only: shorter windows alias."""

COUNTS_MAY_DIFFER = 0.01


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """Which launch of the run."""

    round: int
    side: Side
    position: Literal[1, 2]
    attempt: int

    @property
    def directory(self) -> str:
        """Its folder in the run directory."""
        again = f"-{self.attempt}" if self.attempt > 1 else ""
        return f"rounds/{self.round:02d}-{self.side}{again}"


def run_rounds(job: Job, draft: Draft, common: Common) -> None:
    """Rounds until a look decides, the schedule ends, or the next look does not fit the budget."""
    minutes = job.config.rounds.budget_minutes
    pace = Pace(time.monotonic_ns(), round(minutes * 60e9) if minutes else None)
    looks = draft.recording.plan.looks
    done = 0
    for look in looks:
        while done < look:
            if not pace.allows(look - done, now_ns=time.monotonic_ns()):
                _over_budget(draft, pace, done=done, look=look)
                return
            begun = time.monotonic_ns()
            _round(job, draft, common, number=done + 1)
            done += 1
            pace.rounds.append(time.monotonic_ns() - begun)
            if done == 1:
                _forecast(job, pace, looks)
        if job.thinking.decided(draft.recording):
            if look < looks[-1]:
                saved = (looks[-1] - look) * pace.forecast_ns() / 60e9
                draft.note(f"decided after {look} of at most {looks[-1]} rounds: about {saved:.1f} minutes saved")
            return


def _over_budget(draft: Draft, pace: Pace, *, done: int, look: int) -> None:
    needed = (look - done) * pace.forecast_ns() / 60e9
    draft.note(
        f"the budget of {(pace.budget_ns or 0) / 60e9:g} minutes ended the run after {done} rounds: "
        f"the next look, at {look}, needs about {needed:.1f} minutes more"
    )


def _forecast(job: Job, pace: Pace, looks: tuple[int, ...]) -> None:
    minutes = pace.forecast_ns() / 60e9
    budget = f"; the budget is {pace.budget_ns / 60e9:g}" if pace.budget_ns else ""
    job.reporter.phase(
        f"forecast: {minutes:.1f} minutes a round, {looks[0] * minutes:.1f} to the first look, "
        f"{looks[-1] * minutes:.1f} at the most{budget}"
    )


def _round(job: Job, draft: Draft, common: Common, *, number: int) -> None:
    """One launch of each stack; again, both of them, when the environment spoiled one (the void rule)."""
    attempt = 1
    first, second = round_order(number)
    while True:
        records = (
            _launch(job, draft, common, LaunchKey(number, first, 1, attempt)),
            _launch(job, draft, common, LaunchKey(number, second, 2, attempt)),
        )
        floor = draft.recording.floor
        found = [
            (record.side, job.thinking.void_reason(record, job.directory.data(record), floor=floor))
            for record in records
        ]
        reasons = "; ".join(f"{side}: {reason}" for side, reason in found if reason)
        if not reasons or draft.voids >= MAX_VOIDS:
            return
        draft.voids += 1
        attempt += 1
        job.reporter.phase(f"round {number} is void and will be run again ({draft.voids} of at most {MAX_VOIDS})")
        for record in records:
            draft.put(record.model_copy(update={"state": LaunchState.VOIDED, "reason": reasons}))


def _launch(job: Job, draft: Draft, common: Common, key: LaunchKey) -> LaunchRecord:
    """Start one stack fresh, run every cell on it, stop it; each finished cell is on disk before the next."""
    recording = draft.recording
    once = f"{recording.run_id}/{recording.anchor.wall_ns}/{key.attempt}"
    cells = common.workload.for_launch(key.round, once=once)
    job.reporter.phase(f"round {key.round}: {key.side}")
    record = _opened(key)
    draft.put(record)
    with running(job, draft, key.side, backend=common.backend, directory=key.directory) as up:
        record = record.model_copy(update={"cold_start": up.cold_start, "idle": _idle(job, common, key)})
        draft.put(record)
        for index, cell in enumerate(cells):
            _advance(job, draft, key, index, len(cells))
            run = _cell(job, draft, key, up=up, cell=cell, common=common)
            record = record.model_copy(update={"cells": (*record.cells, run)})
            draft.put(record)
        release = _release(job, draft, key, up)
    record = record.model_copy(update={"state": LaunchState.COMPLETE, "release": release})
    draft.put(record)
    draft.side = None
    return record


def _opened(key: LaunchKey) -> LaunchRecord:
    return LaunchRecord(
        round=key.round,
        side=key.side,
        position=key.position,
        attempt=key.attempt,
        directory=key.directory,
        state=LaunchState.RUNNING,
        reason=None,
        cold_start=None,
        idle=None,
        cells=(),
        release=None,
    )


def _cell(job: Job, draft: Draft, key: LaunchKey, *, up: Up, cell: PlannedCell, common: Common) -> CellRun:
    """Measure one cell. When it fails because the stack or the GPU is gone, that is what is raised."""
    target, streams = up.target(common.dialect, job.config), common.streams(cell)
    before = identity.server_metrics(up.base_url, headers=up.headers)
    try:
        result = load.run_cell(target, cell, limits=load_limits(job), expected_streams=streams)
    finally:
        up.check()
    job.directory.append_requests(up.files, result.requests)
    after = identity.server_metrics(up.base_url, headers=up.headers)
    if key.round == 1:
        _count_again(draft, key.side, target, result)
    return result.run.model_copy(update={"server_metrics_before": before, "server_metrics_after": after})


def _count_again(draft: Draft, side: Side, target: load.Target, result: load.CellResult) -> None:
    """Once per side and cell, a few answers by the server's own tokenizer, where it has one: a second opinion on N."""
    told = {request.id: request.output_tokens or 0 for request in result.requests}
    said = sum(told[name] for name in result.sample_texts)
    counts = load.count_tokens(target, list(result.sample_texts.values()))
    if counts is not None and abs(sum(counts) - said) > COUNTS_MAY_DIFFER * said:
        draft.note(
            f"the {side}'s tokenizer counts {sum(counts)} tokens in {len(counts)} answers of {result.run.cell}; "
            f"the measurement counts {said}"
        )


def _advance(job: Job, draft: Draft, key: LaunchKey, index: int, cells: int) -> None:
    launches = 2 * (key.round - 1) + key.position - 1
    total = 2 * draft.recording.plan.looks[-1] * cells
    job.reporter.advance(launches * cells + index, total, f"round {key.round} {key.side}, cell {index + 1} of {cells}")


def _idle(job: Job, common: Common, key: LaunchKey) -> IdleBlock | None:
    """The ready stack without traffic, once per side, where its power is part of a price."""
    cost = job.config.cost
    if key.round != 1 or cost is None or cost.electricity_usd_per_kwh is None:
        return None
    started = time.monotonic_ns()
    time.sleep(IDLE_SECONDS[common.backend])
    return IdleBlock(started_ns=started, ended_ns=time.monotonic_ns())


def _release(job: Job, draft: Draft, key: LaunchKey, up: Up) -> Release | None:
    """Where a side is said to scale to zero: once, let it go and watch whether everything is given back."""
    policy = job.config.cost.idle.of(key.side).scale_to_zero if job.config.cost else None
    floor = draft.recording.floor
    if policy is None or floor is None or key.round != 1:
        return None
    job.reporter.phase(f"watching whether the {key.side} gives everything back")
    if policy.by == "stop":
        up.running.stop()
    else:
        deadline = time.monotonic() + policy.after_s
        while time.monotonic() < deadline and not up.running.gone():
            time.sleep(0.25)
    probes = telemetry.ReleaseProbes(
        process_gone=up.running.gone,
        port_open=up.port_open,
        devices=[device.uuid for device in up.sampler.static.devices],
        sample=up.sampler.latest,
    )
    trigger: telemetry.Trigger = "stop" if policy.by == "stop" else "idle timeout"
    return telemetry.watch(trigger=trigger, floor=floor, probes=probes)
