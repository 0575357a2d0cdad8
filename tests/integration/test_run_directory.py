"""From files to verdict and back: judge, report and verify on real run directories, without a GPU, network or clock."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from servegate_action import cli, gate, store
from servegate_action.analysis.judgement import Word
from servegate_action.config.load import dump
from servegate_action.errors import CannotMeasure, ExitCode, RecordingUnreadable, VerificationFailed
from servegate_action.records import Plan
from servegate_action.store import RunDirectory
from servegate_action.world import World
from tests.support import recordings, run_directories
from tests.support.recordings import Scene

SCENES: list[tuple[Callable[[], Scene], Word]] = [
    (recordings.passing, Word.PASS),
    (recordings.rejecting, Word.REJECT),
    (recordings.inconclusive, Word.INCONCLUSIVE),
    (recordings.invalid, Word.INVALID),
    (recordings.killed, Word.INCONCLUSIVE),
    (recordings.nothing_measured, Word.INCONCLUSIVE),
    (recordings.on_cpu, Word.PASS),
]


def record(scene: Scene, root: Path) -> RunDirectory:
    """Write a made-up run as measuring would have."""
    return run_directories.record(recordings.build(scene), root)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = record(recordings.passing(), tmp_path_factory.mktemp("runs") / "passing")
    gate.conclude(directory)
    return directory.root


@pytest.fixture
def passed(judged: Path, tmp_path: Path) -> RunDirectory:
    """A judged run of one's own."""
    return RunDirectory(Path(shutil.copytree(judged, tmp_path / "run")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    directory = record(recordings.rejecting(), tmp_path_factory.mktemp("runs") / "rejecting")
    gate.conclude(directory)
    return directory


@pytest.mark.parametrize(("scene", "word"), SCENES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_run_is_judged_reported_and_verified_whatever_its_verdict(
    scene: Callable[[], Scene], word: Word, tmp_path: Path
) -> None:
    directory = record(scene(), tmp_path / "run")
    assert gate.conclude(directory).word is word
    assert gate.verify(directory).word is word
    tokens = MarkdownIt("commonmark").enable("table").parse(directory.read_text(store.COMMENT))
    rows = [token for token in tokens if token.type == "tr_open"]
    assert len(rows) >= 9  # the head and all eight rows, then the folded tables
    for name in (store.SUMMARY, store.PAGE, store.TRACE, store.MANIFEST):
        assert directory.has(name)


def test_judging_again_gives_the_same_bytes(finished: RunDirectory) -> None:
    before = {name: directory_bytes(finished, name) for name in (store.VERDICT, store.COMMENT, store.SUMMARY)}
    gate.judge_again(finished)
    assert {name: directory_bytes(finished, name) for name in before} == before
    assert finished.check_manifest() == []


def directory_bytes(directory: RunDirectory, name: str) -> bytes:
    content = directory.read_bytes(name)
    assert content is not None
    return content


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "name",
    [
        store.RECORDING,
        store.CONFIG,
        store.WORKLOAD,
        store.VERDICT,
        store.COMMENT,
        "rounds/01-baseline/requests.jsonl.gz",
        "rounds/02-candidate/telemetry.jsonl",
    ],
)
def test_one_changed_byte_is_found_and_its_file_named(name: str, passed: RunDirectory) -> None:
    flipped(passed.root / name)
    with pytest.raises(VerificationFailed, match=name) as caught:
        gate.verify(passed)
    assert caught.value.exit_code is ExitCode.INVALID


def test_a_forged_verdict_with_a_fitting_manifest_is_still_found(passed: RunDirectory) -> None:
    forged = json.loads(passed.read_text(store.VERDICT)) | {"word": "REJECT"}
    passed.write_text(store.VERDICT, json.dumps(forged, indent=1) + "\n")
    passed.write_manifest("0")
    with pytest.raises(VerificationFailed, match=r"verdict.json: does not follow from the recording"):
        gate.verify(passed)


def test_a_looser_configuration_with_a_fitting_manifest_is_still_found(passed: RunDirectory) -> None:
    config = gate.configuration_of(passed)
    looser = config.model_copy(update={"numerics": config.numerics.model_copy(update={"enabled": False})})
    passed.write_text(store.CONFIG, dump(looser))
    passed.write_manifest("0")
    for again in (gate.judge_again, gate.verify):
        with pytest.raises(RecordingUnreadable, match="not the one that its configuration declares") as caught:
            again(passed)
        assert "config.yml is not, byte for byte, the one that was measured with" in caught.value.why


def test_judge_refuses_a_recording_that_was_changed_after_the_manifest(passed: RunDirectory) -> None:
    flipped(passed.root / "rounds/01-baseline/requests.jsonl.gz")
    with pytest.raises(VerificationFailed, match="rounds/01-baseline/requests"):
        gate.judge_again(passed)


def cell_less(plan: Plan) -> dict[str, object]:
    return {"cells": plan.cells[:-1]}


def cell_lighter(plan: Plan) -> dict[str, object]:
    return {"cells": (*plan.cells[:-1], plan.cells[-1].model_copy(update={"weight": 0.01}))}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (cell_less, "long/2"),
        (cell_lighter, "weight"),
        (lambda plan: {"looks": (4,)}, "rounds"),
        (lambda plan: {"order": (plan.order[0],) * len(plan.order)}, "order"),
    ],
    ids=["a cell less", "a lighter cell", "other looks", "no alternation"],
)
def test_a_plan_that_its_configuration_does_not_declare_is_not_judged(
    changed: Callable[[Plan], dict[str, object]], says: str, passed: RunDirectory
) -> None:
    recording = passed.recording()
    plan = recording.plan.model_copy(update=changed(recording.plan))
    passed.write_recording(recording.model_copy(update={"plan": plan}))
    passed.write_manifest("0")
    for ask in (gate.judge, gate.judge_again, gate.verify):
        with pytest.raises(RecordingUnreadable, match=r"the plan in the recording") as caught:
            ask(passed)
        assert says in caught.value.why


