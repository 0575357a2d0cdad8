"""The clients that are compared, each as a command and a way to read what it reports.

Peers live in environments of their own, under one folder outside the repository (`--peers`), and are used as their
documentation says: OpenAI-compatible chat endpoint, streaming, a fixed number of requests at a fixed concurrency. They
need a tokenizer; `tokenizer` makes a small one and offers it as a cached hub entry, so that none goes to the network.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loadgen_truth import Point

TOKENIZER = "scripted/tok"
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Reported:
    """What a client says about a run. None where it does not say. Parsing: from the last byte to the records, where that is done after the load."""

    ttft_p95_ms: float | None
    tpot_p95_ms: float | None
    completed: int | None
    parsing_s: float | None = None
    parsing_cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One load generator."""

    name: str
    program: str
    install: str
    chat: bool
    command: Callable[[Path, str, Point, Path], list[str]]
    read: Callable[[Path], Reported]

    def installed(self, peers: Path) -> bool:
        """Is its environment there?"""
        return not self.program or (peers / self.program).exists()


def _only(folder: Path, pattern: str) -> Mapping[str, object]:
    (found,) = sorted(folder.rglob(pattern))[-1:]
    told: Mapping[str, object] = json.loads(found.read_text())
    return told


def _number(told: object, *path: str) -> float | None:
    for step in path:
        if not isinstance(told, Mapping) or step not in told:
            return None
        told = told[step]
    return float(told) if isinstance(told, int | float) else None


# ---------------------------------------------------------------- ours


def _ours(_: Path, url: str, point: Point, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "benchmarks.loadgen_ours", url),
        *("--concurrency", str(point.concurrency), "--requests", str(point.requests)),
        *("--output-tokens", str(point.tokens), "--out", str(out)),
    ]


def _read_ours(out: Path) -> Reported:
    told = _only(out, "ours.json")
    ttft, tpot, completed = (_number(told, name) for name in ("ttft_p95_ms", "tpot_p95_ms", "completed"))
    parsing_ns, parsing_cpu_ns = (_number(told, *path) for path in (("parsing_ns",), ("client", "parse_cpu_ns")))
    return Reported(ttft, tpot, int(completed or 0), (parsing_ns or 0.0) / 1e9, (parsing_cpu_ns or 0.0) / 1e9)


# ---------------------------------------------------------------- peers


def _vllm(peers: Path, url: str, point: Point, out: Path) -> list[str]:
    program = "import argparse, vllm.benchmarks.serve as s; p = argparse.ArgumentParser(); s.add_cli_args(p); s.main(p.parse_args())"
    return [
        *(str(peers / "vllm/bin/python"), "-c", program),
        *("--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions"),
        *("--model", "scripted", "--tokenizer", TOKENIZER, "--dataset-name", "random", "--ignore-eos"),
        *("--random-input-len", "64", "--random-output-len", str(point.tokens)),
        *("--num-prompts", str(point.requests), "--max-concurrency", str(point.concurrency)),
        *("--percentile-metrics", "ttft,tpot", "--metric-percentiles", "95", "--save-result", "--result-dir", str(out)),
    ]


def _read_vllm(out: Path) -> Reported:
    told = _only(out, "*.json")
    completed = _number(told, "completed")
    return Reported(_number(told, "p95_ttft_ms"), _number(told, "p95_tpot_ms"), int(completed or 0))


def _aiperf(peers: Path, url: str, point: Point, out: Path) -> list[str]:
    return [
        *(str(peers / "aiperf/bin/aiperf"), "profile", "--model", "scripted", "--url", url, "--endpoint-type", "chat"),
        *("--streaming", "--tokenizer", TOKENIZER, "--concurrency", str(point.concurrency)),
        *("--request-count", str(point.requests), "--synthetic-input-tokens-mean", "64"),
        *("--output-tokens-mean", str(point.tokens), "--output-tokens-stddev", "0"),
        *("--output-artifact-dir", str(out), "--ui", "none"),
    ]


