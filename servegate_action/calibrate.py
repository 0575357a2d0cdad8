"""`servegate calibrate`: the baseline against itself, and what this runner's noise allows to show.

The same measuring as a gate's, with the baseline on both sides and one look at the end. Nothing is gated and no limit
is changed: limits are suggested, and later runs on this machine warn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from servegate_action import calibrations, gate
from servegate_action.analysis import calibration, checklist
from servegate_action.analysis.calibration import Calibration
from servegate_action.config.limits import Limits, Rounds
from servegate_action.config.load import as_written
from servegate_action.config.models import Config
from servegate_action.errors import CannotMeasure
from servegate_action.progress import Reporter
from servegate_action.world import World

FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class Request:
    """Which gate to calibrate, where its files are, where the evidence goes, and how many rounds to spend."""

    config: Config
    read_text: Callable[[str], str]
    output: Path
    rounds: int


def calibrate(request: Request, *, world: World, reporter: Reporter) -> Calibration:
    """Measure the baseline against itself, keep what was found, and give it back."""
    config = against_itself(request.config, rounds=request.rounds)
    order = gate.Order(config, request.read_text, request.output, gate.local_origin(world, notes=("calibration",)))
    finished = gate.run(order, world=world, reporter=reporter)
    if finished.failure is not None:
        raise finished.failure
    recording = finished.directory.recording()
    if finished.judgement.rounds_used < calibration.LEAST_ROUNDS:
        raise CannotMeasure(
            f"the calibration has {finished.judgement.rounds_used} usable rounds, and needs {calibration.LEAST_ROUNDS}",
            why=finished.judgement.headline,
            next_step="more rounds (--rounds), a larger rounds.budget_minutes, or see the report for what was invalid",
        )
    found = calibration.calibrate(
        checklist.series_of(config, recording, gate.data_of(finished.directory)),
        rounds=finished.judgement.rounds_used,
        looks=request.config.rounds.looks,
        date=recording.anchor.wall_iso,
        runner=calibrations.runner_of(recording),
    )
    finished.directory.write_text(FILE, found.model_dump_json(indent=1) + "\n")
    finished.directory.write_manifest(recording.tool_version)
    calibrations.keep(found, gate=request.config.gate, environment=world.environment)
    return found


def against_itself(config: Config, *, rounds: int) -> Config:
    """The gate with its baseline on both sides and a single look after `rounds` rounds."""
    even = rounds + rounds % 2
    again = config.stacks.baseline.model_copy(update={"label": f"{config.stacks.baseline.label[:70]} (again)"})
    changes: dict[str, object] = {
        "stacks": config.stacks.model_copy(update={"candidate": again}),
        "rounds": Rounds(min=even, max=even, budget_minutes=config.rounds.budget_minutes),
        "calibration": None,
    }
    if config.cost is not None:
        idle = config.cost.idle.model_copy(update={"candidate": config.cost.idle.baseline})
        changes["cost"] = config.cost.model_copy(update={"idle": idle})
    return config.model_copy(update=changes)


def table(found: Calibration) -> Table:
    """What the runner can show, metric by metric."""
    head, *rows = calibration.table(found)
    shown = Table(box=None, pad_edge=False, title=f"noise of {found.runner.accelerator}, {found.rounds} rounds")
    for index, title in enumerate(head):
        shown.add_column(title, justify="right" if index else "left")
    for row in rows:
        shown.add_row(*row)
    return shown


def advice(found: Calibration, limits: Limits) -> str:
    """The configured limits with the suggestions in them, as they are written in the configuration."""
    suggested = calibration.suggested_limits(found, limits)
    if suggested == limits:
        return "this runner can honour every limit as it is"
    told = suggested.model_dump(mode="json", exclude_defaults=True)
    return f"limits that this runner can honour, for the configuration:\n{as_written({'limits': told})}".rstrip()
