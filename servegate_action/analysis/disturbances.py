"""What makes a launch worthless whatever its numbers: a disturbed accelerator, or one that nobody watched.

Averages are taken over a cell's steady window; what disturbs counts for as long as requests are measured, from the first
measured one (or the steady window, when that begins earlier) to the last answer, because every latency of it counts.
Slowed clocks, memory errors, a lost device and a stranger's process spoil a launch. So does a hole in the readings that
would have told. What was never read, from the first cell to the last, is named (`unread`) and not called good.

Whose a process is: where the sampler is told the stack's own, and one of them is seen on its devices, they are all that
is the stack's, from the request to start on. Else the processes listed as the first cell begins are taken for its own.
Nothing is compared with another stack here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.telemetry_window import LONGEST_GAP_NS, Span, devices_of
from servegate_action.records import Absent, CellRun, DeviceSample, LaunchRecord, TelemetrySample, TelemetryStatic

SLOWED = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""nvmlClocksEventReason* that make a measurement worthless. The power cap (4) is normal under load."""
CLOCKS, ERRORS, PROCESSES = "clocks held down", "memory errors", "other processes"
LISTED_BEFORE = 2
"""In how many lists before the first cell a process has to be. Lists and the stack's own processes are both read every
five seconds: one of its own that is gone sooner (a compiler's probe) may be in a single list, and never be told."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that would tell of a disturbance. `every`: the ticks of the sampler between two of its readings."""

    name: str
    every: int
    on_boards: bool
    of: Callable[[DeviceSample], float | None]


SIGNS = (
    Sign(CLOCKS, 1, True, lambda device: device.throttle_reasons),
    Sign(ERRORS, 10, True, lambda device: device.ecc_uncorrected),
    Sign(PROCESSES, 50, False, lambda device: None if device.process_ids is None else len(device.process_ids)),
)


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What was found in one launch. `unwatched`: holes in its cells, one sentence each.

    `notes`: worth knowing, and without consequence.
    """

    spoiled: tuple[str, ...] = ()
    unwatched: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def disturbances(record: LaunchRecord, data: LaunchData) -> Disturbances:
    """All of one launch. Nothing is said about a CPU, which has no counters that would tell."""
    static, samples = data.telemetry, data.samples
    if isinstance(static, Absent) or static.backend == "cpu" or not record.cells:
        return Disturbances()
    cells = [(run.cell, Span.of(static, samples, *measured)) for run, measured in _measured(record.cells, data)]
    begun, ended = cells[0][1].start_ns, cells[-1][1].end_ns
    missing = unread(static, samples, start_ns=begun, end_ns=ended)
    return Disturbances(
        spoiled=(
            *(f"{name}: {text}" for name, span in cells for text in disturbed(span)),
            *_strangers(record, data, static, begun_ns=begun, ended_ns=ended),
        ),
        unwatched=tuple(f"{name}: {text}" for name, span in cells for text in holes(span, unread=missing)),
        unread=missing,
        notes=() if PROCESSES in missing or told_processes(samples) else (_untold(record),),
    )


def _untold(record: LaunchRecord) -> str:
    return (
        f"which processes are the {record.side}'s own was not told: "
        "one that came before its first cell is taken for its own"
    )


def _measured(cells: Sequence[CellRun], data: LaunchData) -> Iterator[tuple[CellRun, tuple[int, int]]]:
    """Of each cell, the time in which something was measured, in ns."""
    first: dict[str, int] = {}
    for request in data.requests:
        if request.phase == "measured" and request.sent_ns is not None:
            first[request.cell] = min(request.sent_ns, first.get(request.cell, request.sent_ns))
    for run in cells:
        start = min(run.steady_start_ns, first.get(run.cell, run.steady_start_ns))
        yield run, (start, max(run.steady_end_ns, run.ended_ns))


# ---------------------------------------------------------------- disturbed


def disturbed(span: Span) -> tuple[str, ...]:
    """Lost devices, slowed clocks and memory errors in one span of time, one sentence each."""
    return (*_lost(span), *_slowed(span), *_memory_errors(span))


def _lost(span: Span) -> Iterator[str]:
    """A device that a sample does not mention is gone."""
    seen = [{device.uuid for device in sample.devices} for sample in span.inside]
    for device in span.static.devices:
        if any(device.uuid not in uuids for uuids in seen):
            yield f"{device.uuid} was lost during the measurement"


def _slowed(span: Span) -> Iterator[str]:
    reasons = span.reasons
    for uuid in dict.fromkeys(uuid for uuid, _ in reasons):
        bits = [value for owner, value in reasons if owner == uuid]
        for bit, name in SLOWED.items():
            share = sum(1 for value in bits if value & bit) / len(bits)
            if share:
                yield f"the clocks of {uuid} were slowed down ({name}) in {share:.1%} of the readings"


def _memory_errors(span: Span) -> Iterator[str]:
    for device in span.static.devices:
        _, counts = span.readings(device.uuid, lambda sample: sample.ecc_uncorrected)
        if counts.size and counts[-1] > counts[0]:
            yield f"{counts[-1] - counts[0]:.0f} uncorrected memory errors (ECC) on {device.uuid}"


# ---------------------------------------------------------------- strangers


def _strangers(
    record: LaunchRecord, data: LaunchData, static: TelemetryStatic, *, begun_ns: int, ended_ns: int
) -> Iterator[str]:
    """Processes that are not the stack's: in the cells, and, where its own are told, while it started and was idle."""
    measured = Span.of(static, data.samples, begun_ns, ended_ns)
    own = told_processes(data.samples)
    if not own:
        own = _listed_first(measured)
    elif record.cold_start is not None:
        starting = Span.of(static, data.samples, record.cold_start.requested_ns, begun_ns - 1)
        yield from (f"before the first cell {text}" for text in strangers(starting, own=own, lists=LISTED_BEFORE))
    yield from strangers(measured, own=own)


