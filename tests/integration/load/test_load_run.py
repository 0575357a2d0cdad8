"""`servegate load` as a user runs it, on a server of exact speed: what it prints, and the lines that it writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from servegate_action.errors import ExitCode
from tests.integration.load.test_command import FIELDS
from tests.support.scripted_server.script import MS

ROOT = Path(__file__).resolve().parents[3]
STACK = ROOT / "tests" / "e2e" / "stack.py"
LIMIT_S = 120.0


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
    command = [sys.executable, str(STACK), "--port", port, "--ttft-ms", "25", "--tpot-ms", "6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith(f"serving on {port}")
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def test_the_load_generator_alone_writes_each_request_and_prints_the_latencies(url: str, tmp_path: Path) -> None:
    shape = ("--concurrency", "2", "--requests", "20", "--prompt-tokens", "16", "--output-tokens", "8")
    done = subprocess.run(
        [sys.executable, "-m", "servegate_action", "load", url, *shape, "--no-certify", "--requests-out", "sent.jsonl"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == ExitCode.PASS, done.stdout + done.stderr
    assert "TTFT" in done.stdout
    assert "TPOT" in done.stdout

    lines = [json.loads(line) for line in (tmp_path / "sent.jsonl").read_text().splitlines()]
    assert [sorted(line) for line in lines] == [sorted(FIELDS)] * 20
    for line in lines:
        assert (line["ok"], line["error"], line["output_tokens"]) == (True, None, 8)
        assert (line["first_token_ns"], line["last_token_ns"]) == (line["token_ns"][0], line["token_ns"][-1])
        assert all(before <= after for before, after in pairwise(line["token_ns"]))
        assert line["first_token_ns"] - line["sent_ns"] > 24 * MS, "the server is never early"
        assert line["last_token_ns"] - line["sent_ns"] > (24 + 7 * 6) * MS
