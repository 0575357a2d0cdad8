"""The fake GitHub as a process of its own, as container tests use it: state from a file, and back into it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from servegate_action.github import status
from servegate_action.github.api import Api, Server
from tests.support.fake_github import World, sha
from tests.support.fake_github.clock import InstantClock

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_the_state_is_read_from_a_file_and_written_back(tmp_path: Path) -> None:
    world = World()
    world.add_pull(7)
    state = tmp_path / "world.json"
    world.save(state)
    command = [sys.executable, "-m", "tests.support.fake_github", str(free_port()), "--state", str(state)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""}
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        api = Api(Server(api_url=url, token="t"), repository="octo/repo", clock=InstantClock())
        said = status.Status("pending", "servegate/x", "measuring", "https://github.com/octo/repo/actions/runs/1")
        status.post(api, sha=sha("head7"), status=said)
        assert [row.state for row in World.load(state).statuses] == ["pending"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
