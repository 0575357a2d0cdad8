"""A process stack from nothing to gone, and every way in which it can fail on the way."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servegate_action.errors import LaunchFailed, StackDied
from servegate_action.launch import supervisor
from servegate_action.records import Absent
from tests.integration.launch.making import LIMIT_S, Place, eventually, is_free, port_of, process, tiny


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def daemon_of(place: Place) -> int:
    """The pid that the daemonised grandchild printed."""
    found = re.search(r"daemon (\d+)", place.log.read_text())
    assert found is not None
    return int(found.group(1))


def gone(pid: int) -> bool:
    return supervisor.start_ticks(pid) is None


# ---------------------------------------------------------------- ready


def test_a_stack_is_ready_when_it_completed_one_token_and_each_phase_is_stamped_in_order(place: Place) -> None:
    with place.launch(tiny()) as running:
        cold = running.ready.cold_start
        stamps = [cold.requested_ns, cold.process_up_ns, cold.port_open_ns, cold.first_token_ns]
        assert all(isinstance(stamp, int) for stamp in stamps)
        assert stamps == sorted(stamps, key=lambda stamp: stamp if isinstance(stamp, int) else 0)
        assert isinstance(cold.image_ready_ns, Absent)
        running.alive()
        assert running.ready.pid in running.pids()
        assert running.ready.container_id is None


def test_a_declared_health_path_is_stamped(place: Place) -> None:
    stack = tiny().model_copy(update={"health": "/health"})
    with place.launch(stack) as running:
        cold = running.ready.cold_start
        assert isinstance(cold.port_open_ns, int)
        assert isinstance(cold.healthy_ns, int)
        assert isinstance(cold.first_token_ns, int)
        assert cold.port_open_ns <= cold.healthy_ns <= cold.first_token_ns


def test_a_health_path_that_does_not_exist_is_absent_with_the_reason(place: Place) -> None:
    with place.launch(tiny().model_copy(update={"health": "/nowhere"})) as running:
        assert running.ready.cold_start.healthy_ns == Absent(absent="/nowhere answers 404")


def test_nothing_is_left_after_the_block(place: Place) -> None:
    with place.launch(tiny()) as running:
        pids, port = running.pids(), port_of(running)
        assert not running.gone()
        assert place.notes()
    assert running.gone()
    assert all(map(gone, pids))
    assert is_free(port)
    assert place.notes() == []
    assert "asked to end" in place.log.read_text()


def test_a_stack_that_ended_of_itself_is_gone_before_it_is_told_to_end(place: Place) -> None:
    with place.launch(tiny()) as running:
        with pytest.raises(OSError, match=r".*"):
            urllib.request.urlopen(running.ready.base_url + "/die", timeout=LIMIT_S)
        eventually(running.gone)
        assert running.pids() == ()
    assert running.gone()
    assert place.notes() == []


def test_nothing_is_left_when_the_block_raises(place: Place) -> None:
    with pytest.raises(ZeroDivisionError), place.launch(tiny()) as running:
        raise ZeroDivisionError
    assert running.gone()
    assert place.notes() == []


def test_stopping_twice_is_stopping_once(place: Place) -> None:
    with place.launch(tiny()) as running:
        running.stop()
        assert running.gone()
        running.stop()


def test_two_launches_at_once_get_two_ports(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other")
    with place.launch(tiny()) as one, other.launch(tiny()) as two:
        assert port_of(one) != port_of(two)


# ---------------------------------------------------------------- failures


def test_a_stack_that_exits_at_start_fails_with_its_code_and_its_last_lines(place: Place) -> None:
    with pytest.raises(LaunchFailed) as failed, place.launch(tiny("--exit-at-start", "3")):
        pass
    assert "exit code 3" in failed.value.what
    assert failed.value.log_tail == ("cannot find the weights",)
    assert not isinstance(failed.value, StackDied)
    assert place.notes() == []


def test_a_program_that_does_not_exist_fails_with_its_name(place: Place) -> None:
    with (
        pytest.raises(LaunchFailed, match="no-such-server") as failed,
        place.launch(process("no-such-server", "{port}")),
    ):
        pass
    assert "PATH" in failed.value.next_step
    assert place.notes() == []


def test_a_folder_that_does_not_exist_fails_before_anything_starts(place: Place) -> None:
    stack = tiny()
    assert stack.process is not None
    stack = stack.model_copy(update={"process": stack.process.model_copy(update={"cwd": "no/such/folder"})})
    with pytest.raises(LaunchFailed, match="no such folder"), place.launch(stack):
        pass


def test_a_stack_that_never_gets_ready_fails_after_its_limit_with_its_last_lines(place: Place) -> None:
    with (
        pytest.raises(LaunchFailed, match=r"not ready within 1 s") as failed,
        place.launch(tiny("--never-ready", ready_s=1)),
    ):
        pass
    assert failed.value.log_tail == ("loading for ever",)
    assert "none of its processes listens" in failed.value.why
    assert place.notes() == []


def test_a_stack_that_listens_elsewhere_is_told_where(place: Place) -> None:
    server = f"{sys.executable} -m tests.support.tiny_server --port 0; : {{port}}"
    with pytest.raises(LaunchFailed) as failed, place.launch(process("sh", "-c", server, ready_s=1.5)):
        pass
    assert re.search(r"listen on 127\.0\.0\.1:\d+; 127\.0\.0\.1:\d+ was expected", failed.value.why)


def test_a_stack_that_dies_in_the_middle_is_said_to_have_died_with_its_code_and_last_lines(place: Place) -> None:
    with place.launch(tiny()) as running:
        running.alive()
        with pytest.raises(OSError, match=r".*"):
            urllib.request.urlopen(running.ready.base_url + "/die", timeout=LIMIT_S)
        eventually(lambda: not running.pids())
        with pytest.raises(StackDied, match="exit code 7") as died:
            running.alive()
        assert died.value.log_tail[-1] == "told to die"
    assert place.notes() == []


def test_a_killed_stack_hints_at_memory(place: Place) -> None:
    with place.launch(tiny()) as running:
        assert running.ready.pid is not None
        supervisor.send([running.ready.pid], 9)
        eventually(lambda: not running.pids())
        with pytest.raises(StackDied, match="SIGKILL") as died:
            running.alive()
        assert "memory" in died.value.why


def test_a_command_that_goes_to_the_background_is_told_to_stay(place: Place) -> None:
    with pytest.raises(LaunchFailed, match="exit code 0") as failed, place.launch(tiny("--background")):
        pass
    assert "foreground" in failed.value.why
    assert place.notes() == []


@contextmanager
def thief() -> Iterator[int]:
    """Somebody who is told a port and listens there before the stack can: yields where to tell."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as ear:

        def steal() -> None:
            with ear.accept()[0] as told:
                port = int(told.recv(16))
                with socket.create_server(("127.0.0.1", port)):
                    told.sendall(b"mine\n")
                    ended.wait(LIMIT_S)

        thread = threading.Thread(target=steal)
        thread.start()
        try:
            yield int(ear.getsockname()[1])
        finally:
            ended.set()
            thread.join()


