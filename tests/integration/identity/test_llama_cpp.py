"""A real engine: the same stack is proven the same, and each way of being another one is seen.

llama.cpp with the demo's model (135M parameters, Q4_1) on one thread; prompts and answers are short, because the point is
whether two stacks differ, not how fast they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from servegate_action import client, demo, identity, load
from servegate_action.config.stacks import ProcessStack, ServedModel, Stack
from servegate_action.launch.ports import reserved_port
from servegate_action.records import Absent, Dialect, Evidence, LogprobComparison, StackIdentity
from tests.support import requantize

pytestmark = pytest.mark.engine
PROMPTS = identity.probe_prompts(6)
TOKENS = 6
DIALECT = Dialect(
    api="completions",
    served_model="m",
    stream_options=True,
    ignore_eos=True,
    min_tokens=False,
    max_tokens_field="max_tokens",
)


@dataclass(frozen=True, slots=True)
class Served:
    """A running stack."""

    url: str
    command: tuple[str, ...]

    def identify(self, *, configured: Path | None = None, batch_size: int | None = None) -> StackIdentity:
        return identity.identify(
            identity.Subject(
                stack=Stack(label="x", process=ProcessStack(command=(*self.command[:3], "{port}"))),
                model=ServedModel(name="smollm2", batch_size=batch_size),
                base_url=self.url,
                command=self.command,
                container_digest=Absent(absent="no container"),
                configured=configured,
            )
        )

    def answers(self, prompts: Sequence[str] = PROMPTS) -> tuple[str, ...]:
        target = load.Target(base_url=self.url, dialect=DIALECT, headers={})
        return tuple(load.complete(target, prompt, output_tokens=TOKENS).text for prompt in prompts)

    def answers_together(self, prompts: Sequence[str]) -> tuple[str, ...]:
        target = load.Target(base_url=self.url, dialect=DIALECT, headers={})
        told = load.complete_together(target, prompts, output_tokens=TOKENS, at_once=4)
        return tuple(answer.text for answer in told)

    def logprobs(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        target = load.Target(base_url=self.url, dialect=DIALECT, headers={})
        told = [load.complete_with_logprobs(target, prompt, output_tokens=TOKENS) for prompt in PROMPTS]
        assert not any(isinstance(one, Absent) for one in told), told
        return tuple(one for one in told if not isinstance(one, Absent))


Start = Callable[..., Served]


@pytest.fixture(scope="module")
def model() -> Path:
    path = demo.model_path()
    if path is None:
        pytest.skip("the demo set is not installed: scripts/bootstrap demo")
    return path


@contextmanager
def engine(model: Path, *flags: str) -> Iterator[Served]:
    with reserved_port() as port:
        pass
    own = ("--model", str(model), "--port", str(port), "--threads", "1", "--parallel", "2", "--ctx", "256")
    command = (sys.executable, "-m", "servegate_action.demo.server", *own, *flags)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while not getattr(client.get_text(f"{url}/health"), "ok", False):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Served(url, command)
    finally:
        child.kill()
        child.wait()


@pytest.fixture(scope="module")
def start(model: Path) -> Iterator[Start]:
    """Starts an engine once per set of flags; all end with the module."""
    with ExitStack() as running:
        known: dict[tuple[str, ...], Served] = {}

        def one(*flags: str, weights: Path | None = None) -> Served:
            key = (str(weights or model), *flags)
            if key not in known:
                known[key] = running.enter_context(engine(weights or model, *flags))
            return known[key]

        yield one


@pytest.fixture(scope="module")
def baseline(start: Start) -> Served:
    return start()


@pytest.fixture(scope="module")
def baseline_answers(baseline: Served) -> tuple[str, ...]:
    return baseline.answers()


@pytest.fixture(scope="module")
def requantized(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return requantize.to_q8_0(model, tmp_path_factory.mktemp("q8") / "SmolLM2-135M-Instruct.Q8_0.gguf")


def test_the_same_file_on_both_sides_is_proven_the_same(baseline: Served, start: Start, model: Path) -> None:
    one = baseline.identify(configured=model, batch_size=2)
    other = start("--metrics").identify(configured=model, batch_size=2)
    assert one.model == other.model
    assert one.quantization == other.quantization
    assert one.batch == other.batch
    assert (one.engine, one.quantization.weights, one.quantization.kv_cache, one.batch.cap) == (
        "llama.cpp",
        "q4_1",
        "fp16",
        2,
    )
    assert {one.model.evidence, one.quantization.evidence, one.batch.evidence} == {Evidence.PROVEN}
    assert one.contradictions == other.contradictions == ()


def test_the_same_stack_gives_the_same_answers(baseline: Served, baseline_answers: tuple[str, ...]) -> None:
    found = identity.compare_answers(baseline_answers, baseline.answers(), baseline.answers())
    assert found.passed, found.reason
    assert found.cross_match == 1.0


def test_log_probabilities_tell_other_weights_from_the_same(baseline: Served, start: Start, requantized: Path) -> None:
    """The same server repeats itself; the same weights in another format shift every probability a little."""
    once, again = baseline.logprobs(), baseline.logprobs()
    assert sum(map(len, once)) == TOKENS * len(PROMPTS)
    other = identity.compare_logprobs(once, again, start(weights=requantized).logprobs())
    assert isinstance(other, LogprobComparison)
    assert other.own_mean_difference < 1e-3 < other.mean_difference
    assert other.same_tokens <= other.tokens


def test_a_requantized_model_is_another_one(baseline: Served, start: Start, model: Path, requantized: Path) -> None:
    one = baseline.identify()
    other = start(weights=requantized).identify(configured=model)
    assert (one.quantization.weights, other.quantization.weights) == ("q4_1", "q8_0")
    assert one.model.digest != other.model.digest
    assert other.quantization.evidence is Evidence.PROVEN
    assert other.contradictions == (
        f"the stack serves {requantized}, the configuration names {model}, and their contents differ",
    )


def test_a_relabelled_model_is_not_believed(baseline: Served, start: Start, model: Path, tmp_path: Path) -> None:
    path = requantize.relabelled(model, tmp_path / "SmolLM2.Q8_0.gguf")
    found = start(weights=path).identify()
    assert found.quantization.weights == "q4_1"
    assert found.contradictions[0] == "the file calls itself q8_0, but most of its weights are q4_1"


def test_another_type_of_the_kv_cache_is_another_quantization(baseline: Served, start: Start) -> None:
    other = start("--cache-type-k", "q8_0").identify()
    assert baseline.identify().quantization != other.quantization
    assert other.quantization.kv_cache == "k=q8_0,v=fp16"
    assert other.quantization.evidence is Evidence.PROVEN


def test_another_number_of_slots_is_another_batch(baseline: Served, start: Start) -> None:
    other = start("--parallel", "4").identify(batch_size=2)
    assert (baseline.identify().batch.cap, other.batch.cap, other.batch.evidence) == (2, 4, Evidence.PROVEN)
    assert other.contradictions == (
        "the configuration declares a batch size of 2, but the server's cap is 4 (/props total_slots)",
    )


def test_a_model_with_layers_cut_off_gives_other_answers(
    baseline_answers: tuple[str, ...], start: Start, model: Path, tmp_path: Path
) -> None:
    path = requantize.without_layers(model, tmp_path / model.name, keep=24)
    found = identity.compare_answers(baseline_answers, baseline_answers, start(weights=path).answers())
    assert not found.passed
    assert "are needed" in found.reason


def test_a_stack_that_forces_sampling_gives_other_answers(baseline: Served, baseline_answers: tuple[str, ...]) -> None:
    with meddling(baseline.url, temperature=2.0, seed=7) as url:
        found = identity.compare_answers(baseline_answers, baseline_answers, Served(url, ()).answers())
    assert not found.passed
    assert found.cross_match < 0.5


def test_a_stack_behind_an_honest_proxy_gives_the_same_answers(
    baseline: Served, baseline_answers: tuple[str, ...]
) -> None:
    with meddling(baseline.url) as url:
        assert identity.compare_answers(baseline_answers, baseline_answers, Served(url, ()).answers()).passed


def test_a_stack_that_loses_the_beginning_of_a_long_context_answers_only_short_prompts_alike(
    baseline: Served, baseline_answers: tuple[str, ...]
) -> None:
    long = identity.long_prompts(4, words=80)
    whole = baseline.answers(long)
    with meddling(baseline.url, last_words=50) as url:
        cut = Served(url, ())
        assert identity.compare_answers(baseline_answers, baseline_answers, cut.answers()).passed
        found = identity.compare_answers(whole, whole, cut.answers(long))
    assert not found.passed, found.reason


def test_the_same_stack_gives_the_same_answers_to_many_at_once(baseline: Served) -> None:
    many = (*PROMPTS, *identity.long_prompts(4, words=80))
    first, again, third = (baseline.answers_together(many) for _ in range(3))
    found = identity.compare_answers(first, again, third)
    assert found.passed, found.reason


@contextmanager
def meddling(url: str, *, last_words: int = 0, **forced: object) -> Iterator[str]:
    """A proxy that changes fields of each request's body, or keeps only the last words of a prompt (0 = all)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | forced
            body["prompt"] = " ".join(body["prompt"].split(" ")[-last_words:])
            request = urllib.request.Request(
                url + self.path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                data = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
