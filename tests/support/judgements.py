"""Whole judgements, made by hand: one per verdict, and a large one. For whoever renders, stores or publishes.

The numbers are invented but consistent with each other (intervals from the per-round values, rows from the metrics), so
that a report made from them reads like a real one. The judging itself is tested elsewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from servegate_action.analysis.headline import Facts, sentence
from servegate_action.analysis.judgement import (
    Change95,
    CostComparison,
    CostItem,
    CurvePoint,
    Difference,
    Direction,
    HardCheck,
    IdentitySummary,
    Judgement,
    LaunchSummary,
    Mark,
    MetricKey,
    MetricVerdict,
    Outcome,
    Phase,
    Quantity,
    Row,
    RowLine,
    Shown,
    SideCost,
    TraceSeries,
    Word,
)
from servegate_action.config.limits import Limit, MetricName
from servegate_action.records import Absent, Change, Evidence, Side

M = MetricName
CELLS = ("chat/1", "chat/16", "chat/64", "rag/16", "long/4")
LEVEL = 0.0225
T_QUANTILE = {4: 3.322, 6: 2.658, 8: 2.436}
MARKS = {Outcome.PASS: Mark.OK, Outcome.REJECT: Mark.BAD}


@dataclass(frozen=True, slots=True)
class Made:
    """A metric to be made up: its baseline, the true change, and the spread from round to round."""

    metric: MetricName
    cell: str | None
    unit: str
    baseline: float
    change: float
    spread: float
    limit: Limit
    gated: bool = True
    copy_of: MetricKey | None = None
    requests: int | None = None


def higher(metric: MetricName) -> bool:
    """Whether more of it is better."""
    return metric in {M.TOKENS_PER_GPU_HOUR, M.DECODE_TOKENS_PER_SECOND, M.GPU_UTILIZATION, M.TOKENS_PER_SECOND}


def metric_verdict(made: Made, *, rounds: int, dice: random.Random, outcome: Outcome | None = None) -> MetricVerdict:
    """A metric whose statistics follow from its made-up rounds."""
    points = made.limit.unit == "points"
    pairs = []
    for _ in range(rounds):
        base = made.baseline * math.exp(dice.gauss(0, made.spread))
        wobble = dice.gauss(0, made.spread)
        pairs.append(
            (base, base + 100 * (made.change + wobble) if points else base * math.exp(math.log1p(made.change) + wobble))
        )
    changes = [b - a if points else math.log(b / a) for a, b in pairs]
    mean, spread = fmean(changes), stdev(changes)
    half = T_QUANTILE[rounds] * spread / math.sqrt(rounds)
    edges = [value if points else math.expm1(value) for value in (mean, mean - half, mean + half)]
    worse = [-part if higher(made.metric) else part for part in (mean, mean - half, mean + half)]
    allowed = made.limit.value if points else math.log1p(made.limit.value)
    if outcome is None:
        outcome = Outcome.PASS if max(worse) < allowed else Outcome.SUSPECT if worse[0] > allowed else Outcome.UNCERTAIN
        outcome = Outcome.REJECT if min(worse) > allowed / 2 and worse[0] > allowed else outcome
    return MetricVerdict(
        key=MetricKey(metric=made.metric, cell=made.cell),
        unit=made.unit,
        direction=Direction.HIGHER if higher(made.metric) else Direction.LOWER,
        baseline=fmean(a for a, _ in pairs) if points else math.exp(fmean(math.log(a) for a, _ in pairs)),
        candidate=fmean(b for _, b in pairs) if points else math.exp(fmean(math.log(b) for _, b in pairs)),
        per_round=tuple(pairs),
        requests=made.requests,
        change=Change95(
            point=edges[0],
            low=edges[1],
            high=edges[2],
            level=1 - 2 * LEVEL,
            rounds=rounds,
            unit="points" if points else "ratio",
        ),
        limit=made.limit,
        gated=made.gated,
        why_not_gated=None if made.gated else "neither stack saturates the device",
        outcome=outcome,
        p_value=0.5 if outcome is not Outcome.REJECT else 0.0004,
        p_adjusted=1.0 if outcome is not Outcome.REJECT else 0.0072,
        counted_with=made.copy_of,
        worse_within_allowance=min(worse) > 0 and outcome is Outcome.PASS,
        better=max(worse) < 0,
        noise_sd=spread,
        detectable=allowed + 0.5 * spread if points else math.expm1(allowed + 0.5 * spread),
        projected_rounds=10 if outcome in {Outcome.SUSPECT, Outcome.UNCERTAIN} else None,
    )


def metrics(
    changes: dict[tuple[MetricName, str | None], float], *, rounds: int, spread: float, cells: Sequence[str] = CELLS
) -> tuple[MetricVerdict, ...]:
    """All metrics of a run: the mix and each cell."""
    dice = random.Random(7)
    per_cell = {
        "chat/1": (118, 96, 8.3),
        "chat/16": (1460, 212, 10.6),
        "chat/64": (3890, 498, 15.9),
        "rag/16": (702, 1840, 21.7),
        "long/4": (121, 5920, 31.2),
    }
    gpu_hour = MetricKey(metric=M.TOKENS_PER_GPU_HOUR)
    made = [
        Made(M.TOKENS_PER_GPU_HOUR, None, "tok/GPU-h", 8_640_000, 0.031, spread, Limit(value=0.02)),
        Made(M.DECODE_TOKENS_PER_SECOND, None, "tok/s", 2612, 0.024, spread, Limit(value=0.02)),
        Made(M.TTFT_P95, None, "ms", 1480, -0.012, 2 * spread, Limit(value=0.05), requests=1000),
        Made(M.TPOT_P95, None, "ms", 24.3, -0.006, spread, Limit(value=0.03), requests=1000),
        Made(M.TTFT_P95_WITH_COLD_STARTS, None, "s", 1.61, 0.004, 2 * spread, Limit(value=0.05), requests=1000),
        Made(M.GPU_UTILIZATION, None, "%", 91.4, 0.004, spread / 2, Limit(value=2, unit="points")),
        Made(
            M.COST_PER_1M_OUTPUT_TOKENS, None, "USD/1M tok", 0.412, -0.03, spread, Limit(value=0.02), copy_of=gpu_hour
        ),
    ]
    for cell in cells:
        speed, first, gap = per_cell.get(cell, (500, 400, 12.0))
        made += [
            Made(M.TOKENS_PER_SECOND, cell, "tok/s", speed, 0.02, spread, Limit(value=0.03)),
            Made(M.TTFT_P95, cell, "ms", first, -0.01, 2 * spread, Limit(value=0.10), requests=200),
            Made(M.TPOT_P95, cell, "ms", gap, -0.008, spread, Limit(value=0.05), requests=200),
        ]
    chosen = [
        Made(
            **{
                **{f: getattr(one, f) for f in Made.__dataclass_fields__},
                "change": changes.get((one.metric, one.cell), one.change),
            }
        )
        for one in made
    ]
    return tuple(metric_verdict(one, rounds=rounds, dice=dice) for one in chosen)


LABELS = {
    M.TOKENS_PER_GPU_HOUR: "tokens per GPU-hour",
    M.DECODE_TOKENS_PER_SECOND: "decode tok/s",
    M.TTFT_P95: "p95 TTFT",
    M.TPOT_P95: "p95 TPOT",
    M.TTFT_P95_WITH_COLD_STARTS: "p95 TTFT with cold starts",
    M.GPU_UTILIZATION: "GPU utilization",
    M.COST_PER_1M_OUTPUT_TOKENS: "cost per 1M output tokens",
    M.TOKENS_PER_SECOND: "output tok/s",
}


def line_of(verdict: MetricVerdict, *, note: str = "") -> RowLine:
    """The checklist line of one metric."""

    def shown(value: float | Absent) -> Shown:
        return value if isinstance(value, Absent) else Quantity(value=value, unit=verdict.unit, note=note)

    return RowLine(
        label=LABELS[verdict.key.metric],
        cell=verdict.key.cell,
        baseline=shown(verdict.baseline),
        candidate=shown(verdict.candidate),
        change=verdict.change,
        allowed=verdict.limit if verdict.gated else None,
        verdict=verdict.outcome.value if verdict.gated else "shown",
        mark=(MARKS.get(verdict.outcome, Mark.OPEN) if verdict.gated else Mark.INFO),
    )


def fact(
    label: str, baseline: str, candidate: str, verdict: str, mark: Mark, *, allowed: str | None = "equal"
) -> RowLine:
    """A checklist line without numbers."""
    return RowLine(
        label=label,
        baseline=baseline,
        candidate=candidate,
        change=Absent(absent="not a number"),
        allowed=allowed,
        verdict=verdict,
        mark=mark,
    )


def rows(all_metrics: Sequence[MetricVerdict], word: Word, *, quantization: str = "bf16") -> tuple[Row, ...]:
    """The eight rows, from the metrics."""
    by_key = {(one.key.metric, one.key.cell): one for one in all_metrics}
    worst_first = [Mark.BAD, Mark.OPEN, Mark.OK, Mark.INFO]

    def row(number: int, title: str, lines: Sequence[RowLine], *notes: str) -> Row:
        ordered = sorted(lines, key=lambda line: worst_first.index(line.mark))
        return Row(number=number, title=title, mark=ordered[0].mark, lines=tuple(ordered), notes=notes)

    def mix(metric: MetricName, note: str = "") -> RowLine:
        return line_of(by_key[metric, None], note=note)

    tails = [
        line_of(one) for one in all_metrics if one.key.metric in {M.TTFT_P95, M.TPOT_P95, M.TTFT_P95_WITH_COLD_STARTS}
    ]
    speeds = [line_of(one) for one in all_metrics if one.key.metric is M.TOKENS_PER_SECOND]
    same = quantization == "bf16"
    regressed = [one for one in all_metrics if one.outcome is Outcome.REJECT]
    undecided = [one for one in all_metrics if one.outcome in {Outcome.SUSPECT, Outcome.UNCERTAIN}]
    last = Mark.BAD if regressed or word is Word.INVALID else Mark.OPEN if undecided else Mark.OK
    effective = RowLine(
        label="effective tokens per GPU-hour",
        baseline=Quantity(value=381_000, unit="tok/GPU-h", note="billed hours"),
        candidate=Quantity(value=377_400, unit="tok/GPU-h", note="billed hours"),
        change=Absent(absent="follows from the declared traffic"),
        allowed=None,
        verdict="shown",
        mark=Mark.INFO,
    )
    return (
        row(
            1,
            "Same model, quantization, batch size",
            [
                fact("quantization", "bf16", quantization, "proven", Mark.OK if same else Mark.BAD),
                fact(
                    "model",
                    "Llama-3.1-8B-Instruct 9c1f4e2d77ab",
                    "Llama-3.1-8B-Instruct 9c1f4e2d77ab",
                    "proven",
                    Mark.OK,
                ),
                fact("batch size", "64", "64", "declared", Mark.OK),
            ],
        ),
        row(2, "Tokens per GPU-hour", [mix(M.TOKENS_PER_GPU_HOUR), *speeds, effective]),
        row(
            3,
            "GPU utilization",
            [mix(M.GPU_UTILIZATION, "NVML utilization.gpu")],
            "share of time with any kernel running, not occupancy",
        ),
        row(4, "Decode tok/s", [mix(M.DECODE_TOKENS_PER_SECOND)]),
        row(5, "p95 TTFT and p95 TPOT", tails),
        row(6, "Cost per 1M tokens", [mix(M.COST_PER_1M_OUTPUT_TOKENS)]),
        row(
            7,
            "Against the current stack, same run, same GPU",
            [fact("interleaved", "4 launches", "4 launches", "shown", Mark.OK, allowed=None)],
        ),
        row(
            8,
            "No metric regressed",
            [
                fact(
                    "gated metrics",
                    "–",
                    f"{len(regressed)} of 18 regressed",
                    "REJECT" if regressed else "PASS" if last is Mark.OK else "open",
                    last,
                    allowed="none",
                )
            ],
        ),
    )


def cost() -> CostComparison:
    """A bill with idle time, cold starts and power."""

    def side(factor: float, policy: str, warm: float) -> SideCost:
        items = (
            CostItem(name="busy", usd_per_month=262.4 * factor, usd_per_1m_output=0.289 * factor),
            CostItem(name="warm idle", usd_per_month=1562.6 * warm, usd_per_1m_output=4.72 * warm),
            CostItem(name="loading", usd_per_month=31.0 * (1 - warm), usd_per_1m_output=0.09 * (1 - warm)),
            CostItem(name="power", usd_per_month=18.3 * factor, usd_per_1m_output=0.055 * factor),
            CostItem(name="migration", usd_per_month=400.0 * (factor - 1), usd_per_1m_output=1.21 * (factor - 1)),
        )
        return SideCost(
            busy_only_per_1m_output=0.289 * factor,
            per_1m_output=sum(item.usd_per_1m_output for item in items),
            per_1m_total=sum(item.usd_per_1m_output for item in items) / 3,
            usd_per_month=sum(item.usd_per_month for item in items),
            items=items,
            effective_tokens_per_gpu_hour=381_000 / factor,
            share_busy=0.14,
            share_warm_idle=0.86 * warm,
            share_loading=0.02 * (1 - warm),
            share_off=0.84 * (1 - warm),
            idle_policy=policy,
            tokens_per_joule_board=3.93 / factor,
            tokens_per_joule_grid=2.36 / factor,
            kwh_per_month_board=86.1,
            kwh_per_month_grid=Absent(absent="grid_efficiency is not declared"),
        )

    rates = [10 * 10 ** (step / 8) for step in range(25)]
    return CostComparison(
        baseline=side(1.0, "keep warm", 1.0),
        candidate=side(1.08, "scale to zero after 300 s", 0.31),
        requests_per_hour=900,
        traffic="900 requests per hour, Poisson",
        break_even_requests_per_hour=56.5,
        break_even_sentence="Below 56.5 requests per hour the candidate is cheaper; the declared 900 lie 16 times above.",
        fragile=False,
        payback_tokens=4.2e10,
        migration_usd=4800,
        curve=tuple(
            CurvePoint(
                requests_per_hour=rate,
                baseline_per_1m_output=2.5e6 / (rate * 512) + 0.289,
                candidate_per_1m_output=1.5e6 / (rate * 512) + 0.476 + 3 * rate / (rate + 100),
            )
            for rate in rates
        ),
        notes=("Power is priced at the grid: 0.10 USD/kWh over an efficiency of 0.60.",),
    )


def traces(cells: Sequence[str], rounds: int, *, seconds: int = 40) -> tuple[TraceSeries, ...]:
    """Tokens per second over time, with a ramp and a drain."""
    dice = random.Random(3)
    made = []
    for number in range(1, rounds + 1):
        for side in Side:
            for cell in cells:
                height = 1400 * (1.02 if side is Side.CANDIDATE else 1.0)
                bins = [height * min(1, (s + 1) / 4, (seconds - s) / 3) * dice.gauss(1, 0.03) for s in range(seconds)]
                made.append(
                    TraceSeries(
                        round=number, side=side, cell=cell, tokens_per_second=tuple(round(value, 1) for value in bins)
                    )
                )
    return tuple(made)


CHECKS = (
    HardCheck(name="failed_share", kind="reject", ok=True, detail="0 of 8,000 requests failed; allowed 0 %"),
    HardCheck(
        name="slo_ttft_p95",
        kind="reject",
        ok=True,
        cell="chat/64",
        side=Side.CANDIDATE,
        detail="p95 TTFT 493 ms, SLO 500 ms",
    ),
    HardCheck(
        name="load_equal", kind="invalid", ok=True, detail="both stacks answered the same 1,000 requests in every round"
    ),
    HardCheck(
        name="client", kind="invalid", ok=True, detail="stamp error p99 61 us, dispatch lag p99 0.4 ms, 0.31 of a core"
    ),
    HardCheck(name="telemetry", kind="invalid", ok=True, detail="no throttle reason, no gap above 0.3 s"),
)

METHOD = (
    "One round is one fresh launch of each stack with the same requests, A B | B A. Looks after 4, 6, 8 rounds at level 0.0225 "
    "one-sided; Holm over 18 distinct metrics."
)


def judgement(
    word: Word,
    *,
    changes: dict[tuple[MetricName, str | None], float] | None = None,
    rounds: int = 4,
    spread: float = 0.006,
    cells: Sequence[str] = CELLS,
    checks: tuple[HardCheck, ...] | None = None,
    **replaced: object,
) -> Judgement:
    """A judgement with this word; `replaced` fields go in as they are."""
    all_metrics = metrics(changes or {}, rounds=rounds, spread=spread, cells=cells)
    rejected = tuple(str(one.key) for one in all_metrics if one.outcome is Outcome.REJECT)
    checks = CHECKS if checks is None else checks
    fields: dict[str, object] = {
        "tool_version": "0.1.0",
        "gate": "llama-8b-chat",
        "run_id": "1234.1",
        "run_url": "https://github.com/acme/serving/actions/runs/1234",
        "date": "2026-11-30T14:09:01Z",
        "operator": "github-actions on gpu-runner-3",
        "word": word,
        "advice": ADVICE[word],
        "change": Change(
            repository="acme/serving",
            head_sha="5d6e7f8a9b0c1d2e3f405162738495a6b7c8d9e0",
            base_sha="0f1e2d3c4b5a69788796a5b4c3d2e1f001122334",
            number=42,
            policy_from="base commit 0f1e2d3",
        ),
        "baseline_label": "vLLM 0.33",
        "candidate_label": "Luminal build 412",
        "workload_sha256": "3f9c2b7d5e8a41c0" * 4,
        "config_sha256": "a17b0c9d8e7f6051" * 4,
        "accelerator": "1x NVIDIA H100 80GB HBM3",
        "rounds_used": rounds,
        "rounds_planned": 8,
        "looks": (4, 6, 8),
        "level": LEVEL,
        "requests_replayed": 1000 * rounds * 2,
        "distinct_metrics": 18,
        "noise": 0.009,
        "rejected": rejected,
        "checks": checks,
        "rows": rows(all_metrics, word),
        "metrics": all_metrics,
        "cost": cost(),
        "identities": identities(),
        "differences": DIFFERENCES,
        "launches": tuple(
            LaunchSummary(
                round=number,
                side=side,
                position=1 if (side is Side.BASELINE) == (number % 2 == 1) else 2,
                seconds_to_first_token=(41.2 if side is Side.BASELINE else 63.9) + 0.7 * number,
                tokens_per_second=(1210 if side is Side.BASELINE else 1243) + number,
                phases=(
                    Phase(name="image", until_s=0.4),
                    Phase(name="process", until_s=1.1),
                    Phase(name="healthy", until_s=(40.1 if side is Side.BASELINE else 62.8) + 0.7 * number),
                ),
                page_cache="dropped",
                loading_energy_j=9_100.0 if side is Side.BASELINE else Absent(absent="no energy counter"),
            )
            for number in range(1, rounds + 1)
            for side in Side
        ),
        "traces": traces(cells, rounds),
        "voided": (),
        "notes": (),
        "failure": None,
        "method": METHOD,
    }
    fields |= replaced
    return Judgement.model_validate({"headline": fields.get("headline") or said(word, fields, checks), **fields})


def said(word: Word, fields: Mapping[str, object], checks: tuple[HardCheck, ...]) -> str:
    """The headline, worded by the analysis itself."""
    judged = Judgement.model_validate({**fields, "headline": "", "checks": checks})
    return sentence(
        Facts(
            word=word,
            metrics=judged.metrics,
            checks=judged.checks,
            distinct=judged.distinct_metrics,
            rounds_used=judged.rounds_used,
            rounds_measured=judged.rounds_used,
            rounds_planned=judged.rounds_planned,
            next_look=None,
            stopped=None,
        )
    )


ADVICE: dict[Word, tuple[str, ...]] = {
    Word.PASS: (),
    Word.REJECT: ("Look at long/4 alone: servegate run with only that cell reproduces it in a fifth of the time.",),
    Word.INCONCLUSIVE: ("Run again with rounds.max 10, or give chat/64 more requests.",),
    Word.INVALID: ("Serve the candidate with the same quantization, or declare a second gate for the other one.",),
}
DIFFERENCES = (
    Difference(
        what="container",
        baseline="vllm/vllm-openai@sha256:8d2f1a",
        candidate="luminal/serve@sha256:77ab01",
        migration=True,
    ),
    Difference(what="engine", baseline="vLLM 0.33.1", candidate="Luminal 412", migration=True),
    Difference(what="flags", baseline="--max-num-seqs 64", candidate="--slots 64 --graph", migration=False),
)


def identities(*, candidate_quantization: str = "bf16") -> tuple[IdentitySummary, ...]:
    """Row 1 in full."""
    return tuple(
        IdentitySummary(
            side=side,
            model="meta-llama/Llama-3.1-8B-Instruct 9c1f4e2d77ab",
            model_evidence=Evidence.PROVEN,
            quantization="bf16" if side is Side.BASELINE else candidate_quantization,
            quantization_evidence=Evidence.PROVEN,
            batch="64, 64 seen",
            batch_evidence=Evidence.PROVEN if side is Side.BASELINE else Evidence.DECLARED,
            engine="vLLM 0.33.1" if side is Side.BASELINE else "Luminal 412",
            details=(
                "weights hashed: 4 files, 16.1 GB",
                "quantization read from config.json and the safetensors header",
            ),
        )
        for side in Side
    )


def passed() -> Judgement:
    """Everything within its limits."""
    return judgement(Word.PASS)


def rejected() -> Judgement:
    """A win on throughput, and a loss on the tail of long contexts."""
    return judgement(
        Word.REJECT,
        changes={(M.TPOT_P95, "long/4"): 0.083, (M.TTFT_P95, "rag/16"): 0.018},
        voided=("round 2, candidate: clock below its floor for 4.1 s (thermal slowdown)",),
    )


def inconclusive() -> Judgement:
    """Eight rounds, and the noise is still larger than the limits allow."""
    return judgement(Word.INCONCLUSIVE, changes={(M.TTFT_P95, "chat/64"): 0.06}, rounds=8, spread=0.028, noise=0.031)


def invalid() -> Judgement:
    """Two quantizations."""
    check = HardCheck(
        name="identity_quantization",
        kind="invalid",
        ok=False,
        side=Side.CANDIDATE,
        detail="the weights are bf16 in the baseline and fp8_e4m3 in the candidate",
        advice="serve both with the same quantization",
    )
    base = judgement(Word.INVALID, checks=(check, *CHECKS), identities=identities(candidate_quantization="fp8_e4m3"))
    return base.model_copy(update={"rows": rows(base.metrics, Word.INVALID, quantization="fp8_e4m3")})


def without_rounds() -> Judgement:
    """The candidate died in round 1: every number is absent, with its reason."""
    base = judgement(Word.INCONCLUSIVE)
    reason = Absent(absent="no complete round: the candidate died in round 1")
    nothing = tuple(
        one.model_copy(
            update={
                "baseline": reason,
                "candidate": reason,
                "change": reason,
                "per_round": (),
                "outcome": Outcome.ABSENT,
                "noise_sd": None,
                "detectable": None,
                "p_value": None,
                "p_adjusted": None,
                "worse_within_allowance": False,
                "better": False,
                "projected_rounds": None,
            }
        )
        for one in base.metrics
    )
    return base.model_copy(
        update={
            "metrics": nothing,
            "rows": rows(nothing, Word.INCONCLUSIVE),
            "rounds_used": 0,
            "requests_replayed": 0,
            "noise": reason,
            "cost": reason,
            "traces": (),
            "launches": (),
            "identities": (),
            "differences": (),
            "headline": "INCONCLUSIVE: no complete round was measured",
            "advice": ("Look at rounds/01-candidate/server.log.",),
            "failure": "the candidate died in round 1: CUDA out of memory",
            "change": None,
            "run_url": None,
        }
    )


ALL = {Word.PASS: passed, Word.REJECT: rejected, Word.INCONCLUSIVE: inconclusive, Word.INVALID: invalid}