def test_a_port_that_somebody_else_took_is_noticed_and_named(place: Place) -> None:
    with thief() as ear:
        tell = (
            "import socket, sys, time\n"
            "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "line.sendall(sys.argv[2].encode())\n"
            "line.recv(16)\n"
            "time.sleep(600)\n"
        )
        stack = process(sys.executable, "-c", tell, str(ear), "{port}")
        taken = r"is taken by process \d+ \(.*\), listening on 127\.0\.0\.1:\d+"
        with pytest.raises(LaunchFailed, match=taken), place.launch(stack):
            pass
    assert place.notes() == []


def test_a_server_that_cannot_bind_its_stolen_port_fails_too(place: Place) -> None:
    with thief() as ear:
        tell = (
            "import socket, sys\n"
            "line = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "line.sendall(sys.argv[2].encode())\n"
            "line.recv(16)\n"
            "socket.create_server(('127.0.0.1', int(sys.argv[2])))\n"
        )
        with pytest.raises(LaunchFailed), place.launch(process(sys.executable, "-c", tell, str(ear), "{port}")):
            pass
    assert place.notes() == []


# ---------------------------------------------------------------- the tree


def test_a_grandchild_that_became_a_daemon_is_seen_and_ended(place: Place) -> None:
    with place.launch(tiny("--daemon")) as running:
        daemon = daemon_of(place)
        assert daemon in running.pids()
    assert gone(daemon)
    assert running.gone()


def test_a_tree_that_ignores_sigterm_is_killed_once_its_time_is_over(place: Place) -> None:
    with place.launch(tiny("--daemon", "--deaf", stop_s=0.5)) as running:
        pids = running.pids()
        assert daemon_of(place) in pids
    assert all(map(gone, pids))


def test_a_stack_that_dies_does_not_leave_its_daemon(place: Place) -> None:
    with place.launch(tiny("--daemon")) as running:
        daemon = daemon_of(place)
        assert running.ready.pid is not None
        supervisor.send([running.ready.pid], 9)
        eventually(lambda: running.ready.pid not in running.pids())
    assert gone(daemon)


# ---------------------------------------------------------------- environment and secrets


def test_a_stack_sees_the_allow_list_and_what_it_declares_and_nothing_of_the_job(tmp_path: Path) -> None:
    secret = {
        "GITHUB_TOKEN": "ghs_secret",
        "ACTIONS_RUNTIME_TOKEN": "runtime",
        "INPUT_GITHUB-TOKEN": "ghs_secret",
        "AWS_SECRET_ACCESS_KEY": "aws",
        "HF_TOKEN": "hf_secret",
        "OTHER": "not asked for",
        "CUDA_VISIBLE_DEVICES": "0",
        "LANG": "C.UTF-8",
    }
    place = Place(tmp_path, secret)
    with place.launch(tiny(env=("HF_TOKEN", "WHERE=port {port}"))) as running:
        with urllib.request.urlopen(running.ready.base_url + "/environment", timeout=LIMIT_S) as answer:
            seen = json.load(answer)
        assert seen.pop("WHERE") == f"port {port_of(running)}"
    ours = {"SERVEGATE_RUN", "SERVEGATE_STACK"}
    assert set(seen) - ours - {"LC_CTYPE"} == {"PATH", "HF_TOKEN", "CUDA_VISIBLE_DEVICES", "LANG"}


def test_secrets_reach_neither_the_recorded_command_nor_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path, {"HF_TOKEN": "hf_0123456789"})
    with place.launch(tiny("--say", "my token is hf_0123456789.", env=("HF_TOKEN",))) as running:
        assert "my token is ***." in running.ready.command
    assert "hf_0123456789" not in " ".join(running.ready.command) + place.log.read_text()
    assert "my token is ***." in place.log.read_text()
