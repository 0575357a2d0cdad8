"""The run directory: what was finished is readable, what was changed is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from servegate_action.errors import RecordingUnreadable, StorageFailed
from servegate_action.records import (
    Absent,
    LaunchRecord,
    LaunchState,
    RequestRecord,
    Side,
    TelemetrySample,
    TelemetryStatic,
)
from servegate_action.store import MANIFEST, RECORDING, RunDirectory


def request(number: int) -> RequestRecord:
    return RequestRecord(
        id=f"{number:05d}",
        cell="chat/1",
        phase="measured",
        scheduled_ns=number,
        sent_ns=number,
        first_byte_ns=number,
        token_ns=(number + 1, number + 2),
        event_tokens=None,
        first_answer_ns=number + 1,
        end_ns=number + 3,
        requested_output_tokens=2,
        prompt_tokens=5,
        output_tokens=2,
        token_source=None,
        cached_tokens=None,
        finish_reason="length",
        events=4,
        coalesced_reads=0,
        slot=0,
        connection_reused=True,
        ok=True,
        error=None,
        text_sha256=None,
    )


def launch_record() -> LaunchRecord:
    return LaunchRecord(
        round=1,
        side=Side.BASELINE,
        position=1,
        attempt=1,
        directory="rounds/01-baseline",
        state=LaunchState.RUNNING,
        reason=None,
        cold_start=None,
        idle=None,
        cells=(),
        release=None,
    )


def static() -> TelemetryStatic:
    absent = Absent(absent="no such counter")
    return TelemetryStatic(
        backend="cpu",
        devices=(),
        driver=absent,
        cuda=absent,
        energy_counter=absent,
        power_counter=absent,
        utilization_counter="cpu",
        memory_counter="rss",
        throttle_counter=absent,
        interval_ns=100,
    )


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def test_finished_cells_are_read_back_in_order(directory: RunDirectory) -> None:
    files = directory.launch("rounds/01-baseline")
    directory.append_requests(files, [request(1), request(2)])
    directory.append_requests(files, [request(3)])
    assert [one.id for one in directory.data(launch_record()).requests] == ["00001", "00002", "00003"]


def test_a_cell_cut_off_by_a_kill_costs_that_cell_alone(directory: RunDirectory) -> None:
    files = directory.launch("rounds/01-baseline")
    directory.append_requests(files, [request(1)])
    directory.append_requests(files, [request(2)])
    whole = files.requests.read_bytes()
    files.requests.write_bytes(whole[:-9])
    data = directory.data(launch_record())
    assert [one.id for one in data.requests] == ["00001"]
    assert data.damaged == "requests.jsonl.gz: the last cell was cut off while it was written"


def test_a_changed_byte_in_the_middle_is_an_error_and_not_less_data(directory: RunDirectory) -> None:
    files = directory.launch("rounds/01-baseline")
    directory.append_requests(files, [request(1)])
    whole = bytearray(files.requests.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    files.requests.write_bytes(bytes(whole))
    with pytest.raises(RecordingUnreadable, match="damaged"):
        directory.data(launch_record())


def test_a_line_that_is_no_request_is_an_error(directory: RunDirectory) -> None:
    files = directory.launch("rounds/01-baseline")
    files.requests.write_bytes(gzip.compress(b'{"id": 3}\n'))
    with pytest.raises(RecordingUnreadable, match="damaged"):
        directory.data(launch_record())


def test_a_launch_without_files_has_no_data_and_says_why(directory: RunDirectory) -> None:
    data = directory.data(launch_record())
    assert data.requests == ()
    assert data.telemetry == Absent(absent="no telemetry was recorded for this launch")


def test_telemetry_is_read_up_to_a_torn_last_line(directory: RunDirectory) -> None:
    files = directory.launch("rounds/01-baseline")
    sample = TelemetrySample(t_ns=5, devices=()).model_dump_json()
    files.telemetry.write_text(f"{static().model_dump_json()}\n{sample}\n{sample[:9]}")
    data = directory.data(launch_record())
    assert data.telemetry == static()
    assert [one.t_ns for one in data.samples] == [5]
    assert data.damaged == "telemetry.jsonl: the last line was cut off while it was written"


def test_a_sampler_that_wrote_nothing_is_absent(directory: RunDirectory) -> None:
    directory.launch("rounds/01-baseline").telemetry.write_text("")
    assert directory.data(launch_record()).telemetry == Absent(absent="the sampler wrote nothing")


def test_damaged_telemetry_is_an_error(directory: RunDirectory) -> None:
    directory.launch("rounds/01-baseline").telemetry.write_text("{}\n")
    with pytest.raises(RecordingUnreadable, match="damaged"):
        directory.data(launch_record())


def test_an_earlier_run_is_moved_aside_and_never_written_over(tmp_path: Path) -> None:
    for content in ("first", "second", "third"):
        RunDirectory.create(tmp_path / "run").write_text(RECORDING, content)
    found = sorted((path.name, (path / RECORDING).read_text()) for path in tmp_path.iterdir())
    assert found == [("run", "third"), ("run.1", "first"), ("run.2", "second")]


def test_the_manifest_names_every_changed_missing_and_added_file(directory: RunDirectory) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        directory.write_text(name, name)
    directory.write_manifest("1")
    assert directory.check_manifest() == []
    (directory.root / "a.txt").write_text("A.txt")
    (directory.root / "b.txt").write_text("longer")
    (directory.root / "c.txt").unlink()
    (directory.root / "d.txt").write_text("new")
    found = directory.check_manifest()
    assert [line.split(":")[0] for line in found] == ["c.txt", "d.txt", "a.txt", "b.txt"]
    assert "same size" in found[2]
    assert "5 → 6 bytes" in found[3]


def test_a_manifest_that_is_none_is_an_error(directory: RunDirectory) -> None:
    directory.write_text(MANIFEST, "[]")
    with pytest.raises(RecordingUnreadable, match="not a manifest"):
        directory.check_manifest()


def test_a_folder_that_is_no_run_directory_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(RecordingUnreadable, match="servegate run -o DIR"):
        RunDirectory(tmp_path).recording()


def test_a_recording_of_another_version_says_so(directory: RunDirectory) -> None:
    directory.write_text(RECORDING, '{"schema_version": 2}')
    with pytest.raises(RecordingUnreadable, match="another version"):
        directory.recording()


def test_text_that_is_no_text_is_an_error(directory: RunDirectory) -> None:
    (directory.root / RECORDING).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordingUnreadable, match="cannot be read"):
        directory.recording()


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed, match="free space or choose another folder"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_compressed_lines_are_the_same_bytes_for_the_same_lines(directory: RunDirectory) -> None:
    first = directory.write_lines("w.gz", ["a", "b"]).read_bytes()
    assert directory.write_lines("w.gz", ["a", "b"]).read_bytes() == first
    assert gzip.decompress(first) == b"a\nb\n"


def test_a_written_file_leaves_no_partial_one(directory: RunDirectory) -> None:
    directory.write_text("a.txt", "a")
    assert [path.name for path in directory.root.iterdir() if path.is_file()] == ["a.txt"]
