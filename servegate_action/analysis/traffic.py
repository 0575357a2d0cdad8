"""Arrivals through the life of a replica: off, loading, busy, warm idle. How long is it held, and who waits?

Two answers to the same question: a closed form for Poisson arrivals at one replica whose service is short against the
gaps, and a replay of concrete arrivals that assumes neither. Both report shares of time and the delays that cold starts
cause. Formulas and their sources: docs/cost.md. Randomness comes in as a generator; money, energy and verdicts are not
known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from servegate_action.analysis.quantiles import RANK_TOLERANCE, FloatArray, IntArray, weighted_nearest_rank

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86_400.0
# Delays below this are rounding of seconds since the start of the period, not waiting.
LEAST_DELAY_S = 1e-6
# Shares of time below this are rounding.
LEAST_SHARE = 1e-12
# A distribution of delays is carried by this many of its order statistics; its quantiles then miss by < 0.03 %.
DELAY_SAMPLES = 4_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrival times in seconds from the start of a period, sorted. Shape (n,), n ≥ 1."""

    seconds: FloatArray
    period_s: float

    @property
    def rate(self) -> float:
        """λ: mean arrivals per second."""
        return self.seconds.size / self.period_s

    def at_rate(self, rate: float) -> Arrivals:
        """The same pattern, faster or slower, so that its mean rate is `rate`."""
        factor = self.rate / rate
        return Arrivals(self.seconds * factor, self.period_s * factor)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How replicas serve and sleep.

    `service_s`: seconds of a replica that one request takes (tokens per request / output tok/s: throughput, not latency).
    `idle_timeout_s`: T, None for keep-warm. `cold_starts_s`: measured L, at least one where T is set.
    `billing_step_s`: held time is billed in steps of this, 0 for exact billing.
    """

    service_s: float
    replicas: int = 1
    idle_timeout_s: float | None = None
    cold_starts_s: tuple[float, ...] = ()
    billing_step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delays:
    """What cold starts add to the TTFT: `share` of the requests wait, by one of the equally likely `seconds`."""

    share: float
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))


NO_DELAYS = Delays(0.0)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Shares of replica-time; busy + warm_idle + loading + off = 1. `billed` ≥ 1 − off where billing has steps.

    `starts`: share of the requests that trigger a start (p). `delays.share`: share that wait at all (p_w).
    """

    busy: float
    warm_idle: float
    loading: float
    off: float
    billed: float
    starts: float
    delays: Delays = field(default_factory=lambda: NO_DELAYS)


# ---------------------------------------------------------------- arrivals


def poisson_arrivals(rate: float, *, count: int, random: np.random.Generator) -> Arrivals:
    """`count` Poisson arrivals whose gaps are scaled so that their mean is exactly 1/rate."""
    gaps = random.exponential(1.0, count)
    seconds = np.cumsum(gaps) * (count / (rate * float(gaps.sum())))
    return Arrivals(seconds, count / rate)


def profile_arrivals(per_hour: Sequence[float], *, days: int, random: np.random.Generator) -> Arrivals:
    """Poisson arrivals whose rate follows 24 hourly means, day after day, with the exact number of requests.

    Unit-rate arrivals are placed on the axis of expected requests Λ(t) and mapped back by its inverse (the time-change
    theorem of the inhomogeneous Poisson process; Çinlar 1975, chapter 4.7).
    """
    rates = np.tile(np.array(per_hour, dtype=np.float64), days)
    expected = np.concatenate([np.zeros(1), np.cumsum(rates)])
    count = max(1, round(float(expected[-1])))
    unit = np.cumsum(random.exponential(1.0, count + 1))
    place = unit[:-1] * (expected[-1] / unit[-1])
    hour = np.searchsorted(expected, place, side="right") - 1
    seconds = (hour + (place - expected[hour]) / rates[hour]) * SECONDS_PER_HOUR
    return Arrivals(seconds, days * SECONDS_PER_DAY)


def recorded_arrivals(seconds: Sequence[float]) -> Arrivals:
    """Arrivals of a trace, moved to start at 0; the period ends one mean gap after the last. Needs two moments at least."""
    times = np.sort(np.array(seconds, dtype=np.float64))
    times = times - times[0]
    return Arrivals(times, float(times[-1]) * times.size / (times.size - 1))


# ---------------------------------------------------------------- the closed form


