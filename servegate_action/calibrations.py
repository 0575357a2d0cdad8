"""Where calibrations are kept: one per gate and machine, found again by later runs on the same machine.

A calibration speaks about a runner, not about a commit; so it lives in the user's data folder, or in a file that the
configuration names: the action, whose container has a home of its own, sees only the latter. One that cannot be read is
an error with its path, never silently ignored.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from servegate_action.analysis.calibration import Calibration, Runner
from servegate_action.analysis.checklist import accelerator_name
from servegate_action.config.models import Config
from servegate_action.errors import StorageFailed, UsageError
from servegate_action.records import Absent, Recording
from servegate_action.world import World


def find(config: Config, world: World) -> Calibration | None:
    """The calibration for this gate: the file that the configuration names, else the one kept on this machine."""
    if config.calibration is not None:
        return _read(world.folder / config.calibration)
    path = _path(config.gate, world.environment)
    return _read(path) if path.exists() else None


def keep(calibration: Calibration, *, gate: str, environment: Mapping[str, str]) -> Path:
    """Store it for later runs on this machine."""
    path = _path(gate, environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"the calibration cannot be kept in {path}: {error.strerror}") from error
    return path


def runner_of(recording: Recording) -> Runner:
    """The machine of a recording, as far as a calibration depends on it."""
    telemetry = recording.telemetry
    driver = telemetry.driver if not isinstance(telemetry, Absent) else telemetry
    return Runner(
        accelerator=accelerator_name(recording),
        driver=driver if isinstance(driver, str) else "none",
        hostname=recording.host.hostname,
        workload_sha256=recording.plan.workload_sha256,
    )


def _path(gate: str, environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_DATA_HOME")
    data = Path(given) if given else Path(environment.get("HOME") or "/var/lib") / ".local" / "share"
    return data / "servegate" / "calibrations" / f"{platform.node()}-{gate}.json"


def _read(path: Path) -> Calibration:
    try:
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"the calibration {path} does not exist",
            next_step="`servegate calibrate` writes it, or leave `calibration` out",
        ) from None
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(
            f"the calibration {path} cannot be read: {str(error).splitlines()[0]}",
            next_step="`servegate calibrate` writes it anew",
        ) from None
