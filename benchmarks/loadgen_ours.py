"""Our client as a whole command: start, plan, send, parse, write lines and a table.

    python -m benchmarks.loadgen_ours URL --concurrency 128 --requests 256 --output-tokens 128 --out DIR

What `servegate load` does, less its questions beforehand (what is accepted, how tokens are counted: the benchmark's
server answers everything alike, in 2.6 s) and less the certificate.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import replace
from pathlib import Path

import click

from servegate_action.load.cell import LoadLimits, Target, run_cell
from servegate_action.load.command import LoadOptions, planned_workload, request_line
from servegate_action.load.summary import summarize
from servegate_action.records import Absent, Dialect

DIALECT = Dialect(
    api="completions",
    served_model="scripted",
    stream_options=True,
    ignore_eos=True,
    min_tokens=True,
    max_tokens_field="max_tokens",
)


@click.command()
@click.argument("url")
@click.option("--concurrency", type=int, required=True)
@click.option("--requests", type=int, required=True)
@click.option("--output-tokens", type=int, required=True)
@click.option("--processes", type=int, default=1)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(url: str, concurrency: int, requests: int, output_tokens: int, processes: int, out: Path) -> None:
    """Run, and write `requests.jsonl` and `ours.json` into DIR."""
    options = LoadOptions(
        url=url,
        concurrency=concurrency,
        requests=requests,
        prompt_tokens=64,
        output_tokens=output_tokens,
        warmup_requests=1,
    )
    (planned,) = planned_workload(options).for_launch(1)
    named = (replace(r, prompt=f"#{n}# {r.prompt}") for n, r in enumerate(planned.measured))
    cell = replace(planned, warmup=(), measured=tuple(named))
    result = run_cell(Target(url, DIALECT), cell, limits=LoadLimits(processes=processes))
    read_ns = time.monotonic_ns()
    measured = [request for request in result.requests if request.phase == "measured"]
    with (out / "requests.jsonl").open("w") as lines:
        lines.writelines(request_line(request) + "\n" for request in measured)
    run, client = result.run, result.run.client
    table = summarize(result.requests, window=(run.steady_start_ns, run.steady_end_ns), open_loop=False)
    p95 = {row.name: row.values.get("p95") for row in table}
    summary = {
        "ttft_p95_ms": _known(p95["TTFT"]),
        "tpot_p95_ms": _known(p95["TPOT"]),
        "completed": sum(request.ok for request in measured),
        "client": client.model_dump(mode="json"),
        "parsing_ns": read_ns - run.ended_ns,
    }
    (out / "ours.json").write_text(json.dumps(summary))
    gc.freeze()  # as the command does in its end


def _known(value: float | Absent | None) -> float | None:
    return None if isinstance(value, Absent) else value


if __name__ == "__main__":
    main()
