"""The whole gate as a user runs it, on stacks of exact speed: verdicts, failures, Ctrl-C, kill, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from servegate_action import store
from servegate_action.errors import ExitCode
from servegate_action.records import LaunchState
from servegate_action.store import RunDirectory

ROOT = Path(__file__).resolve().parents[2]
STACK = ROOT / "tests" / "e2e" / "stack.py"
FAST = ("--ttft-ms", "25", "--tpot-ms", "6")
SLOW = ("--ttft-ms", "50", "--tpot-ms", "12")
LIMIT_S = 120.0


def stack(label: str, *arguments: str, **more: object) -> dict[str, object]:
    command = [sys.executable, str(STACK), "--port", "{port}", *arguments]
    return {"label": label, "process": {"command": command}, "ready_timeout_s": 20, "stop_timeout_s": 2, **more}


def gate_of(baseline: Mapping[str, object], candidate: Mapping[str, object], **more: object) -> dict[str, object]:
    cell = {"name": "chat", "prompt_tokens": 16, "output_tokens": 8, "concurrency": 4, "requests": 80}
    return {
        "version": 1,
        "gate": "exact",
        "model": {"name": "tiny", "revision": "a" * 40, "quantization": "bf16", "batch_size": 4},
        "stacks": {"baseline": baseline, "candidate": candidate},
        "workload": {"seed": 7, "cells": [cell]},
        "rounds": {"min": 2, "max": 2},
        "limits": {"default": "20%", "cells": {"default": "30%"}},
        "numerics": {"prompts": 2, "output_tokens": 4},
        "accelerator": "cpu",
        **more,
    }


@dataclass(slots=True)
class Gate:
    """One `servegate run` in a folder of its own."""

    folder: Path
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.folder / "out")

    def until(self, text: str) -> None:
        """Read what it says until a line begins so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if line.startswith(text):
                return
        raise AssertionError(f"it never said {text!r}: {self.said}")

    def finish(self) -> int:
        """Wait for its end; everything it said is in `said`."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        self.said += [*out.splitlines(), *err.splitlines()]
        return self.process.returncode

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@dataclass(slots=True)
class Bench:
    """Starts gates, and knows which processes belong to them."""

    folder: Path
    started: list[Gate] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, config: Mapping[str, object]) -> Gate:
        (self.folder / "gate.yml").write_text(json.dumps(config))
        place = {"XDG_RUNTIME_DIR": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        environment = {**os.environ, **place, **self.environment}
        command = [sys.executable, "-m", "servegate_action", "run", "-c", "gate.yml", "-o", "out"]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        gate = Gate(self.folder, process)
        self.started.append(gate)
        return gate

    def run(self, config: Mapping[str, object]) -> tuple[int, Gate]:
        gate = self.start(config)
        return gate.finish(), gate

    def run_until_the_machine_keeps_up(self, config: Mapping[str, object]) -> tuple[int, Gate]:
        """Run, and run again (twice at most) when the gate says that this machine was too busy to send on time.

        That answer is the right one on a busy machine; what the stacks are like is seen only without it.
        """
        code, gate = self.run(config)
        for _ in range(2):
            if code != ExitCode.INVALID or "requests were sent late" not in gate.text:
                break
            code, gate = self.run(config)
        return code, gate

    def left(self) -> list[str]:
        """Processes that this bench's gates started and that still run: they carry its folder in their environment."""
        mark = f"XDG_RUNTIME_DIR={self.folder}"
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            try:
                alive = process.info["status"] != psutil.STATUS_ZOMBIE
                carries = mark in (f"{name}={value}" for name, value in process.environ().items())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            named = any(str(self.folder) in word for word in process.info["cmdline"] or ())
            if alive and (carries or named):
                found.append(" ".join(process.info["cmdline"] or ()))
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for gate in made.started:
        if gate.process.poll() is None:
            os.killpg(gate.process.pid, signal.SIGKILL)
            gate.process.wait()


