"""Recorded traffic as text: when requests arrived, and how long they and their answers were.

Reads the two published shapes, Mooncake's JSONL and the CSV of the Azure LLM inference traces. It refuses to open files,
to guess at a bad line, and to know what a trace is used for (`workload` replays it, the cost model prices it).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from servegate_action.errors import ConfigError, Problem

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One arrival of a trace. `t_ns` counts from the trace's first row."""

    t_ns: int
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def parse_trace(text: str, *, name: str) -> tuple[TraceRow, ...]:
    """Rows of a trace, in order of arrival, times from the first one.

    JSONL as published with Mooncake (`timestamp` in ms, `input_length`, `output_length`, optional `hash_ids`), or CSV as
    published with the Azure LLM inference trace (`TIMESTAMP`, `ContextTokens`, `GeneratedTokens`). Raises ConfigError
    with every bad line (up to 20).
    """
    problems: list[Problem] = []
    parse = _csv_rows if name.endswith(".csv") else _jsonl_rows
    rows = sorted(parse(text, name, problems), key=lambda row: row.t_ns)
    if not rows and not problems:
        problems.append(Problem(name, 1, "", "the trace has no rows", "JSONL or CSV with at least one arrival"))
    if problems:
        raise ConfigError(problems[:_MAX_PROBLEMS])
    start = rows[0].t_ns
    return tuple(replace(row, t_ns=row.t_ns - start) for row in rows)


def _jsonl_rows(text: str, name: str, problems: list[Problem]) -> Iterator[TraceRow]:
    allowed = '{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [optional]}'
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found = TraceRow(
                t_ns=round(float(row["timestamp"]) * 1e6),
                prompt_tokens=_count(row["input_length"]),
                output_tokens=_count(row["output_length"]),
                hash_ids=tuple(int(block) for block in row.get("hash_ids") or ()),
            )
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
            problems.append(Problem(name, number, "", f"not a trace row: {_reason(error)}", allowed))
            continue
        yield found


def _csv_rows(text: str, name: str, problems: list[Problem]) -> Iterator[TraceRow]:
    allowed = "a header with TIMESTAMP,ContextTokens,GeneratedTokens"
    reader = csv.DictReader(io.StringIO(text))
    for number, row in enumerate(reader, start=2):
        try:
            found = TraceRow(
                t_ns=_timestamp_ns(row["TIMESTAMP"]),
                prompt_tokens=_count(row["ContextTokens"]),
                output_tokens=_count(row["GeneratedTokens"]),
            )
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            problems.append(Problem(name, number, "", f"not a trace row: {_reason(error)}", allowed))
            continue
        yield found


def _count(value: object) -> int:
    number = float(str(value))
    if not number.is_integer() or number < 1:
        raise ValueError(f"{value!r} is not a whole number of tokens above 0")
    return int(number)


def _timestamp_ns(text: str) -> int:
    """Seconds as a number, or a date and time with up to nine decimals."""
    try:
        return round(float(text) * 1e9)
    except ValueError:
        whole, _, fraction = text.strip().partition(".")
        digits = fraction.rstrip("Z").partition("+")[0]
        seconds = round(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
        return seconds * 10**9 + int(digits.ljust(9, "0")[:9] or 0)


def _reason(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
