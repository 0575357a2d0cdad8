"""Real controls: the whole gate on llama.cpp, with the truth known beforehand.

    python -m benchmarks.controls.run -o controls --times 3

First `servegate calibrate` measures this machine, and the limits that it suggests are written into the gate. A run with
limits that are too tight on purpose, ended by its budget after a round, shows the warning that the calibration causes. Then, each
`--times` times: *unchanged*, both stacks the same; and *slower*, where the candidate's answers to long prompts come a
known amount per token later (a share of that cell's p95 TPOT, a tenth by default), by `benchmarks.controls.proxy`. Both stacks of every run
stand behind the proxy. Where the machine's own jitter would hide the known amount, `--pace-us` gives both stacks a pace that the engine
can always keep. The promise: an unchanged build is never REJECTed, and the slower one is, naming p95 TPOT of the
long cell and no other cell. The exit status is 1 when it is not kept. Evidence of each run stays in its folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servegate_action import demo
from servegate_action.analysis.calibration import Calibration
from servegate_action.analysis.judgement import Judgement, Outcome, Word
from servegate_action.config.limits import CELL_METRICS, Limit, MetricName
from servegate_action.records import Recording

MODEL = "SmolLM2-135M-Instruct"
LONG = "long"
MIN_PROMPT_CHARS = 100
ROUNDS = 8
REQUESTS = 74
"""The fewest with which a p95 can be shown to be within its limit."""
OUTPUT_TOKENS = 16
TIGHT = ("default: 0.1%", "gpu_utilization: 0.1pp", "cells: {default: 0.1%}")


@dataclass(frozen=True, slots=True)
class Control:
    """One run with a known truth."""

    name: str
    delay_us: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the evidence goes, and what stands before the engine's command.

    `nice -n -15 taskset -c 1` keeps other programs off its core. Not `chrt`: Linux takes 5 % of every second from a real-time
    program that never waits, which is the p95 of the faster side, and none of it from the side that the proxy delays.
    """

    folder: Path
    before_engine: tuple[str, ...] = ()
    pace_us: int = 0


def config(place: Place, *, delay_us: int, limits: Sequence[str], budget: str = "") -> str:
    """The gate: two cells that differ in prompt length only, one thread, one request at a time."""

    def stack(label: str, delay: int) -> str:
        behind = [
            *place.before_engine,
            *(sys.executable, "-m", "servegate_action.demo.server", "--model", str(demo.model_path())),
            *("--alias", MODEL, "--port", "{inner}", "--threads", "1", "--parallel", "1", "--ctx", "256"),
        ]
        proxy = [
            *(sys.executable, "-m", "benchmarks.controls.proxy", "--port", "{port}", "--delay-us", str(delay)),
            *("--pace-us", str(place.pace_us), "--min-prompt-chars", str(MIN_PROMPT_CHARS), "--", *behind),
        ]
        return (
            f"    label: {label}\n    engine: llama.cpp\n    process: {{command: {json.dumps(proxy)}}}\n"
            f"    ready_timeout_s: 120\n    stop_timeout_s: 10\n"
        )

    return f"""version: 1
gate: control
model: {{name: {MODEL}, path: {json.dumps(str(demo.model_path()))}, quantization: q4_1, batch_size: 1}}
stacks:
  baseline:
{stack("behind a proxy", 0)}  candidate:
{stack(f"behind a proxy, {delay_us} us per token of long prompts", delay_us)}
workload:
  seed: 11
  cells:
    - {{name: short, prompt_tokens: 8, output_tokens: {OUTPUT_TOKENS}, concurrency: 1, requests: {REQUESTS}, weight: 1}}
    - {{name: {LONG}, prompt_tokens: 24, output_tokens: {OUTPUT_TOKENS}, concurrency: 1, requests: {REQUESTS}, weight: 1}}
rounds: {{min: 4, max: {ROUNDS}{budget}}}
{_limits(limits)}accelerator: cpu
numerics: {{prompts: 2, output_tokens: 8}}
"""


def _limits(lines: Sequence[str]) -> str:
    return "limits:\n" + "".join(f"  {line}\n" for line in lines) if lines else ""


def suggested(found: Calibration) -> list[str]:
    """The lines under `limits` that a calibration asks for: per kind of metric the largest suggestion."""
    kinds: dict[tuple[bool, MetricName], Limit] = {}
    for metric in found.metrics:
        kind = (metric.key.cell is not None, metric.key.metric)
        if kind not in kinds or metric.suggested.value > kinds[kind].value:
            kinds[kind] = metric.suggested
    cells = ", ".join(f"{name}: {_text(kinds[True, name])}" for name in CELL_METRICS if (True, name) in kinds)
    mix = [f"{name}: {_text(limit)}" for (in_cell, name), limit in kinds.items() if not in_cell]
    return [*mix, f"cells: {{{cells}}}"]


def _text(limit: Limit) -> str:
    return f"{limit.value:g}pp" if limit.unit == "points" else f"{100 * limit.value:g}%"