def wait_until_nothing_is_left(bench: Bench, within_s: float) -> list[str]:
    deadline = time.monotonic() + within_s
    while (left := bench.left()) and time.monotonic() < deadline:
        os.sched_yield()
    return left


# ---------------------------------------------------------------- verdicts


def test_a_faster_candidate_passes_and_its_evidence_verifies(bench: Bench) -> None:
    code, gate = bench.run_until_the_machine_keeps_up(gate_of(stack("slow", *SLOW), stack("fast", *FAST)))
    assert code == ExitCode.PASS, gate.text
    verdict = json.loads(gate.directory.read_text(store.VERDICT))
    assert verdict["word"] == "PASS"
    assert verdict["rounds_used"] == 2
    command = [sys.executable, "-m", "servegate_action", "verify", "out"]
    done = subprocess.run(command, cwd=bench.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == ExitCode.PASS
    assert bench.left() == []


def test_a_slower_candidate_is_rejected_by_name(bench: Bench) -> None:
    code, gate = bench.run_until_the_machine_keeps_up(gate_of(stack("fast", *FAST), stack("slow", *SLOW)))
    assert code == ExitCode.REJECT, gate.text
    assert "REJECT" in gate.text
    rejected = json.loads(gate.directory.read_text(store.VERDICT))["rejected"]
    assert any("TPOT" in one or "tok/s" in one for one in rejected), rejected


def test_other_answers_are_not_comparable_whatever_the_speed(bench: Bench) -> None:
    code, gate = bench.run(gate_of(stack("slow", *SLOW), stack("fast", *FAST, "--shout")))
    assert code == ExitCode.INVALID, gate.text
    assert "answers" in gate.text
    recording = gate.directory.recording()
    assert not [one for one in recording.launches if one.state is LaunchState.COMPLETE], "no round may be paid for"


@pytest.mark.parametrize(
    ("flaw", "says"),
    [
        (("--forget-beyond", "60"), "the answers to long prompts differ: 0% of 4 are the same"),
        (("--muddle",), "the answers to many at once differ: "),
    ],
)
def test_a_candidate_that_answers_well_only_what_is_short_or_alone_is_not_comparable(
    bench: Bench, flaw: tuple[str, ...], says: str
) -> None:
    cell = {"name": "rag", "prompt_tokens": 80, "output_tokens": 8, "concurrency": 4, "requests": 80}
    config = gate_of(stack("slow", *SLOW), stack("fast", *FAST, *flaw), workload={"seed": 7, "cells": [cell]})
    code, gate = bench.run(config)
    assert code == ExitCode.INVALID, gate.text
    judgement = json.loads(gate.directory.read_text(store.VERDICT))
    wrong = {check["name"]: check["detail"] for check in judgement["checks"] if not check["ok"]}
    assert any(says in detail for detail in wrong.values()), wrong
    assert "numerics" not in wrong, "asked alone and shortly it answers as the baseline does"
    recording = gate.directory.recording()
    assert not [one for one in recording.launches if one.state is LaunchState.COMPLETE], "no round may be paid for"


def test_another_quantization_is_not_comparable(bench: Bench) -> None:
    config = gate_of(
        stack("a", *SLOW), stack("b", *FAST), model={"name": "tiny", "revision": "a" * 40, "batch_size": 4}
    )
    stacks = config["stacks"]
    assert isinstance(stacks, dict)
    stacks["baseline"]["quantization"], stacks["candidate"]["quantization"] = "bf16", "fp8"
    code, gate = bench.run(config)
    assert code == ExitCode.INVALID, gate.text
    assert "fp8" in gate.text


def test_a_server_whose_tokenizer_counts_otherwise_than_its_usage_is_noted(bench: Bench) -> None:
    honest, other = stack("honest", *FAST, "--tokenizer", "1"), stack("other", *FAST, "--tokenizer", "0.5")
    code, gate = bench.run(gate_of(honest, other, rounds={"min": 2, "max": 2, "budget_minutes": 0.01}))
    assert code in {ExitCode.INCONCLUSIVE, ExitCode.INVALID}, gate.text
    counted = [note for note in gate.directory.recording().notes if "tokenizer" in note]
    assert counted == ["the candidate's tokenizer counts 16 tokens in 4 answers of chat/4; the measurement counts 32"]


# ---------------------------------------------------------------- scale to zero


def test_a_stack_that_only_says_it_sleeps_pays_for_its_idle_time(bench: Bench) -> None:
    gates = {}
    for name, flags in (("ends", ()), ("keeps", ("--keep",))):
        folder = bench.folder / name
        folder.mkdir()
        asleep = stack(name, *FAST, "--idle-s", "2", "--mib", "200", *flags)
        idle = {"baseline": "keep_warm", "candidate": {"scale_to_zero": {"after_s": 2, "by": "engine"}}}
        cost = {"gpu_hour_usd": 2.0, "traffic": {"requests_per_hour": 6}, "idle": idle}
        rounds = {"min": 2, "max": 2, "budget_minutes": 0.01}
        # side by side: nearly all of their time is waiting for what should be given back
        gates[name] = Bench(folder, bench.started).start(
            gate_of(stack("warm", *SLOW), asleep, rounds=rounds, cost=cost)
        )
    bills = {}
    for name, gate in gates.items():
        assert gate.finish() in {ExitCode.INCONCLUSIVE, ExitCode.INVALID}, gate.text
        verdict = json.loads(gate.directory.read_text(store.VERDICT))
        release = next(one.release for one in gate.directory.recording().launches if one.release is not None)
        bills[name] = (release, verdict["cost"]["candidate"], verdict["cost"]["notes"])
    (ends, real, _), (keeps, unreal, notes) = bills["ends"], bills["keeps"]
    assert ends.real, ends.reason
    assert not keeps.real
    assert (keeps.port_closed, keeps.process_gone, keeps.memory_released) == (True, False, False)
    assert real["share_off"] > 0.9
    assert unreal["share_off"] == 0
    assert unreal["share_warm_idle"] > 0.9
    assert any("its processes are still there" in note for note in notes), notes


# ---------------------------------------------------------------- stacks that fail


def test_a_candidate_that_exits_at_start_cannot_be_measured_and_its_log_is_shown(bench: Bench) -> None:
    code, gate = bench.run(gate_of(stack("good", *FAST), stack("bad", "--refuse")))
    assert code == ExitCode.CANNOT_MEASURE, gate.text
    assert "unknown flag --fast" in gate.text
    recording = gate.directory.recording()
    assert recording.failure is not None
    assert recording.failure.side == "candidate"
    assert "baseline" in recording.identities, "what was learnt of the baseline is kept"
    assert gate.directory.has(store.COMMENT)
    assert bench.left() == []


def test_a_candidate_that_never_gets_ready_is_given_up_within_its_limit(bench: Bench) -> None:
    sleeper = {
        "label": "sleeper",
        "process": {"command": ["sleep", "600"]},
        "env": ["PORT={port}"],
        "ready_timeout_s": 1.5,
        "stop_timeout_s": 1,
    }
    code, gate = bench.run(gate_of(stack("good", *FAST), sleeper))
    assert code == ExitCode.CANNOT_MEASURE, gate.text
    assert "sleeper" in gate.text
    assert bench.left() == []


def test_a_candidate_that_dies_in_the_middle_keeps_the_baselines_data(bench: Bench) -> None:
    code, gate = bench.run(gate_of(stack("good", *FAST), stack("frail", *FAST, "--die-after-requests", "60")))
    assert code == ExitCode.CANNOT_MEASURE, gate.text
    assert "the card is full" in gate.text
    first = next(one for one in gate.directory.recording().launches if one.side == "baseline")
    assert first.state is LaunchState.COMPLETE
    assert len(gate.directory.data(first).requests) >= 80
    assert bench.left() == []


def test_a_candidate_whose_port_is_taken_cannot_be_measured(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        command = [sys.executable, str(STACK), "--port", port]
        stubborn = {"label": "stubborn", "process": {"command": command}, "env": ["PORT={port}"], "ready_timeout_s": 20}
        code, gate = bench.run(gate_of(stack("good", *FAST), stubborn))
    assert code == ExitCode.CANNOT_MEASURE, gate.text
    assert "address already in use" in gate.text
    assert "baseline" in gate.directory.recording().identities


def test_an_endpoints_own_counters_are_read_with_its_key(bench: Bench) -> None:
    bench.environment["SERVER_KEY"] = "opensesame"
    with ExitStack() as running:
        sides = [running.enter_context(served(*FAST, "--metrics-key", "opensesame")) for _ in range(2)]
        stacks = [
            {"label": url, "endpoint": {"url": url, "launches": "fixed", "api_key_env": "SERVER_KEY"}} for url in sides
        ]
        _, gate = bench.run(gate_of(*stacks))
    launches = gate.directory.recording().launches
    assert len(launches) == 4, gate.text
    for launch in launches:
        (run,) = launch.cells
        assert run.server_metrics_after["trtllm:served"] - run.server_metrics_before["trtllm:served"] == run.requests


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """A stack that somebody else started."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    with subprocess.Popen([sys.executable, str(STACK), "--port", str(port), *arguments], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline().startswith(b"serving on")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            one.kill()


# ---------------------------------------------------------------- interrupted


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "checking the candidate"), (signal.SIGINT, "round 1: "), (signal.SIGTERM, "round 1: ")],
    ids=["Ctrl-C in a launch", "Ctrl-C in a round", "SIGTERM in a round"],
)
def test_a_cancelled_run_leaves_nothing_but_its_recording(bench: Bench, number: signal.Signals, moment: str) -> None:
    gate = bench.start(gate_of(stack("a", *SLOW), stack("b", *SLOW)))
    gate.until(moment)
    begun = time.monotonic()
    gate.process.send_signal(number)
    assert gate.finish() == 128 + number, gate.text
    assert time.monotonic() - begun < 30.0, "the runner kills after 10 s; a busy machine gets more"
    assert gate.directory.recording().state == "cancelled"
    assert wait_until_nothing_is_left(bench, 5.0) == []
    assert not list(gate.directory.root.rglob("*.partial"))


def test_a_killed_run_can_be_judged_and_the_next_one_sweeps_up(bench: Bench) -> None:
    gate = bench.start(gate_of(stack("a", *SLOW), stack("b", *SLOW), rounds={"min": 4, "max": 4}))
    gate.until("round 2: ")
    gate.process.kill()
    assert gate.finish() == -signal.SIGKILL
    command = [sys.executable, "-m", "servegate_action", "judge", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    judged = subprocess.run(command, cwd=bench.folder, env=environment, capture_output=True, text=True, check=False)
    assert judged.returncode == ExitCode.INCONCLUSIVE, judged.stderr
    verdict = json.loads(gate.directory.read_text(store.VERDICT))
    assert verdict["word"] == "INCONCLUSIVE"
    rounds = {one.round for one in gate.directory.recording().launches if one.state is LaunchState.COMPLETE}
    assert 1 in rounds
    code, again = bench.run(gate_of(stack("refuses at once", "--refuse"), stack("b", *SLOW)))
    assert code == ExitCode.CANNOT_MEASURE, again.text
    assert "unknown flag --fast" in again.text, "the next run got as far as its own stack"
    assert (bench.folder / "out.1").is_dir(), "the killed run's evidence is moved aside, never written over"
    assert bench.left() == []
