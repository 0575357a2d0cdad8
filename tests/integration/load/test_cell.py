"""One operating point: order, concurrency, open loop, processes, limits, cancellation, and no socket left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import trustme

from servegate_action.errors import Cancelled, CannotMeasure
from servegate_action.load import CellProgress, LoadLimits, Target, run_cell
from servegate_action.load.cell import CellResult, process_count
from servegate_action.records import RequestRecord, StampSource
from servegate_action.workload import PlannedCell, PlannedRequest
from tests.integration.load.measuring import DIALECT, LIMITS, cell_of, planned
from tests.support.scripted_server import Answer, Script, scripted
from tests.support.scripted_server.script import MS, Step

QUICK = Answer(tokens=4, first_ns=10 * MS, gap_ns=2 * MS)


def same_requests(count: int, *, name: str = "default", tokens: int = 4, start: int = 0) -> tuple[PlannedRequest, ...]:
    """Requests that all get the same answer."""
    return tuple(
        PlannedRequest(id=f"{name}:{number}", prompt=f"script={name}", output_tokens=tokens, due_ns=None)
        for number in range(start, start + count)
    )


def run(url: str, cell: PlannedCell, limits: LoadLimits = LIMITS) -> CellResult:
    """Measure."""
    return run_cell(Target(url, DIALECT), cell, limits=limits)


def in_flight_at(requests: tuple[RequestRecord, ...], moment_ns: int) -> int:
    """How many requests were under way."""
    return sum((request.sent_ns or 0) <= moment_ns < request.end_ns for request in requests)


def client_processes() -> list[psutil.Process]:
    """Children of this process that are no scripted servers."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "worker import main" in " ".join(child.cmdline())]


def test_closed_loop_hands_slots_over_in_planned_order() -> None:
    with scripted({"default": QUICK.script()}) as server:
        result = run(server.url, cell_of(same_requests(20, start=6), concurrency=3, warmup=same_requests(6)))
        server.stop()
    requests = result.requests
    assert [request.id for request in requests] == [f"default:{number}" for number in range(26)]
    assert [request.phase for request in requests] == ["warmup"] * 6 + ["measured"] * 20
    assert all(request.ok for request in requests)
    sent = [request.sent_ns for request in requests]
    assert sent == sorted(sent, key=lambda moment: moment or 0)
    assert {request.slot for request in requests} == {0, 1, 2}
    for slot in range(3):
        own = [request for request in requests if request.slot == slot]
        assert all(later.scheduled_ns == earlier.end_ns for earlier, later in pairwise(own))
    assert max(in_flight_at(requests, request.sent_ns or 0) for request in requests) == 3
    assert server.connections == 3
    assert server.open == 0
    assert all(request.connection_reused for request in requests[3:])


def test_the_steady_window_begins_when_every_slot_has_answered_and_ends_with_the_last_dispatch() -> None:
    with scripted({"default": QUICK.script()}) as server:
        result = run(server.url, cell_of(same_requests(12, start=3), concurrency=3, warmup=same_requests(3)))
    requests, run_ = result.requests, result.run
    assert run_.steady_start_ns >= max(request.end_ns for request in requests[:3])
    assert run_.steady_end_ns == max(request.sent_ns or 0 for request in requests)
    assert run_.started_ns <= run_.steady_start_ns < run_.steady_end_ns < run_.ended_ns


def test_a_cell_that_never_fills_its_slots_has_an_empty_window() -> None:
    with scripted({"default": QUICK.script()}) as server:
        result = run(server.url, cell_of(same_requests(2), concurrency=4))
    assert result.run.steady_start_ns == result.run.steady_end_ns
    assert [request.ok for request in result.requests] == [True, True]


