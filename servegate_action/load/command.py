"""`servegate load`: the load generator alone against one URL, as a function.

The order of the work: find out what the server accepts, learn how it counts tokens, plan the requests, send them,
and certify the client at the operating point that was seen. Everything comes back as data; the command line
draws it. It refuses to print, and to compare two servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from pydantic_core import to_json

from servegate_action.config import workload as config
from servegate_action.errors import CannotMeasure, UsageError
from servegate_action.load.cell import CellProgress, CellResult, LoadLimits, Target, run_cell
from servegate_action.load.dialect import negotiate
from servegate_action.load.single import probe_tokens
from servegate_action.load.summary import Row, summarize, tokens_in
from servegate_action.records import Absent, Certificate, RequestRecord
from servegate_action.traces import parse_trace
from servegate_action.workload import Workload, build, calibration_texts, fit_lengths

_NEGOTIATION_TIMEOUT_S = 120.0
_CELL = "load"


class LoadProgress(Protocol):
    """How `run_load` tells where it is."""

    def phase(self, text: str) -> None:
        """A new phase has begun."""

    def advance(self, done: int, total: int, text: str) -> None:
        """`done` of `total` requests are finished."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to send. Exactly one of `concurrency`, `rate_per_second`, and `trace` (its text and file name)."""

    url: str
    api: Literal["completions", "chat"] = "completions"
    served_model: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    rate_per_second: float | None = None
    trace: tuple[str, str] | None = None
    requests: int = 100
    prompt_tokens: config.Length = 256
    output_tokens: config.Length = 128
    seed: int = 0
    warmup_requests: int | None = None
    limits: LoadLimits = field(default_factory=LoadLimits)
    certify: bool = True


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What came of it."""

    target: Target
    result: CellResult
    rows: tuple[Row, ...]
    certificate: Certificate | Absent

    def lines(self) -> Iterator[str]:
        """One line of JSON per measured request, in order of planning. Times are monotonic ns."""
        for request in self.result.requests:
            if request.phase == "measured":
                yield request_line(request)

    def as_json(self) -> dict[str, object]:
        """The summary as plain data: an absent value is `{"absent": reason}`."""
        health = self.result.run.client
        return {
            "url": self.target.base_url,
            "dialect": self.target.dialect.model_dump(mode="json"),
            "rows": [
                {"name": row.name, "unit": row.unit, **{column: _plain(value) for column, value in row.values.items()}}
                for row in self.rows
            ],
            "run": self.result.run.model_dump(mode="json"),
            "client": health.model_dump(mode="json"),
            "certificate": self.certificate.model_dump(mode="json"),
        }


def request_line(request: RequestRecord) -> str:
    """One request as JSON. By pydantic's writer: its line is mostly long whole numbers, which `json` takes three times as long to write."""
    told = {
        "id": request.id,
        "scheduled_ns": request.scheduled_ns,
        "sent_ns": request.sent_ns,
        "first_token_ns": request.token_ns[0] if request.token_ns else None,
        "last_token_ns": request.token_ns[-1] if request.token_ns else None,
        "end_ns": request.end_ns,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "events": request.events,
        "ok": request.ok,
        "error": request.error,
        "token_ns": request.token_ns,
    }
    return to_json(told).decode()


def _plain(value: float | Absent) -> object:
    return value.model_dump() if isinstance(value, Absent) else value


def run_load(options: LoadOptions, *, progress: LoadProgress) -> LoadReport:
    """Negotiate, calibrate, measure, certify. Raises UsageError or CannotMeasure; failed requests are in the report."""
    planned = planned_workload(options)
    progress.phase(f"asking {options.url} what it accepts")
    dialect = negotiate(
        options.url,
        api=options.api,
        served_model=options.served_model,
        headers=options.headers,
        timeout_s=_NEGOTIATION_TIMEOUT_S,
    )
    target = Target(options.url, dialect, options.headers)
    progress.phase("learning how the server counts tokens")
    texts = calibration_texts(planned)
    fitted = planned_workload(options, like=(texts, _lengths(target, texts)))
    (cell,) = fitted.for_launch(1)
    progress.phase(f"sending {len(cell.measured)} requests after {len(cell.warmup)} to warm up")

    def advance(state: CellProgress) -> None:
        text = f"{state.active} in flight, {state.failed} failed, {state.reads} reads in {state.elapsed_s:.0f} s"
        progress.advance(state.finished, state.total, text)

    result = run_cell(target, cell, limits=options.limits, progress=advance)
    window = (result.run.steady_start_ns, result.run.steady_end_ns)
    rows = summarize(result.requests, window=window, open_loop=cell.concurrency is None)
    return LoadReport(target, result, rows, _certificate(options, result, progress))


def _lengths(target: Target, texts: tuple[str, ...]) -> list[int]:
    lengths = probe_tokens(target, texts)
    if len(set(lengths)) == 1:
        raise CannotMeasure(
            f"{target.base_url} reports the same number of tokens ({lengths[0]}) for prompts of every length",
            why="its usage.prompt_tokens is no count of the prompt's tokens, or it cuts prompts short",
            next_step="check the server's limit on prompt length",
        )
    return lengths


def planned_workload(options: LoadOptions, *, like: tuple[tuple[str, ...], list[int]] | None = None) -> Workload:
    """The requests; with `like` (texts and their lengths on this server) prompts have the wished lengths in tokens."""
    ways = (options.concurrency, options.rate_per_second, options.trace)
    if sum(way is not None for way in ways) != 1:
        raise UsageError(
            "exactly one of --concurrency, --rate and --trace is needed",
            next_step="servegate load URL --concurrency 8",
        )
    fit = fit_lengths(*like) if like is not None else None
    if options.trace is not None:
        text, name = options.trace
        declared = config.Workload(seed=options.seed, trace=config.Trace(path=name), api=options.api)
        return build(declared, fit=fit, trace=parse_trace(text, name=name))
    cell = config.Cell(
        name=_CELL,
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.output_tokens,
        concurrency=(options.concurrency,) if options.concurrency is not None else (),
        rate_per_second=options.rate_per_second,
        requests=options.requests,
        warmup_requests=options.warmup_requests,
    )
    return build(config.Workload(seed=options.seed, cells=(cell,), api=options.api), fit=fit)


def _certificate(options: LoadOptions, result: CellResult, progress: LoadProgress) -> Certificate | Absent:
    """The client at the concurrency and event rate that were just seen."""
    if not options.certify:
        return Absent(absent="not asked for")
    from servegate_action.load.certificate import certify

    answered = [request for request in result.requests if len(request.token_ns) > 1]
    if not answered:
        return Absent(absent="no answer arrived, so that there is no operating point to certify at")
    start_ns = min(request.token_ns[0] for request in answered)
    end_ns = max(request.token_ns[-1] for request in answered)
    seconds = (end_ns - start_ns) / 1e9
    events = sum(len(request.token_ns) for request in answered)
    busy_s = sum(request.end_ns - (request.sent_ns or request.end_ns) for request in answered) / 1e9
    streams = options.concurrency or max(1, round(busy_s / seconds))
    progress.phase(f"certifying the client at {streams} streams and {events / seconds:.0f} events per second")
    tokens = round(tokens_in(answered, start_ns, end_ns + 1) / len(answered))
    return certify(
        concurrency=streams,
        events_per_second=events / seconds,
        output_tokens=max(2, tokens),
        limits=replace(options.limits, request_timeout_s=60.0),
    )
