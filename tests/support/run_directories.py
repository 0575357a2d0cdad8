"""Run directories on disk, as measuring would have left them, from made-up runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from servegate_action import store
from servegate_action.config.load import dump
from servegate_action.records import Recording
from servegate_action.store import RunDirectory
from tests.support.recordings import Built


def configured(directory: RunDirectory, recording: Recording, config: str) -> None:
    """Write a configuration, and the recording as of a run that was made with it."""
    directory.write_text(store.CONFIG, config)
    plan = recording.plan.model_copy(update={"config_sha256": hashlib.sha256(config.encode()).hexdigest()})
    directory.write_recording(recording.model_copy(update={"plan": plan}))


def record(built: Built, root: Path) -> RunDirectory:
    """Write a made-up run: configuration, recording, requests and telemetry of every launch; no verdict yet."""
    directory = RunDirectory.create(root)
    configured(directory, built.recording, dump(built.config))
    directory.write_lines(store.WORKLOAD, ["{}"])
    for name, data in built.data.items():
        files = directory.launch(name)
        directory.append_requests(files, data.requests)
        lines = [data.telemetry.model_dump_json(), *(sample.model_dump_json() for sample in data.samples)]
        files.telemetry.write_text("\n".join(lines) + "\n")
    return directory
