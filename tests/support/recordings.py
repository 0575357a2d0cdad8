"""Made-up recordings of runs, deterministic and complete, for tests that judge and render.

A `Scene` says what happened: which machine, how much slower or faster the candidate is and where, how noisy launches
are, and what went wrong. `build` plays it: closed-loop slots that send requests, tokens at an even pace, telemetry twice
a second, cold starts, releases, identities. The two stacks of a round replay the same request list with the same
per-request difficulty, as real rounds do. Nothing in here reads a clock or an entropy source.

`passing()`, `rejecting()`, `inconclusive()`, `invalid()` and the others at the end are ready-made scenes.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from servegate_action.analysis.checklist import judge
from servegate_action.analysis.judgement import Judgement
from servegate_action.analysis.metrics import LaunchData
from servegate_action.config.models import Config
from servegate_action.records import (
    Absent,
    AnswersCompared,
    BatchIdentity,
    CellPlan,
    CellRun,
    Certificate,
    Change,
    ClientHealth,
    ClockAnchor,
    ColdStart,
    DeviceSample,
    DeviceStatic,
    Dialect,
    Evidence,
    Failure,
    Host,
    IdleBlock,
    LaunchRecord,
    LaunchState,
    LogprobComparison,
    ModelIdentity,
    NumericsProbe,
    Plan,
    Quantization,
    Recording,
    Release,
    RequestRecord,
    Side,
    StackIdentity,
    StampSource,
    TelemetrySample,
    TelemetryStatic,
    TokenSource,
)

S = 1_000_000_000
MS = 1_000_000
UUID = "GPU-5d1f0c3a-0000-4000-8000-000000000001"
RAPL = "cpu-0"
TICK = S // 2
BARE_MW = 72_000
SERVER_PID = 4321


@dataclass(frozen=True, slots=True)
class SceneCell:
    """One operating point. `rate` makes it open loop; times are the baseline's."""

    id: str
    concurrency: int | None
    prompt_tokens: int = 512
    output_tokens: int = 32
    requests: int = 200
    weight: float = 1.0
    ttft_ms: float = 80.0
    tpot_ms: float = 10.0
    rate: float | None = None

    @property
    def name(self) -> str:
        return self.id.split("/")[0].split("@")[0]


