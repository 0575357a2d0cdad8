"""`servegate load`: what was asked for becomes load, and the load a table. Judges nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.table import Table

from servegate_action.errors import ExitCode, StorageFailed, UsageError
from servegate_action.load import LoadLimits, LoadOptions, LoadReport, run_load
from servegate_action.load.summary import Row
from servegate_action.progress import reporting
from servegate_action.records import Absent
from servegate_action.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line of `servegate load`."""

    url: str
    concurrency: int | None
    rate: float | None
    trace: Path | None
    requests: int
    prompt_tokens: int
    output_tokens: int
    seed: int
    api: Literal["completions", "chat"]
    served_model: str | None
    api_key_env: str | None
    processes: int | None
    certify: bool
    summary_file: Path | None
    requests_out: Path | None


def load(world: World, asked: Asked) -> int:
    """Send, show the summary, write what was asked for. Failed requests are exit code 5: there is no clean result."""
    for name in (asked.requests_out, asked.summary_file):
        if name is not None:
            _must_take_a_file(world.folder / name)
    with reporting(world.err) as reporter:
        report = run_load(_options(world, asked), progress=reporter)
    world.out.print(_table(report.rows))
    for line in _about_the_client(report):
        world.out.print(line)
    if asked.summary_file is not None:
        _write(world.folder / asked.summary_file, json.dumps(report.as_json(), indent=2) + "\n")
    if asked.requests_out is not None:
        _write(world.folder / asked.requests_out, "".join(f"{line}\n" for line in report.lines()))
    failed = [request for request in report.result.requests if request.phase == "measured" and not request.ok]
    if failed:
        world.err.print(f"{len(failed)} requests failed; the first: {failed[0].error}", markup=False)
        return ExitCode.CANNOT_MEASURE
    return ExitCode.PASS


def _options(world: World, asked: Asked) -> LoadOptions:
    if not asked.url.startswith(("http://", "https://")):
        raise UsageError(f"{asked.url!r} is not an http or https URL", next_step="servegate load http://HOST:PORT …")
    headers = {}
    if asked.api_key_env is not None:
        key = world.environment.get(asked.api_key_env)
        if not key:
            raise UsageError(f"the variable {asked.api_key_env} is not set", next_step="export the server's key in it")
        headers = {"Authorization": f"Bearer {key}"}
    trace = None
    if asked.trace is not None:
        try:
            trace = ((world.folder / asked.trace).read_text(encoding="utf-8"), str(asked.trace))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{asked.trace} cannot be read: {error}", next_step="name a file of arrivals, JSONL or CSV"
            ) from None
    return LoadOptions(
        url=asked.url,
        api=asked.api,
        served_model=asked.served_model,
        headers=headers,
        concurrency=asked.concurrency,
        rate_per_second=asked.rate,
        trace=trace,
        requests=asked.requests,
        prompt_tokens=asked.prompt_tokens,
        output_tokens=asked.output_tokens,
        seed=asked.seed,
        limits=LoadLimits(processes=asked.processes or "auto"),
        certify=asked.certify,
    )


def _must_take_a_file(path: Path) -> None:
    """Before anything is measured: a file that cannot be written then would be the end of what was measured."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"cannot be written: there is no folder {path.parent}"
        raise UsageError(f"{path} {what}", next_step="name a file in a folder that exists")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(
            f"cannot write {path}: {error.strerror}",
            next_step="make room, or write to another place; the table is above",
        ) from error


def _table(rows: Sequence[Row]) -> Table:
    columns = list(dict.fromkeys(column for row in rows for column in row.values))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column("" if column == "value" else column, justify="right")
    table.add_column("unit")
    for row in rows:
        table.add_row(row.name, *(_cell(row.values.get(column)) for column in columns), row.unit)
    return table


def _cell(value: float | Absent | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Absent):
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def _about_the_client(report: LoadReport) -> list[str]:
    """How far the numbers can be trusted."""
    health = report.result.run.client
    lines = [
        (
            f"client: {health.processes} process(es), stamps: {health.stamp_source.value}, "
            f"{health.cpu_ns / 1e9:.2f} s of CPU, dispatch lag p99 {health.dispatch_lag_p99_ns / 1e6:.2f} ms, "
            f"{health.coalesced_reads} of {health.reads} reads held more than one token event"
        )
    ]
    certificate = report.certificate
    if isinstance(certificate, Absent):
        lines.append(f"certificate: none ({certificate.absent})")
    else:
        word = "passed" if certificate.passed else f"NOT passed: {certificate.advice}"
        lines.append(
            f"certificate at {certificate.concurrency} at once, {certificate.events_per_second:,.0f} events/s: {word}; "
            f"stamp error p99 {certificate.stamp_error_p99_ns / 1e6:.3f} ms, "
            f"p95 TTFT error {certificate.ttft_error_p95_ns / 1e6:.3f} ms"
        )
    return lines