def test_a_recording_of_another_gate_or_by_another_api_is_not_judged(passed: RunDirectory) -> None:
    recording = passed.recording()
    assert recording.dialect is not None
    chat = recording.dialect.model_copy(update={"api": "chat"})
    for changes in ({"gate": "another"}, {"dialect": chat}):
        passed.write_recording(recording.model_copy(update=changes))
        with pytest.raises(RecordingUnreadable, match=r"the plan in the recording"):
            gate.judge(passed)


def test_judge_repairs_what_follows_from_the_recording(passed: RunDirectory) -> None:
    (passed.root / store.COMMENT).unlink()
    flipped(passed.root / store.VERDICT)
    gate.judge_again(passed)
    assert gate.verify(passed).word is Word.PASS


def test_a_report_can_be_had_in_another_language(passed: RunDirectory) -> None:
    english = passed.read_text(store.COMMENT)
    written = gate.report(passed, language="es")
    assert {path.name for path in written} == {store.COMMENT, store.SUMMARY, store.PAGE}
    assert passed.read_text(store.COMMENT) != english
    assert 'lang="es"' in passed.read_text(store.PAGE)
    gate.verify(passed)


@pytest.mark.parametrize("name", ["rounds/01-baseline/requests.jsonl.gz", store.RECORDING, store.CONFIG, store.VERDICT])
def test_a_report_is_not_made_over_evidence_that_was_changed(passed: RunDirectory, name: str) -> None:
    path = passed.root / name
    path.write_bytes(path.read_bytes() + b"\n")
    before = passed.read_bytes(store.MANIFEST)
    with pytest.raises(VerificationFailed, match=name):
        gate.report(passed)
    assert passed.read_bytes(store.MANIFEST) == before


def test_a_verdict_that_is_none_says_how_to_make_one(passed: RunDirectory) -> None:
    passed.write_text(store.VERDICT, "{}")
    with pytest.raises(RecordingUnreadable, match="servegate judge DIR"):
        gate.report(passed)


def test_what_stopped_a_run_is_the_error_that_it_was(tmp_path: Path) -> None:
    stopped = gate.failure_of(record(recordings.nothing_measured(), tmp_path / "run"))
    assert isinstance(stopped, CannotMeasure)
    assert stopped.exit_code is ExitCode.CANNOT_MEASURE


def test_judge_ends_as_the_run_did_that_could_not_be_measured(tmp_path: Path) -> None:
    record(recordings.nothing_measured(), tmp_path / "run")
    out, err = (Console(file=io.StringIO()) for _ in range(2))
    assert cli.run(["judge", "run"], World({}, tmp_path, out, err)) == ExitCode.CANNOT_MEASURE
