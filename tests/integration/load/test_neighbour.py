"""A program that wants the client's core all the time moves no number by more than a millisecond, or the cell is flagged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil

import pytest

from servegate_action.analysis.checklist import COALESCED_SHARE
from servegate_action.analysis.client_trouble import client_trouble
from servegate_action.load import LoadLimits, Target, run_cell
from servegate_action.load.cell import CellResult
from servegate_action.load.summary import tpot_ns, ttft_ns
from servegate_action.workload import PlannedRequest
from tests.integration.load.measuring import DIALECT, cell_of
from tests.support.scripted_server import Answer, Scripted, scripted
from tests.support.scripted_server.script import MS

STREAMS, TOKENS = 32, 64
ANSWER = Answer(tokens=TOKENS, first_ns=100 * MS, gap_ns=20 * MS)
MOST_MS = 1.0


@contextmanager
def crowded(core: int) -> Iterator[None]:
    """From here on this process and its children may use one core only, which a spinning program wants as well."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
            try:
                yield
            finally:
                spinning.kill()
    finally:
        os.sched_setaffinity(0, before)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[ceil(0.95 * len(values)) - 1]


def errors_ms(result: CellResult, server: Scripted) -> tuple[float, float]:
    """How far p95 TTFT and p95 TPOT are from what the server did, in ms."""
    truth = [told["sent_ns"] for told in server.truth]
    ttft = p95([sent[0] - told["arrived_ns"] for sent, told in zip(truth, server.truth, strict=True)])
    tpot = p95([(sent[-1] - sent[0]) / (TOKENS - 1) for sent in truth])
    seen_ttft = p95([float(str(ttft_ns(request, open_loop=False))) for request in result.requests])
    seen_tpot = p95([float(str(tpot_ns(request))) for request in result.requests])
    return abs(seen_ttft - ttft) / 1e6, abs(seen_tpot - tpot) / 1e6


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the server needs a core of its own")
def test_a_busy_neighbour_moves_no_number_by_more_than_a_millisecond_or_the_cell_is_flagged() -> None:
    server_core, client_core = sorted(os.sched_getaffinity(0))[:2]
    requests = [PlannedRequest(f"r:{n}", f"#{n}# tell", TOKENS, None) for n in range(2 * STREAMS)]
    with scripted({"default": ANSWER.script()}, phases=(STREAMS, 20 * MS), cpu=server_core) as server:
        with crowded(client_core):
            cell = cell_of(requests, concurrency=STREAMS)
            result = run_cell(Target(server.url, DIALECT), cell, limits=LoadLimits(processes=1))
        server.stop()
    assert [request.error for request in result.requests if request.error] == []
    client = result.run.client
    flags = [*client_trouble(result.run, result.requests)]
    if client.coalesced_reads > COALESCED_SHARE * client.reads:
        flags.append(f"{client.coalesced_reads} of {client.reads} reads held several events")
    off = errors_ms(result, server)
    assert max(off) <= MOST_MS or flags, (off, flags)
