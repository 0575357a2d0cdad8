"""One operating point, measured: prepares the requests, starts the client processes, gathers what they bring.

The table of contents is `run_cell`. Requests are turned into bytes before the round and shared with the client
processes through memory; all processes take their next request from one queue, so that the order is the same however
many there are. Whatever ends the measurement, also Ctrl-C, ends the client processes, and with them every socket. It
refuses to compute metrics: requests come back as records, and so does how well the client itself did.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

import httpx

from servegate_action import client
from servegate_action.errors import CannotMeasure
from servegate_action.load.crew import Crew, Finished, Origin
from servegate_action.load.dialect import encoded, endpoint, request_body
from servegate_action.load.job import Entry, Job, pack_entries
from servegate_action.load.process import peak_rss_bytes
from servegate_action.records import CellRun, ClientHealth, Dialect, RequestRecord, StampSource
from servegate_action.workload import PlannedCell, PlannedRequest

STREAMS_PER_PROCESS = 512
"""What one core was seen to hold with room to spare (docs/measurement.md): 25,000 events a second."""
OPEN_LOOP_STREAMS = 64
"""Where nobody knows how many requests of an open loop will be under way at once."""
_START_DELAY_NS = 3_000_000
"""From the word to the first request: time for every client process to hear it."""
_SAMPLE_TEXTS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and how they are worded."""

    base_url: str
    dialect: Dialect
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Explicit time limits; there are no hidden ones. `processes` is the number of client processes.

    `cafile` holds the authorities of https stacks (default: the system's). `kernel_stamps=False` leaves the kernel's
    stamps unused, as on a machine that has none.
    """

    request_timeout_s: float = 600.0
    stall_timeout_s: float = 60.0
    processes: int | Literal["auto"] = "auto"
    open_timeout_s: float = 30.0
    kernel_stamps: bool = True
    cafile: str | None = None


@dataclass(frozen=True, slots=True)
class CellProgress:
    """How far a cell is, several times a second."""

    finished: int
    failed: int
    active: int
    total: int
    reads: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class CellResult:
    """All requests of a cell, warm-up included, in order of planning; a few answers in full for cross-checks."""

    run: CellRun
    requests: tuple[RequestRecord, ...]
    sample_texts: Mapping[str, str] = field(default_factory=dict)


Progress = Callable[[CellProgress], None]


def run_cell(
    target: Target,
    cell: PlannedCell,
    *,
    limits: LoadLimits,
    progress: Progress | None = None,
    expected_streams: int | None = None,
) -> CellResult:
    """Warm up, measure, parse. Failed requests are records; only what makes the cell impossible is raised.

    `expected_streams`: how many requests of an open loop will be under way at once, where that is known: as many client
    processes are started as the client was certified with.
    """
    plans = (*cell.warmup, *cell.measured)
    if not cell.measured:
        raise CannotMeasure(f"cell {cell.id} has no requests")
    streams = cell.concurrency or expected_streams or max(1, min(len(plans), OPEN_LOOP_STREAMS))
    with _prepared(target, cell, plans, limits, streams) as jobs, Crew(jobs) as crew:
        start_ns = crew.start(_START_DELAY_NS)
        finished = crew.gather(_reporter(progress, len(plans), start_ns))
    requests = _records(cell, plans, finished)
    window = steady_window(requests, closed_loop=cell.concurrency is not None, start_ns=start_ns)
    run = CellRun(
        cell=cell.id,
        started_ns=start_ns,
        steady_start_ns=window[0],
        steady_end_ns=window[1],
        ended_ns=max(request.end_ns for request in requests),
        requests=len(requests),
        client=_health(requests, finished, start_ns),
    )
    texts = {plans[index].id: text for index, text in finished.texts.items()}
    return CellResult(run, requests, texts)


# ---------------------------------------------------------------- before


def process_count(concurrency: int, wanted: int | Literal["auto"]) -> int:
    """Client processes for so many streams: as many as cores are needed, never more than there are or than streams."""
    if wanted != "auto":
        return min(wanted, concurrency)
    return max(1, min(ceil(concurrency / STREAMS_PER_PROCESS), len(os.sched_getaffinity(0))))


@contextmanager
def _prepared(
    target: Target, cell: PlannedCell, plans: tuple[PlannedRequest, ...], limits: LoadLimits, streams: int
) -> Iterator[list[Job]]:
    """The jobs of all client processes; their shared memory lives as long as the context."""
    origin = Origin.of(target.base_url)
    count = process_count(streams, limits.processes)
    wire, entries = _wire(target, cell, plans)
    memory: list[int] = []
    try:
        wire_fd = _memory(memory, "wire", wire)
        index_fd = _memory(memory, "index", pack_entries(entries))
        shared_fd = _memory(memory, "queue", array("I", range(len(plans))).tobytes())
        jobs = []
        shares = [streams // count + (number < streams % count) for number in range(count)]
        for number in range(count):
            own = array("I", range(number, len(plans), count)).tobytes()
            jobs.append(
                Job(
                    family=origin.family,
                    address=origin.address,
                    server_name=origin.server_name,
                    tls=origin.tls,
                    cafile=limits.cafile or (client.authorities() if origin.tls else None),
                    slots=shares[number],
                    first_slot=sum(shares[:number]),
                    open_loop=cell.concurrency is None,
                    chat=target.dialect.api == "chat",
                    wire_fd=wire_fd,
                    index_fd=index_fd,
                    queue_fd=shared_fd if cell.concurrency is not None else _memory(memory, "queue", own),
                    entries=len(plans),
                    request_timeout_ns=round(limits.request_timeout_s * 1e9),
                    stall_timeout_ns=round(limits.stall_timeout_s * 1e9),
                    open_timeout_ns=round(limits.open_timeout_s * 1e9),
                    kernel_stamps=limits.kernel_stamps,
                    sample_texts=_SAMPLE_TEXTS if number == 0 else 0,
                )
            )
        yield jobs
    finally:
        for fd in memory:
            os.close(fd)


def _memory(made: list[int], name: str, data: bytes) -> int:
    """An unnamed file in memory that holds `data`, read from its start."""
    fd = os.memfd_create(f"servegate-{name}")
    made.append(fd)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _wire(target: Target, cell: PlannedCell, plans: tuple[PlannedRequest, ...]) -> tuple[bytes, list[Entry]]:
    """All requests as the bytes that will be sent, and where each lies."""
    head = request_head(target)
    dues = due_times(cell)
    pieces: list[bytes] = []
    entries: list[Entry] = []
    offset = 0
    for number, plan in enumerate(plans):
        body = encoded(request_body(target.dialect, prompt=plan.prompt, output_tokens=plan.output_tokens))
        piece = b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)
        pieces.append(piece)
        entries.append(Entry(offset, len(piece), dues[number], plan.output_tokens, int(number < len(cell.warmup))))
        offset += len(piece)
    return b"".join(pieces), entries


def request_head(target: Target) -> bytes:
    """Request line and headers as httpx makes them for this URL, without the content length and the empty line."""
    request = httpx.Request(
        "POST",
        endpoint(target.base_url, target.dialect.api),
        headers={
            "user-agent": "servegate",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "connection": "keep-alive",
            "content-type": "application/json",
            **target.headers,
        },
    )
    lines = [b"POST %s HTTP/1.1" % request.url.raw_path]
    lines += [b"%s: %s" % (name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return b"\r\n".join(lines) + b"\r\n"


def due_times(cell: PlannedCell) -> list[int]:
    """When each request is due, ns after the start; −1 in closed loop.

    In open loop the warm-up comes first, evenly at the mean rate of the cell, and the measured arrivals follow it, so
    that they meet a server under load. A warm-up that has its own times keeps them.
    """
    count = len(cell.warmup)
    if cell.concurrency is not None:
        return [-1] * (count + len(cell.measured))
    measured = [request.due_ns or 0 for request in cell.measured]
    rate = cell.rate_per_second or _mean_rate(measured)
    own = [request.due_ns for request in cell.warmup]
    warmup = [round(number * 1e9 / rate) if due is None else due for number, due in enumerate(own)]
    shift = round(count * 1e9 / rate) if None in own else 0
    return warmup + [due + shift for due in measured]


def _mean_rate(dues: list[int]) -> float:
    span_s = (max(dues) - min(dues)) / 1e9
    return max(1.0, (len(dues) - 1) / span_s) if span_s > 0 else 10.0


# ---------------------------------------------------------------- during


def _reporter(progress: Progress | None, total: int, start_ns: int) -> Callable[[Mapping[str, int]], None]:
    def report(told: Mapping[str, int]) -> None:
        if progress is not None:
            elapsed_s = max(0.0, (time.monotonic_ns() - start_ns) / 1e9)
            progress(CellProgress(total=total, elapsed_s=elapsed_s, **told))

    return report


# ---------------------------------------------------------------- after


def _records(cell: PlannedCell, plans: tuple[PlannedRequest, ...], finished: Finished) -> tuple[RequestRecord, ...]:
    missing = len(plans) - len(finished.rows)
    if missing:
        raise CannotMeasure(f"{missing} of {len(plans)} requests of cell {cell.id} got lost in the client")
    warmups = len(cell.warmup)
    records = []
    for index, (told, stamps) in sorted(finished.rows.items()):
        fields = {name: value for name, value in told.items() if name not in {"index", "due_ns", "text"}}
        records.append(
            RequestRecord(
                id=plans[index].id,
                cell=cell.id,
                phase="warmup" if index < warmups else "measured",
                scheduled_ns=told["due_ns"],
                token_ns=tuple(stamps),
                requested_output_tokens=plans[index].output_tokens,
                ok=told["error"] is None,
                **fields,
            )
        )
    return tuple(records)


def steady_window(requests: tuple[RequestRecord, ...], *, closed_loop: bool, start_ns: int) -> tuple[int, int]:
    """From full load to the last dispatch, ns (docs/measurement.md, "Steady window"). Empty (start = end) if never full.

    Closed loop: from the moment when every slot has completed one request and the first measured request was sent.
    Open loop: from the first to the last measured arrival, which the warm-up precedes at the same rate.
    """
    measured = [request for request in requests if request.phase == "measured"]
    if not closed_loop:
        return min(r.scheduled_ns for r in measured), max(r.scheduled_ns for r in measured)
    first_end: dict[int, int] = {}
    for request in requests:
        slot = request.slot if request.slot is not None else -1
        first_end[slot] = min(request.end_ns, first_end.get(slot, request.end_ns))
    sent = [request.sent_ns for request in measured if request.sent_ns is not None]
    if not sent:
        return start_ns, start_ns
    start = max(*first_end.values(), min(sent), start_ns)
    return start, max(start, *sent)


def _health(requests: tuple[RequestRecord, ...], finished: Finished, start_ns: int) -> ClientHealth:
    lags = sorted(finished.lags)
    stamped = finished.kernel_stamps and finished.unstamped * 100 <= finished.reads
    return ClientHealth(
        processes=finished.processes,
        stamp_source=StampSource.KERNEL if stamped else StampSource.USER,
        reads=finished.reads,
        reads_without_kernel_stamp=finished.unstamped,
        coalesced_reads=finished.coalesced,
        cpu_ns=finished.cpu_ns,
        parse_cpu_ns=finished.parse_cpu_ns,
        wall_ns=max(request.end_ns for request in requests) - start_ns,
        dispatch_lag_p99_ns=lags[ceil(0.99 * len(lags)) - 1] if lags else 0,
        clock_offset_drift_ns=finished.drift_ns,
        peak_rss_bytes=finished.peak_rss_bytes + peak_rss_bytes(),
    )