def test_open_loop_sends_on_schedule_even_when_answers_are_late() -> None:
    slow = replace(QUICK, first_ns=500 * MS)
    due = [number * 10 * MS for number in range(20)]
    requests = tuple(replace(r, due_ns=when) for r, when in zip(same_requests(20), due, strict=True))
    with scripted({"default": slow.script()}) as server:
        result = run(server.url, cell_of(requests, concurrency=None, rate=100.0))
    done = result.requests
    assert all(request.ok for request in done)
    assert [later.scheduled_ns - earlier.scheduled_ns for earlier, later in pairwise(done)] == [10 * MS] * 19
    assert all((request.sent_ns or 0) >= request.scheduled_ns for request in done)
    first_end = min(request.end_ns for request in done)
    assert sum((request.sent_ns or 0) < first_end for request in done) > 10  # nobody waited for an answer
    assert all(request.slot is None for request in done)


def test_open_loop_warms_up_before_the_first_measured_arrival() -> None:
    measured = tuple(replace(r, due_ns=n * 20 * MS) for n, r in enumerate(same_requests(5, start=5)))
    with scripted({"default": QUICK.script()}) as server:
        result = run(server.url, cell_of(measured, concurrency=None, rate=50.0, warmup=same_requests(5)))
    warm, rest = result.requests[:5], result.requests[5:]
    assert max(request.scheduled_ns for request in warm) < min(request.scheduled_ns for request in rest)
    assert result.run.steady_start_ns == rest[0].scheduled_ns
    assert result.run.steady_end_ns == rest[-1].scheduled_ns


@pytest.mark.parametrize("expected", [None, 600])
def test_an_open_loop_starts_as_many_processes_as_it_was_certified_with(expected: int | None) -> None:
    requests = tuple(replace(one, due_ns=number * 10 * MS) for number, one in enumerate(same_requests(4)))
    cell = cell_of(requests, concurrency=None, rate=100.0)
    with scripted({"default": QUICK.script()}) as server:
        result = run_cell(Target(server.url, DIALECT), cell, limits=LoadLimits(), expected_streams=expected)
    assert result.run.client.processes == process_count(expected or 1, "auto")


@pytest.mark.parametrize("open_loop", [False, True])
def test_several_processes_measure_the_same_as_one(open_loop: bool) -> None:
    names = [f"a{number}" for number in range(24)]
    scripts = {n: Answer(tokens=3 + k % 5, first_ns=(10 + k) * MS, gap_ns=2 * MS).script() for k, n in enumerate(names)}
    requests = tuple(
        replace(request, output_tokens=3 + k % 5, due_ns=k * 5 * MS if open_loop else None)
        for k, request in enumerate(planned(names))
    )
    cell = cell_of(requests, concurrency=None if open_loop else 6, rate=200.0 if open_loop else None)
    results = []
    for processes in (1, 3):
        with scripted(scripts) as server:
            results.append(run(server.url, cell, replace(LIMITS, processes=processes)))
    one, three = results
    assert [result.run.client.processes for result in results] == [1, 3]
    for mine, other in zip(one.requests, three.requests, strict=True):
        assert (mine.id, mine.ok, mine.output_tokens) == (other.id, other.ok, other.output_tokens)
        assert len(mine.token_ns) == len(other.token_ns)
    slots = {request.slot for request in three.requests}
    assert slots == ({None} if open_loop else set(range(6)))


def test_a_server_that_goes_silent_is_a_stall() -> None:
    silent = Script(Answer(tokens=8).script().steps[:4], "keep")
    with scripted({"silent": silent}) as server:
        result = run(server.url, cell_of(planned(["silent"]), concurrency=1), replace(LIMITS, stall_timeout_s=0.3))
    (request,) = result.requests
    assert "stalled" in str(request.error)
    assert len(request.token_ns) == 3
    assert request.end_ns - request.token_ns[-1] >= 0.3e9


