"""Which launches count: from a recording and its files to complete, comparable rounds.

A round counts when both of its launches are complete in the same attempt; an attempt that was voided for one side is
voided for both. Rounds count up to the first gap, because the alternating order balances drift only without one. The
files of each launch are read exactly once and reduced to what judging needs. Nothing is judged here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from servegate_action.analysis.client_trouble import client_trouble
from servegate_action.analysis.metrics import LaunchData, LaunchMetrics, launch_metrics
from servegate_action.analysis.server_view import ServerView, client_mean_ttft_ms, server_view
from servegate_action.analysis.signals import LaunchSignals, launch_signals
from servegate_action.config.models import Config
from servegate_action.records import (
    Absent,
    LaunchRecord,
    LaunchState,
    Recording,
    RequestRecord,
    Side,
    TelemetryStatic,
    TokenSource,
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What of one measured request must be the same on both stacks, and what it came back with."""

    cell: str
    requested: int
    prompt_tokens: int | None
    output_tokens: int | None
    source: TokenSource | None
    ok: bool
    text: str | None


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch, reduced. `replayed`: its measured requests by id.

    By cell: `cached_share` of all prompt tokens, the larger of what usage and the server's counters say; `server`, what
    the server itself counted; `mean_ttft_ms` from the real send, to be put beside the server's. `at_once`: the most requests
    that were between their first and their last token at one moment, the running batch as far as a client can see it.
    """

    record: LaunchRecord
    metrics: LaunchMetrics
    signals: LaunchSignals
    telemetry: TelemetryStatic | Absent
    replayed: Mapping[str, Replayed]
    cached_share: Mapping[str, float]
    server: Mapping[str, ServerView]
    mean_ttft_ms: Mapping[str, float | None]
    client_trouble: tuple[str, ...]
    at_once: int


@dataclass(frozen=True, slots=True)
class Round:
    """One complete round."""

    number: int
    baseline: Launch
    candidate: Launch

    def of(self, side: Side) -> Launch:
        """The launch of one side."""
        return self.baseline if side is Side.BASELINE else self.candidate

    @property
    def launches(self) -> tuple[Launch, Launch]:
        """In the order baseline, candidate."""
        return self.baseline, self.candidate


@dataclass(frozen=True, slots=True)
class Evidence:
    """All launches that could be read, and the rounds that count."""

    launches: tuple[Launch, ...]
    rounds: tuple[Round, ...]
    left_out: tuple[str, ...]

    def of(self, side: Side) -> tuple[Launch, ...]:
        """The launches of one side that count, in order of their rounds."""
        return tuple(one.of(side) for one in self.rounds)

    def at_once(self, side: Side) -> int:
        """The most requests that any launch of a side was seen to decode at one moment; 0 when nothing was measured."""
        return max((launch.at_once for launch in self.launches if launch.record.side is side), default=0)


NO_DATA = LaunchData(requests=(), telemetry=Absent(absent="no telemetry file"), samples=())


def gather(config: Config, recording: Recording, data: Mapping[str, LaunchData]) -> Evidence:
    """Reduce every launch that was not voided, and pair the complete ones."""
    launches = tuple(
        reduce_launch(config, recording, record, data.get(record.directory, NO_DATA))
        for record in recording.launches
        if record.state is not LaunchState.VOIDED
    )
    rounds, left_out = _paired(launches)
    torn = (f"{name}: {one.damaged}" for name, one in data.items() if one.damaged is not None)
    return Evidence(launches=launches, rounds=rounds, left_out=(*left_out, *torn))


def reduce_launch(config: Config, recording: Recording, record: LaunchRecord, data: LaunchData) -> Launch:
    """One launch without its token events."""
    measured = [request for request in data.requests if request.phase == "measured"]
    every, counted = _by_cell(data.requests), _by_cell(measured)
    server = {run.cell: server_view(run, every.get(run.cell, ())) for run in record.cells}
    gpus = config.stacks.of(record.side).gpu_count
    return Launch(
        record=record,
        metrics=launch_metrics(record, data.requests, plan=recording.plan.cells, slo=config.slo, gpus=gpus),
        signals=launch_signals(record, data, recording.floor),
        telemetry=data.telemetry,
        replayed={request.id: _replayed(request) for request in measured},
        cached_share={cell: max(_cached_share(own), _seen_cached(server, cell)) for cell, own in counted.items()},
        server=server,
        mean_ttft_ms={cell: client_mean_ttft_ms(own) for cell, own in every.items()},
        client_trouble=launch_client_trouble(record, measured),
        at_once=most_at_once(data.requests),
    )


def most_at_once(requests: Sequence[RequestRecord]) -> int:
    """The most requests between first and last token at one moment; one that ends as another begins is not beside it."""
    spans = [(request.token_ns[0], request.token_ns[-1]) for request in requests if request.token_ns]
    moments = sorted([(end, -1) for _, end in spans] + [(start, 1) for start, _ in spans])
    return max(accumulate(step for _, step in moments), default=0)


def _replayed(request: RequestRecord) -> Replayed:
    return Replayed(
        cell=request.cell,
        requested=request.requested_output_tokens,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        source=request.token_source,
        ok=request.ok,
        text=request.text_sha256,
    )


def _by_cell(requests: Sequence[RequestRecord]) -> Mapping[str, Sequence[RequestRecord]]:
    cells: dict[str, list[RequestRecord]] = defaultdict(list)
    for request in requests:
        cells[request.cell].append(request)
    return dict(cells)


def _cached_share(requests: Sequence[RequestRecord]) -> float:
    """Prompt tokens that usage says came from a cache, over all of them; 0 where it says nothing."""
    prompts = sum(request.prompt_tokens or 0 for request in requests)
    return sum(request.cached_tokens or 0 for request in requests) / prompts if prompts else 0.0


def _seen_cached(server: Mapping[str, ServerView], cell: str) -> float:
    """The same by the server's counters; 0 where it has none."""
    view = server.get(cell)
    return (view.cached_share or 0.0) if view is not None else 0.0


def launch_client_trouble(record: LaunchRecord, measured: Sequence[RequestRecord]) -> tuple[str, ...]:
    """What the load generator did badly in any cell of a launch."""
    by_cell = _by_cell(measured)
    return tuple(text for run in record.cells for text in client_trouble(run, by_cell.get(run.cell, ())))


def _paired(launches: Sequence[Launch]) -> tuple[tuple[Round, ...], tuple[str, ...]]:
    """Complete rounds from 1 up to the first gap, each from its latest attempt; and what is not used, in words."""
    found: dict[int, dict[Side, Launch]] = {}
    left_out: list[str] = []
    for launch in sorted(launches, key=lambda one: one.record.attempt):
        record = launch.record
        sides = found.setdefault(record.round, {})
        if any(other.record.attempt != record.attempt for other in sides.values()):
            sides.clear()
        if launch.metrics.incomplete is None:
            sides[record.side] = launch
        else:
            left_out.append(f"round {record.round}, {record.side}: {launch.metrics.incomplete}")
    rounds: list[Round] = []
    while len(found.get(len(rounds) + 1, {})) == len(Side):
        number = len(rounds) + 1
        rounds.append(Round(number, found[number][Side.BASELINE], found[number][Side.CANDIDATE]))
    beyond = sorted(number for number, sides in found.items() if number > len(rounds) + 1 and sides)
    left_out += [f"round {number}: not used, because round {len(rounds) + 1} is not complete" for number in beyond]
    return tuple(rounds), tuple(left_out)
