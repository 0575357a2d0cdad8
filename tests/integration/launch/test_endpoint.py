"""An endpoint that already runs: asked, watched, never stopped."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from servegate_action import client
from servegate_action.config.stacks import EndpointStack, Stack
from servegate_action.errors import LaunchFailed, StackDied
from servegate_action.launch.endpoint import RunningEndpoint, launch_endpoint
from servegate_action.launch.ports import reserved_port
from servegate_action.launch.readiness import Waiting, wait_until_ready
from servegate_action.launch.stack import Launch
from servegate_action.records import Absent, Side
from tests.support.tiny_server import TinyServer


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with TinyServer(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told(url: str, folder: Path, *, ready_s: float = 5.0) -> tuple[Launch, EndpointStack]:
    endpoint = EndpointStack(url=url)
    stack = Stack(label="remote", endpoint=endpoint, ready_timeout_s=ready_s)
    launch = Launch(
        stack=stack,
        side=Side.BASELINE,
        run_id="run-1",
        log_path=folder / "server.log",
        environment={},
        workspace=folder,
        first_token=functools.partial(client.one_token, api="completions"),
        progress=lambda _: None,
    )
    return launch, endpoint


def closed_url() -> str:
    with reserved_port() as port:
        return f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint_is_ready_when_it_completes_one_token(server: TinyServer, tmp_path: Path, suffix: str) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with launch_endpoint(*told(url + suffix, tmp_path), inside_container=False) as running:
        running.alive()
        assert running.ready.base_url == url
        assert running.ready.cold_start.first_token_ns == Absent(absent="already running; not launched by servegate")
        assert running.pids() == ()
    running.alive()
    assert not running.gone()


def test_an_endpoint_that_goes_away_has_died(server: TinyServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with launch_endpoint(*told(url, tmp_path), inside_container=False) as running:
        server.shutdown()
        server.server_close()
        with pytest.raises(StackDied, match="no longer accepts connections"):
            running.alive()


def test_nothing_at_the_address_fails_without_waiting_for_the_whole_limit(tmp_path: Path) -> None:
    launch, endpoint = told(closed_url(), tmp_path, ready_s=0.5)
    with (
        pytest.raises(LaunchFailed, match="nothing accepts connections") as failed,
        launch_endpoint(launch, endpoint, inside_container=False),
    ):
        pass
    assert "address is wrong" in failed.value.why


def test_a_loopback_address_inside_a_container_is_explained_at_once(tmp_path: Path) -> None:
    launch, endpoint = told(closed_url(), tmp_path, ready_s=3600)
    with (
        pytest.raises(LaunchFailed) as failed,
        launch_endpoint(launch, endpoint, inside_container=True),
    ):
        pass
    assert "the container itself" in failed.value.why
    assert "http://10.0.0.7:8000" in failed.value.next_step


def waiting(running: RunningEndpoint, answer: client.Reply, log: Path) -> Waiting:
    told = running.waiting()
    return Waiting(
        label=told.label,
        base_url=told.base_url,
        health=None,
        limit_s=0.5,
        first_token=lambda _url, *, timeout_s: answer,
        log_path=log,
        check=told.check,
        port_opened=told.port_opened,
        why_not=told.why_not,
        final_after_s=0.1,
    )


def test_a_refusal_that_stays_is_final(server: TinyServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    running = RunningEndpoint(*told(url, tmp_path), inside_container=False)
    with pytest.raises(LaunchFailed, match="refuses a completion") as failed:
        wait_until_ready(waiting(running, client.Answered(404, "no such model"), tmp_path / "log"))
    assert "no such model" in failed.value.why


def test_a_server_that_is_busy_loading_is_waited_for_until_the_limit(server: TinyServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    running = RunningEndpoint(*told(url, tmp_path), inside_container=False)
    with pytest.raises(LaunchFailed, match=r"was not ready within 0\.5 s") as failed:
        wait_until_ready(waiting(running, client.Answered(503, "Loading model"), tmp_path / "log"))
    assert "Loading model" in failed.value.why