def test_a_request_that_takes_too_long_times_out_though_it_makes_progress() -> None:
    drip = Answer(tokens=40, first_ns=20 * MS, gap_ns=50 * MS)
    with scripted({"drip": drip.script()}) as server:
        cell = cell_of(planned(["drip"], output_tokens=40), concurrency=1)
        result = run(server.url, cell, replace(LIMITS, request_timeout_s=0.5))
        server.stop()
    (request,) = result.requests
    assert "timeout" in str(request.error)
    assert 0 < len(request.token_ns) < 40
    assert server.open == 0


def test_after_a_failure_the_slot_goes_on_with_the_next_request() -> None:
    broken = Script(Answer(tokens=8).script().steps[:3], "reset")
    names = ["broken", "good", "broken2", "good2"]
    good = Answer(tokens=8).script()
    scripts = {"broken": broken, "good": good, "broken2": broken, "good2": good}
    with scripted(scripts) as server:
        result = run(server.url, cell_of(planned(names), concurrency=1))
    assert [request.ok for request in result.requests] == [False, True, False, True]


def test_a_connection_found_closed_right_after_an_answer_is_not_trusted_again() -> None:
    with scripted({"default": replace(QUICK, end="close").script()}) as server:
        result = run(server.url, cell_of(same_requests(10), concurrency=2))
        server.stop()
    assert [request.error for request in result.requests] == [None] * 10
    assert 0 < sum(request.resent for request in result.requests) <= 2  # one per stream, then it is known
    assert len(server.truth) == 10  # nothing was answered twice
    assert server.connections >= 10


@pytest.mark.parametrize("open_loop", [False, True])
def test_what_was_dropped_after_work_on_it_is_a_failure_and_not_sent_again(open_loop: bool) -> None:
    """A worker that crashes, or sheds load, after 300 ms and before the first byte."""
    dropped = Script((Step(300 * MS, b""),), "close")
    with scripted({"default": QUICK.script(), "drop": dropped}) as server:
        requests = planned(["drop", "quick", "drop", "quick"], output_tokens=4)
        timed = tuple(replace(one, due_ns=n * 5 * MS if open_loop else None) for n, one in enumerate(requests))
        result = run(server.url, cell_of(timed, concurrency=None if open_loop else 2))
        server.stop()
    errors = [request.error for request in result.requests]
    assert errors == [
        "the server closed the connection before the end of its answer",
        None,
        "the server closed the connection before the end of its answer",
        None,
    ]
    assert not any(request.resent for request in result.requests)
    assert len(server.truth) == 4


def test_a_connection_that_still_sends_its_request_carries_no_other(tmp_path: Path) -> None:
    """A server that refuses at once, before it has read a large body, and would keep the connection."""
    program = tmp_path / "refusing.py"
    program.write_text(
        "import socket, threading\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "print(listener.getsockname()[1], flush=True)\n"
        "def serve(sock):\n"
        "    while b'POST ' in sock.recv(4096):\n"
        "        sock.sendall(b'HTTP/1.1 429 Too Many\\r\\ncontent-length: 4\\r\\n\\r\\nbusy')\n"
        "        threading.Event().wait(30)\n"
        "while True:\n"
        "    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()\n"
    )
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            large = tuple(replace(one, prompt="x" * (8 << 20)) for one in same_requests(3))
            result = run(f"http://127.0.0.1:{port}", cell_of(large, concurrency=1))
        finally:
            server.kill()
    assert [request.error for request in result.requests] == ["HTTP 429 (refused): busy"] * 3


def test_a_server_that_is_gone_cannot_be_measured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CannotMeasure, match="refused"):
        run(f"http://127.0.0.1:{port}", cell_of(same_requests(2), concurrency=2))
    assert client_processes() == []


def test_cancelling_leaves_no_process_and_no_socket() -> None:
    slow = replace(QUICK, first_ns=20_000 * MS)

    def cancel(_: CellProgress) -> None:
        raise Cancelled(signal.SIGINT)

    with scripted({"default": slow.script()}) as server:
        with pytest.raises(Cancelled):
            run_cell(
                Target(server.url, DIALECT), cell_of(same_requests(8), concurrency=8), limits=LIMITS, progress=cancel
            )
        assert client_processes() == []
        server.stop()
    assert server.open == 0