def servegate(*arguments: str) -> int:
    """The command line itself, in a process of its own."""
    return subprocess.run([sys.executable, "-m", "servegate_action", *arguments], check=False).returncode


def calibrated(place: Place, *, rounds: int) -> Calibration:
    """Measure this machine; a calibration that is already there is used again."""
    folder = place.folder
    file = folder / "calibration" / "calibration.json"
    if not file.is_file():
        (folder / "calibrate.yml").write_text(config(place, delay_us=0, limits=()), encoding="utf-8")
        arguments = ("-c", str(folder / "calibrate.yml"), "-o", str(folder / "calibration"), "--rounds", str(rounds))
        code = servegate("calibrate", *arguments)
        if code or not file.is_file():
            raise SystemExit(f"the calibration failed with exit code {code}")
    return Calibration.model_validate_json(file.read_text(encoding="utf-8"))


def delay_of(place: Place, *, worse_by: float) -> int:
    """This share of the long cell's p95 TPOT of the calibration, in microseconds."""
    judgement = Judgement.model_validate_json(
        (place.folder / "calibration" / "verdict.json").read_text(encoding="utf-8")
    )
    for metric in judgement.metrics:
        if metric.key.metric is MetricName.TPOT_P95 and (metric.key.cell or "").startswith(LONG):
            if not isinstance(metric.baseline, float):
                break
            return round(1000.0 * worse_by * metric.baseline)
    raise SystemExit("the calibration has no p95 TPOT of the long cell")


def warned(place: Place) -> tuple[str, ...]:
    """What a later run says before it spends time, when its limits are below this machine's floor."""
    file, output = place.folder / "tight.yml", place.folder / "tight"
    tight = config(place, delay_us=0, limits=TIGHT, budget=", budget_minutes: 0.01")
    file.write_text(tight, encoding="utf-8")
    if not (output / "recording.json").is_file():
        servegate("run", "-c", str(file), "-o", str(output))
    return Recording.model_validate_json((output / "recording.json").read_text(encoding="utf-8")).notes


def play(control: Control, place: Place, limits: Sequence[str]) -> Judgement:
    """One run of the gate; one that is already there is read again."""
    file = place.folder / f"{control.name}.yml"
    file.write_text(config(place, delay_us=control.delay_us, limits=limits), encoding="utf-8")
    output = place.folder / control.name
    if not (output / "verdict.json").is_file():
        servegate("run", "-c", str(file), "-o", str(output))
    return Judgement.model_validate_json((output / "verdict.json").read_text(encoding="utf-8"))


def kept(control: Control, judgement: Judgement) -> bool:
    """Whether the truth was found."""
    rejected = [metric.key for metric in judgement.metrics if metric.outcome is Outcome.REJECT]
    if not control.delay_us:
        return judgement.word is not Word.REJECT
    cells = {key.cell for key in rejected if key.cell is not None}
    found = any(key.metric is MetricName.TPOT_P95 and key.cell is not None for key in rejected)
    return judgement.word is Word.REJECT and found and all(cell.startswith(LONG) for cell in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate, play all controls, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the evidence of all runs")
    parser.add_argument("--times", type=int, default=3, help="how often each control is run")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the calibration")
    parser.add_argument("--worse-by", type=float, default=0.10, help="the known truth, as a share of p95 TPOT")
    parser.add_argument(
        "--before-engine", default="", help="words before the engine's command, e.g. `nice -n -15 taskset -c 1`"
    )
    parser.add_argument("--pace-us", type=int, default=0, help="least time between two tokens of both stacks")
    told = parser.parse_args(arguments)
    demo.check_available()
    told.output.mkdir(parents=True, exist_ok=True)
    place = Place(told.output, tuple(told.before_engine.split()), told.pace_us)
    found = calibrated(place, rounds=told.rounds)
    limits, delay_us = suggested(found), delay_of(place, worse_by=told.worse_by)
    print(f"limits: {'; '.join(limits)}\ndelay: {delay_us} us per token", flush=True)
    print("\n".join(f"note: {text}" for text in warned(place)), flush=True)
    controls = [Control(f"{name}-{n}", delay) for name, delay in _truths(delay_us) for n in range(1, told.times + 1)]
    rows, good = [], True
    for control in controls:
        judgement = play(control, place, limits)
        good = good and kept(control, judgement)
        noise = f"{100 * judgement.noise:.1f} %" if isinstance(judgement.noise, float) else "-"
        mark = "yes" if kept(control, judgement) else "NO"
        rows.append(
            f"| {control.name} | {judgement.word} | {judgement.rounds_used} | {noise} | {mark} | {judgement.headline} |"
        )
        print(rows[-1], flush=True)
    print("\n| control | word | rounds | median SD of a round | truth found | headline |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    return 0 if good else 1


def _truths(delay_us: int) -> tuple[tuple[str, int], ...]:
    return (("slower", delay_us), ("unchanged", 0))


if __name__ == "__main__":
    sys.exit(main())