def poisson_form(rate: float, life: Lifecycle) -> Occupancy:
    """The closed form for Poisson arrivals, one replica, service short against 1/λ.

    A cycle is a start (L), then gaps until one exceeds T, then off until the next arrival. With q = e^(−λT):
    p = q / (1 + qλL) is the share of requests that trigger a start and, because Poisson arrivals see time averages
    (Wolff 1982), the share of time off. p_w = p(1 + λL) wait at all: the triggers for L, the λL others that arrive while
    it loads for what is left of it. Loading share λpL, billed 1 − p. L enters by its mean, delays by its values.
    """
    busy = rate * life.service_s
    if life.idle_timeout_s is None:
        return Occupancy(
            busy=busy, warm_idle=1.0 - busy, loading=0.0, off=0.0, billed=1.0, starts=0.0, delays=NO_DELAYS
        )
    q = float(np.exp(-rate * life.idle_timeout_s))
    starts_s = np.array(life.cold_starts_s, dtype=np.float64)
    mean = float(starts_s.mean())
    p = q / (1.0 + q * rate * mean)
    loading = rate * p * mean
    return Occupancy(
        busy=busy,
        warm_idle=max(0.0, 1.0 - p - loading - busy),
        loading=loading,
        off=p,
        billed=1.0 - p,
        starts=p,
        delays=_poisson_delays(rate, starts_s, share=p * (1.0 + rate * mean)),
    )


def _poisson_delays(rate: float, starts_s: FloatArray, *, share: float) -> Delays:
    """L for one trigger, and residual waits even over (0, L) for the λL that follow it, per measured start."""
    parts: list[FloatArray] = []
    per_start = DELAY_SAMPLES // starts_s.size
    whole = float((1.0 + rate * starts_s).sum())
    for start in starts_s.tolist():
        mine = max(1, round(per_start * starts_s.size * (1.0 + rate * start) / whole))
        triggers = max(1, round(mine / (1.0 + rate * start)))
        followers = mine - triggers
        parts += [np.full(triggers, start), start * (np.arange(followers) + 0.5) / max(followers, 1)]
    return Delays(share, np.sort(np.concatenate(parts)))


# ---------------------------------------------------------------- the replay


def replay(arrivals: Arrivals, life: Lifecycle, *, random: np.random.Generator) -> Occupancy:
    """Send concrete arrivals through the replicas, first come first served, each to the replica that can start it first.

    All replicas of a sleeping stack begin off. A replica that has been idle for more than T goes off; the next request
    sent to it starts it and waits for one of the measured cold starts, drawn by `random`. The delay of a request is what
    it waits beyond what it would have waited had every replica been warm. A keep-warm stack needs no replay: only its
    duty counts.
    """
    if life.idle_timeout_s is None:
        return poisson_form(arrivals.rate / life.replicas, life)
    if life.replicas == 1:
        return _replay_one(arrivals, life, life.idle_timeout_s, random)
    return _replay_many(arrivals, life, life.idle_timeout_s, random)


def _replay_one(arrivals: Arrivals, life: Lifecycle, timeout_s: float, random: np.random.Generator) -> Occupancy:
    """One replica, vectorised but for a step per gap that may be long enough to sleep in.

    With constant service s, request i (from 0) would be done at s(i + 1) + max_{j≤i} (A_j − s·j) if nothing ever slept. A cold
    start adds its L to the term of the request that triggers it. Delays only shorten idle gaps, so that the requests
    which may trigger a start are among those whose gap exceeds T in the warm schedule.
    """
    order = np.arange(arrivals.seconds.size)
    slack = arrivals.seconds - life.service_s * order
    warm = np.maximum.accumulate(slack)
    gap = np.full(order.size, np.inf)
    gap[1:] = arrivals.seconds[1:] - (life.service_s * order[1:] + warm[:-1])
    triggers, waits = _triggers(slack, warm, np.flatnonzero(gap > timeout_s), timeout_s, life.cold_starts_s, random)
    delayed = slack.copy()
    delayed[triggers] += waits
    cold = np.maximum.accumulate(delayed)
    done = life.service_s * (order + 1) + cold
    period = max(arrivals.period_s, float(done[-1]))
    released = np.append(done[triggers[1:] - 1] + timeout_s, min(float(done[-1]) + timeout_s, period))
    held = released - arrivals.seconds[triggers]
    counted = _Counted(period_s=period, loading_s=float(waits.sum()), held_s=held, delay_s=cold - warm)
    return counted.shares(life)


def _triggers(
    slack: FloatArray,
    warm: FloatArray,
    suspects: IntArray,
    timeout_s: float,
    starts_s: Sequence[float],
    random: np.random.Generator,
) -> tuple[IntArray, FloatArray]:
    """Which suspects really find the replica off, and how long each start takes. The first request always does."""
    draws = random.choice(np.array(starts_s, dtype=np.float64), size=suspects.size)
    before = np.concatenate([np.full(1, -np.inf), warm[:-1]])[suspects]
    triggers: list[int] = []
    reach = -np.inf
    columns = zip(suspects.tolist(), slack[suspects].tolist(), before.tolist(), draws.tolist(), strict=True)
    waits: list[float] = []
    for index, own, previous, draw in columns:
        if own - max(reach, previous) > timeout_s:
            triggers.append(index)
            waits.append(draw)
            reach = own + draw
    return np.array(triggers, dtype=np.int64), np.array(waits, dtype=np.float64)


