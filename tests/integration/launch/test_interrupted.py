"""What is left when servegate is interrupted or killed in the middle of a launch: nothing, at once or after a sweep."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servegate_action.launch import ledger, supervisor, sweep
from tests.integration.launch.making import LIMIT_S, ROOT, Place, eventually, living

CANCEL_LIMIT_S = 7.0
"""GitHub's runner sends SIGTERM 7.5 s after SIGINT, and kills 2.5 s later."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def start(place: Place) -> Iterator[Start]:
    """Starts servegates that launch the tiny server; whatever a test left of them is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.launch.driver", str(place.folder), *flags]
        started.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT_S)
    sweep(state_dir=place.state_dir)


def logged(place: Place, text: str) -> Callable[[], bool]:
    return lambda: place.log.exists() and text in place.log.read_text()


def token(place: Place) -> str:
    (note,) = place.notes()
    return note.stem


def supervisor_of(place: Place) -> int:
    """The one process of the stack's token that is no descendant of another."""
    pids = living(token(place))
    (found,) = [pid for pid in pids if set(supervisor.descendants(pid)) >= set(pids) - {pid}]
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_launch_ends_everything_in_time(place: Place, start: Start, number: signal.Signals) -> None:
    driver = start("--never-ready", "--daemon", "--deaf")
    eventually(logged(place, "loading for ever"))
    stack = token(place)
    driver.send_signal(number)
    assert driver.wait(timeout=CANCEL_LIMIT_S) == 128 + number
    assert living(stack) == []
    assert place.notes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_stack_runs_ends_everything_in_time(
    place: Place, start: Start, number: signal.Signals
) -> None:
    driver = start("--daemon")
    assert driver.stdout is not None
    assert driver.stdout.readline().startswith(b"ready ")
    stack = token(place)
    driver.send_signal(number)
    assert driver.wait(timeout=CANCEL_LIMIT_S) == 128 + number
    assert living(stack) == []
    assert place.notes() == []


def test_a_killed_servegate_takes_its_stack_along(place: Place, start: Start) -> None:
    driver = start("--daemon")
    assert driver.stdout is not None
    driver.stdout.readline()
    stack = token(place)
    assert living(stack)
    driver.kill()
    eventually(lambda: not living(stack))


def test_what_a_killed_supervisor_leaves_is_swept_and_said(place: Place, start: Start) -> None:
    driver = start("--daemon", "--deaf")
    assert driver.stdout is not None
    driver.stdout.readline()
    stack, above = token(place), supervisor_of(place)
    found = re.search(r"daemon (\d+)", place.log.read_text())
    assert found is not None
    daemon = int(found.group(1))
    # at once, so that neither can end what the other left
    for pid in (above, driver.pid):
        supervisor.send([pid], signal.SIGSTOP)
    for pid in (above, driver.pid):
        supervisor.send([pid], signal.SIGKILL)
    driver.wait(timeout=LIMIT_S)
    eventually(lambda: living(stack) == [daemon])
    (said,) = sweep(state_dir=place.state_dir)
    assert said == f"ended process {daemon} that run run-1 had left of its candidate"
    assert living(stack) == []
    assert place.notes() == []
    assert sweep(state_dir=place.state_dir) == []


def test_a_sweep_leaves_a_living_run_alone(place: Place, start: Start) -> None:
    driver = start()
    assert driver.stdout is not None
    driver.stdout.readline()
    assert sweep(state_dir=place.state_dir) == []
    assert living(token(place))


def test_the_end_of_a_job_sweeps_its_own_run_though_it_lives(place: Place, start: Start) -> None:
    driver = start()
    assert driver.stdout is not None
    driver.stdout.readline()
    stack = token(place)
    assert sweep(state_dir=place.state_dir, run_id="another") == []
    assert len(sweep(state_dir=place.state_dir, run_id="run-1")) == 1
    assert living(stack) == []


def test_a_note_of_another_container_is_left_alone(place: Place) -> None:
    owner = ledger.Owner.this_process().model_copy(update={"namespace": "pid:[1]", "pid": 999_999_999})
    ledger.write(ledger.Entry(run_id="r", side="baseline", token="0" * 32, owner=owner), place.state_dir)
    assert sweep(state_dir=place.state_dir) == []
    assert len(place.notes()) == 1


def test_a_note_of_an_earlier_boot_is_removed_and_ends_nobody(place: Place) -> None:
    owner = ledger.Owner.this_process().model_copy(update={"boot": "before"})
    ledger.write(ledger.Entry(run_id="r", side="baseline", token="0" * 32, owner=owner), place.state_dir)
    assert sweep(state_dir=place.state_dir) == []
    assert place.notes() == []


def test_a_note_that_cannot_be_read_ends_nobody(place: Place) -> None:
    place.state_dir.mkdir()
    (place.state_dir / "half.json").write_text('{"run_id": "r"')
    assert sweep(state_dir=place.state_dir) == []