def test_client_processes_end_with_their_parent(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import sys\n"
        "from tests.integration.load.test_cell import *\n"
        "def say(p):\n    print(*[c.pid for c in client_processes()], flush=True)\n"
        "run_cell(Target(sys.argv[1], DIALECT), cell_of(same_requests(4), concurrency=4), limits=LIMITS, progress=say)\n"
    )
    slow = replace(QUICK, first_ns=20_000 * MS)
    root = Path(__file__).resolve().parents[3]
    with scripted({"default": slow.script()}) as server:
        with subprocess.Popen(
            [sys.executable, str(program), server.url],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(root)},
        ) as parent:
            assert parent.stdout is not None
            workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
            assert workers
            parent.kill()
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert alive == []


def test_without_kernel_stamps_the_reads_are_stamped_and_it_says_so() -> None:
    with scripted({"default": QUICK.script()}) as server:
        result = run(server.url, cell_of(same_requests(6), concurrency=2), replace(LIMITS, kernel_stamps=False))
    client = result.run.client
    assert client.stamp_source is StampSource.USER
    assert client.reads_without_kernel_stamp == client.reads > 0
    assert all(request.ok for request in result.requests)


def test_with_kernel_stamps_every_read_has_one() -> None:
    with scripted({"default": QUICK.script()}) as server:
        client = run(server.url, cell_of(same_requests(6), concurrency=2)).run.client
    assert (client.stamp_source, client.reads_without_kernel_stamp) == (StampSource.KERNEL, 0)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A private authority, and a certificate of it for loopback."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    files = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    certificate.cert_chain_pems[0].write_to_path(files["cert"])
    certificate.private_key_pem.write_to_path(files["key"])
    return files


def test_tls_streams_keep_the_kernels_stamps(tls: dict[str, str]) -> None:
    long = replace(QUICK, tokens=20)
    with scripted({"default": long.script()}, tls=(tls["cert"], tls["key"])) as server:
        limits = replace(LIMITS, cafile=tls["ca"])
        result = run(server.url, cell_of(same_requests(12, tokens=20), concurrency=4), limits)
        server.stop()
    assert [request.error for request in result.requests] == [None] * 12
    assert result.run.client.stamp_source is StampSource.KERNEL
    assert all(request.connection_reused for request in result.requests[4:])
    slack = sorted(
        seen - sent
        for request, truth in zip(
            sorted(result.requests, key=lambda r: r.token_ns[0]),
            sorted(server.truth, key=lambda t: t["sent_ns"][0]),
            strict=True,
        )
        for seen, sent in zip(request.token_ns, truth["sent_ns"], strict=True)
    )
    assert 0 <= slack[len(slack) // 2] < long.gap_ns


def test_an_unknown_authority_is_refused(tls: dict[str, str]) -> None:
    with (
        scripted({"default": QUICK.script()}, tls=(tls["cert"], tls["key"])) as server,
        pytest.raises(CannotMeasure, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
    ):
        run(server.url, cell_of(same_requests(2), concurrency=1))


def test_prompts_arrive_as_planned_whatever_they_contain() -> None:
    prompts = ['quotes " and \\ backslashes', "línea\nnueva\ttab", "漢字 🙂", "x" * 300_000]
    requests = tuple(PlannedRequest(str(n), prompt, 8, None) for n, prompt in enumerate(prompts))
    with scripted() as server:
        result = run(server.url, cell_of(requests, concurrency=1))
        server.stop()
    assert all(request.ok for request in result.requests)
    assert [body["prompt"] for body in server.bodies] == prompts
    assert all(body["stream"] is True and body["max_tokens"] == body["min_tokens"] == 8 for body in server.bodies)