def _replay_many(arrivals: Arrivals, life: Lifecycle, timeout_s: float, random: np.random.Generator) -> Occupancy:
    """Several replicas: a tight loop over the arrivals, once as declared and once as if every replica were warm."""
    times = arrivals.seconds.tolist()
    draws = random.choice(np.array(life.cold_starts_s, dtype=np.float64), size=len(times)).tolist()
    typical = float(np.mean(life.cold_starts_s))
    free = [-np.inf] * life.replicas
    began = [0.0] * life.replicas
    held: list[float] = []
    loading = 0.0
    begin_s: list[float] = []
    for time, draw in zip(times, draws, strict=True):
        chosen, earliest = 0, np.inf
        for replica, until in enumerate(free):
            start = time + typical if time - until > timeout_s else max(time, until)
            if start < earliest:
                chosen, earliest = replica, start
        if time - free[chosen] > timeout_s:
            if free[chosen] > -np.inf:
                held.append(free[chosen] + timeout_s - began[chosen])
            began[chosen] = time
            loading += draw
            earliest = time + draw
        begin_s.append(earliest)
        free[chosen] = earliest + life.service_s
    period = max(arrivals.period_s, *free)
    held += [min(until + timeout_s, period) - began[i] for i, until in enumerate(free) if until > -np.inf]
    delay = np.array(begin_s) - _warm_starts(times, life)
    return _Counted(period_s=period, loading_s=loading, held_s=np.array(held), delay_s=delay).shares(life)


def _warm_starts(times: Sequence[float], life: Lifecycle) -> FloatArray:
    """When each request would start if every replica were always warm: constant service, so in order of arrival."""
    starts: list[float] = []
    for index, time in enumerate(times):
        freed = starts[index - life.replicas] + life.service_s if index >= life.replicas else -np.inf
        starts.append(max(time, freed))
    return np.array(starts)


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a replay has counted: seconds of loading, the length of each time that a replica was held, each delay."""

    period_s: float
    loading_s: float
    held_s: FloatArray
    delay_s: FloatArray

    def shares(self, life: Lifecycle) -> Occupancy:
        """As shares of the replica-time R·period. Each time held is one start."""
        whole = life.replicas * self.period_s
        requests = self.delay_s.size
        busy = requests * life.service_s / whole
        loading = self.loading_s / whole
        held = float(self.held_s.sum()) / whole
        billed = held
        if life.billing_step_s > 0:
            steps = np.ceil(self.held_s / life.billing_step_s - RANK_TOLERANCE)
            billed = float(steps.sum()) * life.billing_step_s / whole
        return Occupancy(
            busy=busy,
            warm_idle=max(0.0, held - loading - busy),
            loading=loading,
            off=1.0 - held if held < 1.0 - LEAST_SHARE else 0.0,
            billed=billed,
            starts=self.held_s.size / requests,
            delays=_thinned(self.delay_s),
        )


def _thinned(delay_s: FloatArray) -> Delays:
    """The delays of those who wait, as at most `DELAY_SAMPLES` of their order statistics."""
    waiting = np.sort(delay_s[delay_s > LEAST_DELAY_S])
    share = waiting.size / delay_s.size
    if waiting.size > DELAY_SAMPLES:
        ranks = (np.arange(DELAY_SAMPLES) + 0.5) * waiting.size / DELAY_SAMPLES
        waiting = waiting[ranks.astype(np.int64)]
    return Delays(share, waiting)


# ---------------------------------------------------------------- TTFT with cold starts


def quantile_with_delays(warm_s: FloatArray, weights: FloatArray, delays: Delays, share: float) -> float:
    """The quantile of TTFT = warm TTFT + delay by cold starts, exactly, without a draw; in seconds.

    The mixture is (1 − p_w)·F(x) + p_w·mean F(x − d) with F the weighted distribution of the warm sample (shapes (n,),
    failed requests at +inf). The answer is found by bisection to a relative 1e-9, and equals the warm quantile when
    nothing waits. +inf when failed requests alone exceed 1 − share. Never a mean of two quantiles.
    """
    if delays.share <= 0:
        return weighted_nearest_rank(warm_s, weights, share)
    order = np.argsort(warm_s, kind="stable")
    values = warm_s[order]
    reached = np.concatenate([np.zeros(1), np.cumsum(weights[order])])
    reached = reached / reached[-1]

    def below(x: float) -> float:
        direct = float(reached[np.searchsorted(values, x, side="right")])
        waited = float(reached[np.searchsorted(values, x - delays.seconds, side="right")].mean())
        return (1.0 - delays.share) * direct + delays.share * waited

    finite = values[np.isfinite(values)]
    if reached[finite.size] < share - RANK_TOLERANCE:
        return float(np.inf)
    low, high = 0.0, float(finite[-1] + delays.seconds[-1]) * (1.0 + 1e-9)
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if below(middle) >= share - RANK_TOLERANCE else (middle, high)
    return high