CELLS = (
    SceneCell("chat/1", 1, weight=3.0, ttft_ms=40, tpot_ms=8, requests=100),
    SceneCell("chat/4", 4, weight=3.0, ttft_ms=80, tpot_ms=10, requests=100),
    SceneCell("long/2", 2, prompt_tokens=4000, weight=1.0, ttft_ms=300, tpot_ms=14, requests=100),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What happened. Factors multiply the candidate's times: above 1 is slower."""

    cells: tuple[SceneCell, ...] = CELLS
    accelerator: Literal["nvidia", "cpu"] = "nvidia"
    rounds: int = 4
    looks: tuple[int, ...] = (4, 6, 8)
    noise: float = 0.003
    request_noise: float = 0.01
    ttft_factor: float = 1.0
    tpot_factor: float = 1.0
    cell_tpot_factor: Mapping[str, float] = field(default_factory=dict)
    cell_ttft_factor: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[Side, int] = field(default_factory=dict)
    utilization: Mapping[Side, float] = field(default_factory=lambda: {Side.BASELINE: 96.0, Side.CANDIDATE: 96.0})
    quantization: Mapping[Side, str] = field(default_factory=lambda: {Side.BASELINE: "bf16", Side.CANDIDATE: "bf16"})
    model_digest: Mapping[Side, str] = field(
        default_factory=lambda: {Side.BASELINE: "a" * 64, Side.CANDIDATE: "a" * 64}
    )
    batch_cap: Mapping[Side, int] = field(default_factory=lambda: {Side.BASELINE: 64, Side.CANDIDATE: 64})
    extra_prompt_tokens: int = 0
    throttle_reasons: int = 0
    cold_start_s: Mapping[Side, float] = field(default_factory=lambda: {Side.BASELINE: 38.0, Side.CANDIDATE: 45.0})
    release_real: bool = True
    cost: bool = True
    scale_to_zero: bool = False
    requests_per_hour: float = 900.0
    electricity: bool = True
    migration: bool = False
    slo_ttft_p95_ms: float | None = None
    slo_tpot_p95_ms: float | None = None
    limits: Mapping[str, object] = field(default_factory=dict)
    endpoint: bool = False
    prompt_offset: float = 0.0
    numerics_passed: bool = True
    certificate_passed: bool = True
    state: Literal["running", "finished", "failed", "cancelled"] = "finished"
    last_launch: LaunchState = LaunchState.COMPLETE
    voided_round: int | None = None
    seed: int = 11


@dataclass(frozen=True, slots=True)
class Built:
    """What a judge is given."""

    config: Config
    recording: Recording
    data: dict[str, LaunchData]


def build(scene: Scene) -> Built:
    """Play the scene. Records are immutable, so that equal scenes may share them; `data` is the caller's own."""
    played = _built(_ByText(scene))
    return Built(played.config, played.recording, dict(played.data))


def judged(scene: Scene) -> Judgement:
    """The judgement of a scene that ran undisturbed."""
    return _judged(_ByText(scene))


class _ByText:
    """A scene as a key: scenes hold mappings, which have no hash, and are equal when they read the same."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.text = repr(scene)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByText) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=64)
def _judged(key: _ByText) -> Judgement:
    built = build(key.scene)
    return judge(built.config, built.recording, built.data)


@lru_cache(maxsize=12)
def _built(key: _ByText) -> Built:
    return _play(key.scene)


def _play(scene: Scene) -> Built:
    order = tuple(
        (Side.BASELINE, Side.CANDIDATE) if number % 2 else (Side.CANDIDATE, Side.BASELINE)
        for number in range(1, scene.looks[-1] + 1)
    )
    clock = 1_000 * S
    launches: list[LaunchRecord] = []
    data: dict[str, LaunchData] = {}
    for number in range(1, scene.rounds + 1):
        attempts = (1, 2) if number == scene.voided_round else (1,)
        for attempt in attempts:
            for position, side in enumerate(order[number - 1], start=1):
                voided = attempt < attempts[-1]
                play = _Play(scene, number, side, attempt)
                last = number == scene.rounds and position == 2
                state = LaunchState.VOIDED if voided else scene.last_launch if last else LaunchState.COMPLETE
                record, files = play.launch(clock, position=1 if position == 1 else 2, state=state)
                launches.append(record)
                data[record.directory] = files
                clock = play.clock + 5 * S
    recording = _recording(scene, order=order, launches=tuple(launches), end_ns=clock)
    return Built(config=_config(scene), recording=recording, data=data)


# ---------------------------------------------------------------- one launch


class _Play:
    """One launch being played; `clock` moves on as things happen."""

    def __init__(self, scene: Scene, number: int, side: Side, attempt: int) -> None:
        self.scene = scene
        self.number = number
        self.side = side
        self.attempt = attempt
        self.clock = 0
        self.random = np.random.default_rng([scene.seed, number, attempt, 0 if side is Side.BASELINE else 1])
        self.requests: list[RequestRecord] = []
        self.busy: list[tuple[int, int, float]] = []

    def launch(self, start_ns: int, *, position: Literal[1, 2], state: LaunchState) -> tuple[LaunchRecord, LaunchData]:
        scene = self.scene
        ready = start_ns + int(scene.cold_start_s[self.side] * S * self._wobble())
        self.busy.append((start_ns, ready, 0.2))
        self.clock = ready + S
        idle = IdleBlock(started_ns=self.clock, ended_ns=self.clock + 10 * S)
        self.clock = idle.ended_ns
        cells = tuple(self._cell(cell) for cell in scene.cells)
        if state in (LaunchState.RUNNING, LaunchState.FAILED):
            cells = cells[:-1]
        directory = f"rounds/{self.number:02d}-{self.side.value}" + (f"-{self.attempt}" if self.attempt > 1 else "")
        record = LaunchRecord(
            round=self.number,
            side=self.side,
            position=position,
            attempt=self.attempt,
            directory=directory,
            state=state,
            reason={LaunchState.VOIDED: "thermal slowdown for 4 s", LaunchState.FAILED: "the server exited"}.get(state),
            cold_start=None if scene.endpoint else self._cold_start(start_ns, ready),
            idle=idle,
            cells=cells,
            release=None if scene.endpoint else self._release(),
        )
        static = telemetry_static(scene.accelerator)
        return record, LaunchData(tuple(self.requests), static, tuple(self._samples(start_ns)))

    def _wobble(self) -> float:
        return float(np.exp(self.random.normal(0.0, self.scene.noise)))

    def _factor(self, cell: SceneCell, general: float, own: Mapping[str, float]) -> float:
        slower = general * own.get(cell.id, 1.0) if self.side is Side.CANDIDATE else 1.0
        return slower * self._wobble()

    def _cell(self, cell: SceneCell) -> CellRun:
        scene = self.scene
        started = self.clock
        ttft = cell.ttft_ms * self._factor(cell, scene.ttft_factor, scene.cell_ttft_factor)
        tpot = cell.tpot_ms * self._factor(cell, scene.tpot_factor, scene.cell_tpot_factor)
        warmup = 2 * (cell.concurrency or 1)
        total = warmup + cell.requests
        # The difficulty of a request is its own: the same on both sides and in every round.
        shared = np.random.default_rng([scene.seed, zlib.crc32(cell.id.encode())])
        first_ms = ttft * np.exp(shared.normal(0.0, 0.15, total)) * self._jitter(total)
        pace_ms = tpot * np.exp(shared.normal(0.0, 0.05, total)) * self._jitter(total)
        due = np.cumsum(shared.exponential(1.0, total))
        slots = [(started, slot) for slot in range(cell.concurrency or total)]
        failing = scene.failed.get(self.side, 0) if cell is scene.cells[0] else 0
        dispatched: list[int] = []
        for index in range(total):
            free, slot = heapq.heappop(slots)
            sent = free if cell.rate is None else started + int(due[index] / cell.rate * S)
            fails = warmup <= index < warmup + failing
            request = self._request(
                cell, index - warmup, sent, float(first_ms[index]), float(pace_ms[index]), fails=fails
            )
            self.requests.append(request.model_copy(update={"slot": slot if cell.rate is None else None}))
            heapq.heappush(slots, (request.end_ns + MS // 10, slot))
            dispatched.append(sent)
        ended = max(request.end_ns for request in self.requests)
        self.busy.append((started, ended, 1.0))
        self.clock = ended + S
        return CellRun(
            cell=cell.id,
            started_ns=started,
            steady_start_ns=dispatched[warmup],
            steady_end_ns=dispatched[-1],
            ended_ns=ended,
            requests=total,
            client=_client(ended - started, requests=total),
        )

    def _jitter(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.exp(self.random.normal(0.0, self.scene.request_noise, count))

    def _request(
        self, cell: SceneCell, index: int, sent: int, first_ms: float, pace_ms: float, *, fails: bool
    ) -> RequestRecord:
        first = sent + int(first_ms * MS)
        stamps = tuple((first + np.arange(cell.output_tokens) * int(pace_ms * MS)).tolist())
        if fails:
            stamps = stamps[: cell.output_tokens // 2]
        extra = self.scene.extra_prompt_tokens if self.side is Side.CANDIDATE else 0
        return RequestRecord(
            id=f"{cell.id}#{index}" if index >= 0 else f"{cell.id}~{-index}",
            cell=cell.id,
            phase="measured" if index >= 0 else "warmup",
            scheduled_ns=sent,
            sent_ns=sent + 20_000,
            first_byte_ns=first,
            token_ns=stamps,
            event_tokens=None,
            first_answer_ns=stamps[0],
            end_ns=stamps[-1] + 100_000,
            requested_output_tokens=cell.output_tokens,
            prompt_tokens=cell.prompt_tokens + (index % 7) + extra,
            output_tokens=None if fails else cell.output_tokens,
            token_source=None if fails else TokenSource.USAGE,
            cached_tokens=0,
            finish_reason=None if fails else "length",
            events=len(stamps) + 3,
            coalesced_reads=0,
            slot=None,
            connection_reused=index > 0,
            ok=not fails,
            error="the stream ended without a finish_reason" if fails else None,
            text_sha256="0" * 64,
        )

    def _cold_start(self, start: int, ready: int) -> ColdStart:
        length = ready - start
        return ColdStart(
            requested_ns=start,
            image_ready_ns=Absent(absent="a process has no image"),
            process_up_ns=start + length // 100,
            port_open_ns=start + length // 2,
            healthy_ns=start + length * 9 // 10,
            first_token_ns=ready,
            page_cache="dropped",
        )

    def _release(self) -> Release:
        real = self.scene.release_real
        return Release(
            trigger="stop",
            waited_ns=2 * S,
            process_gone=True,
            port_closed=True,
            memory_released=real,
            power_released=real if self.scene.accelerator == "nvidia" else Absent(absent="no power counter"),
            real=real,
            reason="released after 2.0 s" if real else "41.2 GiB of GPU memory still held after 30 s",
        )

    def _samples(self, start_ns: int) -> list[TelemetrySample]:
        """Twice a second from the start to the last request: bare, loading, warm idle or busy."""
        scene, samples, energy = self.scene, [], 5_000_000
        span = self.clock - start_ns + 2 * TICK
        for tick in range(span // TICK + 1):
            moment = start_ns + tick * TICK
            load = max((share for begin, end, share in self.busy if begin <= moment < end), default=0.0)
            power = 118_000 + int(492_000 * load) if load != 0.2 else 200_000
            power = BARE_MW if tick == 0 else power
            energy += power * TICK // S
            busy = load == 1.0
            told = tick == 1 and scene.accelerator == "nvidia" and not scene.endpoint
            samples.append(
                TelemetrySample(
                    t_ns=moment,
                    devices=(self._device(moment, power, energy, busy=busy),),
                    stack_processes=(SERVER_PID,) if told else None,
                )
            )
        assert scene.accelerator in ("nvidia", "cpu")
        return samples

    def _device(self, moment: int, power: int, energy: int, *, busy: bool) -> DeviceSample:
        share = self.scene.utilization[self.side] if busy else 0.0
        ripple = 0.4 * float(np.sin(moment / S)) if busy else 0.0
        if self.scene.accelerator == "cpu":
            return DeviceSample(uuid=RAPL, utilization_percent=share + ripple, memory_bytes=3 << 30)
        return DeviceSample(
            uuid=UUID,
            power_mw=power,
            energy_mj=energy,
            utilization_percent=share + ripple,
            memory_bytes=42 << 30,
            sm_clock_mhz=1980,
            temperature_c=61,
            throttle_reasons=self.scene.throttle_reasons if busy else 0,
            ecc_uncorrected=0,
            process_ids=() if power == BARE_MW else (SERVER_PID,),
        )


# ---------------------------------------------------------------- the rest of a recording


def telemetry_static(accelerator: Literal["nvidia", "cpu"]) -> TelemetryStatic:
    """The counters of the made-up machine."""
    if accelerator == "nvidia":
        return TelemetryStatic(
            backend="nvidia",
            devices=(
                DeviceStatic(
                    uuid=UUID,
                    name="NVIDIA H100 80GB HBM3",
                    memory_bytes=80 << 30,
                    power_limit_mw=700_000,
                    max_sm_clock_mhz=1980,
                    mig=Absent(absent="MIG is off"),
                    ecc="on",
                ),
            ),
            driver="580.65.06",
            cuda="13.0",
            energy_counter="nvmlDeviceGetTotalEnergyConsumption",
            power_counter="NVML_FI_DEV_POWER_INSTANT",
            utilization_counter="GPM SM_UTIL",
            memory_counter="nvmlDeviceGetMemoryInfo_v2",
            throttle_counter="nvmlDeviceGetCurrentClocksEventReasons",
            interval_ns=TICK,
        )
    reason = Absent(absent="no RAPL energy counter is readable on this machine")
    nothing = Absent(absent="not a GPU")
    return TelemetryStatic(
        backend="cpu",
        devices=(
            DeviceStatic(
                uuid=RAPL,
                name="AMD EPYC 9R14",
                memory_bytes=8 << 30,
                power_limit_mw=nothing,
                max_sm_clock_mhz=nothing,
                mig=nothing,
                ecc=nothing,
            ),
        ),
        driver=nothing,
        cuda=nothing,
        energy_counter=reason,
        power_counter=reason,
        utilization_counter="CPU share of the stack's process tree",
        memory_counter="resident memory of the stack's process tree",
        throttle_counter=nothing,
        interval_ns=TICK,
    )


def _client(wall_ns: int, *, requests: int) -> ClientHealth:
    return ClientHealth(
        processes=1,
        stamp_source=StampSource.KERNEL,
        reads=requests * 40,
        reads_without_kernel_stamp=0,
        coalesced_reads=requests // 50,
        cpu_ns=wall_ns // 20,
        parse_cpu_ns=wall_ns // 50,
        wall_ns=wall_ns,
        dispatch_lag_p99_ns=300_000,
        clock_offset_drift_ns=1_000,
        peak_rss_bytes=60 << 20,
    )


def _answers(prompts: int, *, passed: bool) -> AnswersCompared:
    return AnswersCompared(
        prompts=prompts,
        self_match=1.0,
        cross_match=0.95 if passed else 0.3,
        self_agreement=1.0,
        cross_agreement=0.99 if passed else 0.4,
        first_divergence_median=Absent(absent="no answer differs") if passed else 12,
        passed=passed,
        reason=f"{prompts - 1} of {prompts} answers are the same" if passed else "14 of 20 answers differ",
    )


def _identity(scene: Scene, side: Side) -> StackIdentity:
    vllm = side is Side.BASELINE
    return StackIdentity(
        engine="vllm" if vllm else "other",
        engine_version="0.33.0" if vllm else Absent(absent="the server does not say"),
        model=ModelIdentity(
            name="meta-llama/Llama-3.1-8B-Instruct",
            digest=scene.model_digest[side],
            files=9,
            size_bytes=16_060_522_240,
            evidence=Evidence.PROVEN,
            source="sha256 of 9 files",
        ),
        quantization=Quantization(
            weights=scene.quantization[side],
            activations="bf16",
            kv_cache="bf16",
            compute="bf16",
            evidence=Evidence.PROVEN,
            source="safetensors header and config.json",
        ),
        batch=BatchIdentity(cap=scene.batch_cap[side], evidence=Evidence.PROVEN, source="/server_info"),
        container_digest="sha256:" + ("b" * 64) if vllm else Absent(absent="a process, not a container"),
        command=("vllm", "serve", "/model", "--max-num-seqs", "64")
        if vllm
        else ("python", "serve.py", "--port", "{port}"),
        read_back={"max_num_seqs": "64"} if vllm else {},
    )


def _recording(
    scene: Scene, *, order: tuple[tuple[Side, Side], ...], launches: tuple[LaunchRecord, ...], end_ns: int
) -> Recording:
    nvidia = scene.accelerator == "nvidia"
    failure = Failure(
        kind="could not measure",
        what="the candidate exited with code 1 in round 2",
        why="CUDA out of memory",
        next_step="read server.log of that launch",
        side=Side.CANDIDATE,
        log_tail=("RuntimeError: CUDA out of memory",),
    )
    return Recording(
        tool_version="0.1.0",
        run_id="1234.1",
        gate="llama-8b-chat",
        anchor=ClockAnchor(monotonic_ns=1_000 * S, wall_ns=1_796_000_000 * S, wall_iso="2026-11-30T10:13:20Z"),
        finished_ns=end_ns if scene.state == "finished" else None,
        operator="ada",
        run_url="https://github.com/acme/serving/actions/runs/1234",
        change=Change(
            repository="acme/serving",
            head_sha="5d6e7f8" + "0" * 33,
            base_sha="1a2b3c4" + "0" * 33,
            number=42,
            policy_from="base commit 1a2b3c4",
        ),
        host=Host(
            hostname="gpu-runner-3",
            kernel="Linux 6.8.0",
            cpu="AMD EPYC 9R14",
            cpus=32,
            memory_bytes=256 << 30,
            cpu_governor="performance",
            load_average=0.4,
            python="3.11.7",
        ),
        accelerator=scene.accelerator,
        floor=TelemetrySample(
            t_ns=900 * S, devices=(DeviceSample(uuid=UUID, power_mw=BARE_MW, memory_bytes=600 << 20),)
        )
        if nvidia
        else None,
        telemetry=telemetry_static(scene.accelerator),
        plan=Plan(
            cells=tuple(
                CellPlan(
                    id=cell.id,
                    name=cell.name,
                    prompt_tokens=cell.prompt_tokens,
                    output_tokens=cell.output_tokens,
                    concurrency=cell.concurrency,
                    rate_per_second=cell.rate,
                    weight=cell.weight,
                    requests=cell.requests,
                    warmup_requests=2 * (cell.concurrency or 1),
                )
                for cell in scene.cells
            ),
            looks=scene.looks,
            order=order,
            workload_sha256="3f9c" + "0" * 60,
            prompt_offset=scene.prompt_offset,
            tokens_per_word=1.0,
            config_sha256="77aa" + "0" * 60,
        ),
        dialect=Dialect(
            api="completions",
            served_model="llama",
            stream_options=True,
            ignore_eos=True,
            min_tokens=True,
            max_tokens_field="max_tokens",
        ),
        identities={side: _identity(scene, side) for side in Side},
        numerics=NumericsProbe(
            alone=_answers(20, passed=scene.numerics_passed),
            long=_answers(8, passed=scene.numerics_passed),
            together=_answers(28, passed=scene.numerics_passed),
            logprobs=LogprobComparison(tokens=256, same_tokens=255, mean_difference=0.0012, own_mean_difference=0.0003),
        ),
        certificates=tuple(
            Certificate(
                concurrency=cell.concurrency or 8,
                events_per_second=1000.0 * (cell.concurrency or 8) / cell.tpot_ms,
                requests=50,
                stamp_error_p99_ns=90_000,
                ttft_error_p95_ns=120_000,
                dispatch_lag_p99_ns=300_000,
                cpu_share=0.12 if scene.certificate_passed else 0.97,
                coalesced_read_share=0.001,
                processes=1,
                stamp_source=StampSource.KERNEL,
                passed=scene.certificate_passed,
                advice="" if scene.certificate_passed else "use more client processes: load.processes: 4",
            )
            for cell in scene.cells
        ),
        launches=launches,
        notes=(),
        state=scene.state,
        failure=failure if scene.state == "failed" else None,
    )


def _config(scene: Scene) -> Config:
    stacks: dict[str, dict[str, object]] = {
        "baseline": {
            "label": "vLLM 0.33",
            "container": {"image": "vllm/vllm-openai@sha256:" + "b" * 64, "gpus": "all"},
        },
        "candidate": {"label": "Luminal build 412", "process": {"command": ["python", "serve.py", "--port", "{port}"]}},
    }
    if scene.endpoint:
        stacks["baseline"] = {"label": "vLLM 0.33", "endpoint": {"url": "http://10.0.0.6:8000"}}
        stacks["candidate"] = {"label": "Luminal build 412", "endpoint": {"url": "http://10.0.0.7:8000"}}
    raw: dict[str, object] = {
        "version": 1,
        "gate": "llama-8b-chat",
        "model": {"name": "meta-llama/Llama-3.1-8B-Instruct", "path": "/srv/models/llama-3.1-8b", "batch_size": 64},
        "stacks": stacks,
        "workload": {"seed": scene.seed, "cells": _config_cells(scene)},
        "rounds": {"min": scene.looks[0], "max": scene.looks[-1]},
        "limits": dict(scene.limits),
        "slo": {"ttft_p95_ms": scene.slo_ttft_p95_ms, "tpot_p95_ms": scene.slo_tpot_p95_ms},
        "cost": _config_cost(scene) if scene.cost else None,
        "accelerator": scene.accelerator,
    }
    return Config.model_validate(raw)


def _config_cells(scene: Scene) -> list[dict[str, object]]:
    cells: list[dict[str, object]] = []
    for name in dict.fromkeys(cell.name for cell in scene.cells):
        own = [cell for cell in scene.cells if cell.name == name]
        cells.append(
            {
                "name": name,
                "prompt_tokens": own[0].prompt_tokens,
                "output_tokens": own[0].output_tokens,
                "concurrency": [cell.concurrency for cell in own if cell.concurrency is not None],
                "rate_per_second": own[0].rate,
                "weight": sum(cell.weight for cell in own),
                "requests": own[0].requests,
            }
        )
    return cells


def _config_cost(scene: Scene) -> dict[str, object]:
    idle: dict[str, object] = {}
    if scene.scale_to_zero:
        idle = {"candidate": {"scale_to_zero": {"after_s": 300}}}
    power = {"electricity_usd_per_kwh": 0.10, "grid_efficiency": 0.60} if scene.electricity else {}
    moving = {"migration": {"hours": 40, "hourly_usd": 120, "horizon_months": 12}} if scene.migration else {}
    return {
        "gpu_hour_usd": 2.50,
        **power,
        "traffic": {"requests_per_hour": scene.requests_per_hour},
        "idle": idle,
        **moving,
    }


# ---------------------------------------------------------------- ready-made scenes


def passing(**changes: object) -> Scene:
    """The candidate is 10 % faster everywhere."""
    return _with(Scene(ttft_factor=0.9, tpot_factor=0.9), changes)


def rejecting(**changes: object) -> Scene:
    """+8 % TPOT in the long cell only; faster elsewhere. Found at the second look."""
    return _with(Scene(rounds=6, ttft_factor=0.97, tpot_factor=0.97, cell_tpot_factor={"long/2": 1.14}), changes)


def inconclusive(**changes: object) -> Scene:
    """All rounds used, launches too noisy to tell."""
    return _with(Scene(rounds=8, noise=0.05), changes)


def invalid(**changes: object) -> Scene:
    """A faster candidate that serves another quantization."""
    return _with(passing(), {"quantization": {Side.BASELINE: "bf16", Side.CANDIDATE: "fp8_e4m3"}, **changes})


def killed(**changes: object) -> Scene:
    """A run that was killed in round 3: two complete rounds, and a launch that never finished."""
    return _with(passing(), {"rounds": 3, "state": "running", "last_launch": LaunchState.RUNNING, **changes})


def nothing_measured(**changes: object) -> Scene:
    """A run that failed before its first launch ended."""
    return _with(passing(), {"rounds": 0, "state": "failed", **changes})


def on_cpu(**changes: object) -> Scene:
    """The passing scene on a machine without a GPU, and without prices."""
    return _with(passing(), {"accelerator": "cpu", "cost": False, **changes})


def _with(scene: Scene, changes: Mapping[str, object]) -> Scene:
    return replace(scene, **changes)  # type: ignore[arg-type]
