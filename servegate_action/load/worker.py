"""One client process: reads its job, opens connections, waits for the word, runs the engine, parses, answers.

Started by `cell` with nothing but the standard library, so that it is up within some tens of milliseconds and small.
Its standard input tells it to go, and its end tells it to stop: when the parent dies, however it dies, so does every
socket. It refuses to print: results are frames on standard output, and a traceback on standard error is a defect.
"""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from servegate_action.load.answer import Answer, Reader
from servegate_action.load.clock import ANCILLARY_BYTES, RX_SOFTWARE_AND_REPORT, SO_TIMESTAMPING
from servegate_action.load.connection import Lost
from servegate_action.load.engine import Engine
from servegate_action.load.exchange import Exchange
from servegate_action.load.job import DONE, PROGRESS, READY, REQUEST, Job, unpack_entries, write_frame
from servegate_action.load.process import ask_for_precedence, peak_rss_bytes
from servegate_action.load.spill import Spill

_INDEX_BYTES = 4
_WAKE_STEP_S = 0.0005
_PROGRESS_EVERY_NS = 200_000_000
_OPEN_LOOP_CONNECTIONS = 8


def main() -> int:
    """The process. Exit code 0 also for a stack that cannot be reached: that is told in a frame."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask_for_precedence()
    control, pipe = sys.stdin.buffer, sys.stdout.buffer
    job = Job.from_line(control.readline())
    stamping = wake_kernel_stamps() if job.kernel_stamps else None
    if stamping is None:
        job = job._replace(kernel_stamps=False)
    wire = _mapped(job.wire_fd)
    entries = unpack_entries(os.pread(job.index_fd, os.fstat(job.index_fd).st_size, 0))
    spill = Spill()
    engine = Engine(job, wire=wire, entries=entries, take=lambda: _take(job.queue_fd), keep=spill.keep)
    try:
        engine.open(min(job.slots, _OPEN_LOOP_CONNECTIONS) if job.open_loop else job.slots)
    except (Lost, OSError) as error:
        write_frame(pipe, READY, {"error": str(error) or type(error).__name__})
        pipe.flush()
        return 0
    write_frame(pipe, READY, {"error": None})
    pipe.flush()
    start = control.readline()
    if not start:
        return 0
    cpu_ns = _run(engine, spill, start_ns=int(start), pipe=pipe)
    if engine.orphaned:
        return 1
    _report(engine, spill, pipe=pipe, cpu_ns=cpu_ns)
    return 0


def _run(engine: Engine, spill: Spill, *, start_ns: int, pipe: BinaryIO) -> int:
    """Run the round with the collector off; returns the CPU time it took, ns."""
    engine.watch(sys.stdin.fileno())
    progress = _Progress(engine, pipe.fileno())

    def on_tick(now_ns: int) -> None:
        spill.relieve()
        progress(now_ns)

    gc.collect()
    gc.freeze()
    gc.disable()
    before_ns = time.process_time_ns()
    try:
        engine.run(start_ns, on_tick)
    finally:
        engine.close()
    return time.process_time_ns() - before_ns


class _Progress:
    """Tells the parent how far the round is; never waits for it."""

    def __init__(self, engine: Engine, fd: int) -> None:
        self._engine = engine
        self._fd = fd
        self._next_ns = 0

    def __call__(self, now_ns: int) -> None:
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + _PROGRESS_EVERY_NS
        engine = self._engine
        told = {"finished": engine.finished, "failed": engine.failed, "active": engine.active, "reads": engine.reads}
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            with open(self._fd, "wb", closefd=False, buffering=0) as raw:
                write_frame(raw, PROGRESS, told)
        except BlockingIOError:
            return  # the parent is slow; the next word will be fresher
        finally:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)


def _report(engine: Engine, spill: Spill, *, pipe: BinaryIO, cpu_ns: int) -> None:
    """Parse everything and send it, one frame per request."""
    before_ns = time.process_time_ns()
    unstamped = coalesced = 0
    samples = engine.job.sample_texts
    for exchange, told, answer in _readings(engine, spill):
        unstamped += exchange.unstamped
        coalesced += answer.coalesced_reads
        if samples and told["error"] is None:
            samples -= 1
        else:
            del told["text"]
        write_frame(pipe, REQUEST, told, answer.token_ns)
    health = {
        "reads": engine.reads,
        "unstamped": unstamped,
        "coalesced": coalesced,
        "kernel_stamps": engine.job.kernel_stamps,
        "cpu_ns": cpu_ns,
        "parse_cpu_ns": time.process_time_ns() - before_ns,
        "drift_ns": engine.clock.drift_ns,
        "peak_rss_bytes": peak_rss_bytes(),
    }
    write_frame(pipe, DONE, health, engine.lags)
    pipe.flush()


def _readings(engine: Engine, spill: Spill) -> Iterator[tuple[Exchange, dict[str, object], Answer]]:
    reader = Reader()
    for exchange in spill.drain():
        entry = engine.entries[exchange.index]
        answer = reader.read(
            bytes(exchange.buffer),
            stamps=exchange.stamps,
            marks=exchange.marks,
            framing=exchange.framing,
            requested_tokens=entry.output_tokens,
        )
        error = exchange.error or answer.error
        told: dict[str, object] = {
            "index": exchange.index,
            "due_ns": exchange.due_ns,
            "sent_ns": exchange.sent_ns,
            "first_byte_ns": exchange.stamps[0] if exchange.stamps else None,
            "event_tokens": answer.event_tokens,
            "first_event_tokens": answer.first_event_tokens,
            "first_answer_ns": answer.first_answer_ns,
            "end_ns": exchange.end_ns,
            "prompt_tokens": answer.prompt_tokens,
            "output_tokens": answer.output_tokens,
            "token_source": answer.counted_by,
            "cached_tokens": answer.cached_tokens,
            "finish_reason": answer.finish_reason,
            "events": answer.events,
            "coalesced_reads": answer.coalesced_reads,
            "slot": exchange.slot,
            "connection_reused": exchange.reused,
            "resent": exchange.resent,
            "error": error,
            "text_sha256": answer.text_sha256,
            "text": answer.text,
        }
        yield exchange, told, answer


def wake_kernel_stamps(patience_s: float = 1.0) -> socket.socket | None:
    """A socket that keeps the kernel stamping received packets; None when this kernel does not.

    The first user of stamps switches them on for the whole machine, which takes a moment, and the last one switches
    them off again: without this socket, held open, the first answers of a round would carry no stamp. The
    kernel does it in a worker thread of its own, which on a busy machine must first get its turn.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = socket.create_connection(listener.getsockname())
        sender, _ = listener.accept()
        with sender:
            receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE_AND_REPORT)
            receiver.settimeout(1.0)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                sender.send(b"?")
                _, ancillary, _, _ = receiver.recvmsg(16, ANCILLARY_BYTES)
                if ancillary:
                    return receiver
                time.sleep(_WAKE_STEP_S)
    receiver.close()
    return None


def _take(queue_fd: int) -> int | None:
    """The next request of the queue, which all client processes share through one file offset."""
    packed = os.read(queue_fd, _INDEX_BYTES)
    return int.from_bytes(packed, "little") if packed else None


def _mapped(fd: int) -> memoryview:
    size = os.fstat(fd).st_size
    return memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else b"")


if __name__ == "__main__":
    sys.exit(main())