def _read_aiperf(out: Path) -> Reported:
    told = _only(out, "profile_export_aiperf.json")
    ttft, tpot = _number(told, "time_to_first_token", "p95"), _number(told, "inter_token_latency", "p95")
    return Reported(ttft, tpot, int(_number(told, "request_count", "avg") or 0))


def _guidellm(peers: Path, url: str, point: Point, out: Path) -> list[str]:
    return [
        *(str(peers / "guidellm/bin/guidellm"), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={url},model=scripted"),
        *("--profile", f"kind=concurrent,streams={point.concurrency}"),
        *("--constraint", f"kind=max_requests,count={point.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={TOKENIZER}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={point.tokens}"),
        *("--output", f"kind=json,path={out / 'guidellm.json'}"),
    ]


def _read_guidellm(out: Path) -> Reported:
    told = _only(out, "guidellm.json")
    runs = told.get("benchmarks")
    metrics = runs[0].get("metrics") if isinstance(runs, list) and runs else None
    where = ("successful", "percentiles", "p95")
    return Reported(
        _number(metrics, "time_to_first_token_ms", *where),
        _number(metrics, "time_per_output_token_ms", *where),
        int(_number(metrics, "request_totals", "successful") or 0),
    )


def _inference_perf(peers: Path, url: str, point: Point, out: Path) -> list[str]:
    waves = point.requests // point.concurrency
    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "synthetic",
            "input_distribution": {"min": 64, "max": 64, "mean": 64, "std_dev": 0, "total_count": point.requests},
            "output_distribution": {
                "min": point.tokens,
                "max": point.tokens,
                "mean": point.tokens,
                "std_dev": 0,
                "total_count": point.requests,
            },
        },
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": point.requests, "concurrency_level": point.concurrency}],
            "num_workers": 1,
            "worker_max_concurrency": point.concurrency * waves,
        },
        "server": {"type": "vllm", "model_name": "scripted", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": TOKENIZER},
        "storage": {"local_storage": {"path": str(out)}},
    }
    path = out / "config.yml"
    path.write_text(json.dumps(config))
    return [str(peers / "infperf/bin/inference-perf"), "-c", str(path)]


def _read_inference_perf(out: Path) -> Reported:
    told = _only(out, "*summary_lifecycle_metrics.json")
    latency = ("successes", "latency")
    ttft = _number(told, *latency, "time_to_first_token", "p95")
    tpot = _number(told, *latency, "time_per_output_token", "p95")
    count = _number(told, "successes", "count")
    return Reported(None if ttft is None else ttft * 1000, None if tpot is None else tpot * 1000, int(count or 0))


CLIENTS = (
    Client("servegate", "", "(this repository)", False, _ours, _read_ours),
    Client(
        "vllm bench serve",
        "vllm/bin/python",
        "pip install --no-deps vllm; pip install torch==2.13.0 and what `import vllm.benchmarks.serve` then asks for",
        True,
        _vllm,
        _read_vllm,
    ),
    Client("aiperf", "aiperf/bin/aiperf", "pip install aiperf", True, _aiperf, _read_aiperf),
    Client("guidellm", "guidellm/bin/guidellm", "pip install guidellm", True, _guidellm, _read_guidellm),
    Client(
        "inference-perf",
        "infperf/bin/inference-perf",
        "pip install inference-perf  (Python 3.12; folder infperf)",
        False,
        _inference_perf,
        _read_inference_perf,
    ),
)


def version_of(client: Client, peers: Path) -> str:
    """The installed version, from the metadata in its environment."""
    if not client.program:
        from servegate_action import __version__

        return __version__
    package = {"vllm bench serve": "vllm", "inference-perf": "inference_perf"}.get(client.name, client.name)
    root = peers / client.program.split("/", maxsplit=1)[0]
    names = [path.name for path in root.glob(f"lib/python3*/site-packages/{package}-*.dist-info")]
    found = re.fullmatch(rf"{package}-(.+)\.dist-info", names[0]) if names else None
    return found[1] if found else "unknown"