def told_processes(samples: Iterable[TelemetrySample]) -> frozenset[int]:
    """The stack's own host pids, told during a launch; none where no told one was ever seen on its devices.

    A command that lets another program start the server (an engine for containers, say) is told, and uses no GPU.
    """
    told: set[int] = set()
    listed: set[int] = set()
    for sample in samples:
        told.update(sample.stack_processes or ())
        listed.update(pid for device in sample.devices for pid in device.process_ids or ())
    return frozenset(told) if told & listed else frozenset()


def _listed_first(span: Span) -> frozenset[int]:
    """On each device, the first list of a span."""
    first: dict[str, tuple[int, ...]] = {}
    for uuid, pids in span.process_lists:
        first.setdefault(uuid, pids)
    return frozenset(pid for pids in first.values() for pid in pids)


def strangers(span: Span, *, own: frozenset[int], lists: int = 1) -> Iterator[str]:
    """Host pids that are not among `own` and were in at least so many lists of a device, one sentence a device."""
    seen = Counter((uuid, pid) for uuid, pids in span.process_lists for pid in pids if pid not in own)
    for device in span.static.devices:
        foreign = sorted(pid for (uuid, pid), times in seen.items() if uuid == device.uuid and times >= lists)
        if foreign:
            yield f"another process used {device.uuid} (host pid {', '.join(map(str, foreign))})"


# ---------------------------------------------------------------- not watched


def unread(
    static: TelemetryStatic, samples: Sequence[TelemetrySample], *, start_ns: int, end_ns: int
) -> tuple[str, ...]:
    """What would tell of a disturbance and was not read once, on one device at least: nobody can say that there was none.

    Readings before the start count, as far back as those of the slowest sign are apart.
    """
    back_ns = max(sign.every for sign in SIGNS) * static.interval_ns
    near = [sample for sample in samples if start_ns - back_ns <= sample.t_ns <= end_ns]
    span = Span(start_ns, end_ns, static, near)
    return tuple(
        sign.name
        for sign in SIGNS
        if not all(span.readings(uuid, sign.of)[0].size for uuid in devices_of(span.static, carry_power=sign.on_boards))
    )


def holes(span: Span, *, unread: Sequence[str] = ()) -> Iterator[str]:
    """Stretches in which what is otherwise read was not, 3 s longer than its readings are apart; one sentence each.

    In a span that is shorter than that, a slow sign may have no reading at all.
    """
    if not span.inside:
        yield "no telemetry sample"
        return
    for sign in SIGNS:
        for uuid in devices_of(span.static, carry_power=sign.on_boards) if sign.name not in unread else ():
            longest_ns = span.longest_gap_ns(span.readings(uuid, sign.of)[0])
            if longest_ns > sign.every * span.static.interval_ns + LONGEST_GAP_NS:
                yield f"{sign.name} of {uuid}: not read for {longest_ns / 1e9:.1f} s"
