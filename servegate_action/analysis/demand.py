"""The traffic that the user declared, as arrivals at any rate: Poisson, a daily profile, or a recorded trace.

Both stacks meet the same arrivals, and the same seed gives the same gaps at every rate. How replicas serve them is
`traffic`; what it costs is `cost`. A trace comes in as numbers: no file is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servegate_action.analysis.traffic import (
    SECONDS_PER_HOUR,
    Arrivals,
    Lifecycle,
    Occupancy,
    poisson_arrivals,
    poisson_form,
    profile_arrivals,
    recorded_arrivals,
    replay,
)
from servegate_action.config.cost import Traffic

POISSON_COUNT = 50_000
# Curves and searches replay this many: shares of time then miss by about a point, alike at every rate.
QUICK_COUNT = 5_000
MOST_PROFILE_DAYS = 60
# A day of this many requests is the densest that curves replay, unless the declared one is denser.
MOST_PROFILE_REQUESTS = 200_000
HOURS_PER_DAY = 24.0


@dataclass(frozen=True, slots=True)
class Demand:
    """The declared traffic, and how to draw arrivals for it at its own or another mean rate.

    `recorded` are the arrivals of the declared trace, None when there are none. The same seed gives the same gaps at any
    rate, so that curves over the rate are smooth and both stacks meet the same arrivals.
    """

    declared: Traffic
    seed: int
    recorded: Arrivals | None = None

    @property
    def problem(self) -> str | None:
        """Why no arrivals can be drawn."""
        if self.declared.trace is not None and self.recorded is None:
            return f"the trace {self.declared.trace} has fewer than two moments of arrival, or was not recorded with the run"
        return None

    @property
    def per_hour(self) -> float:
        """Mean requests per hour, over all replicas. A trace without arrivals has none, and `problem` says so."""
        if self.declared.requests_per_hour is not None:
            return self.declared.requests_per_hour
        if self.recorded is not None:
            return self.recorded.rate * SECONDS_PER_HOUR
        return float(np.mean(self.declared.hourly_profile or (0.0,)))

    @property
    def most_per_hour(self) -> float:
        """The highest rate that curves are drawn at: whole days of a profile are played, and they must not grow endless."""
        return MOST_PROFILE_REQUESTS / HOURS_PER_DAY if self.declared.hourly_profile else float(np.inf)

    @property
    def text(self) -> str:
        """In words."""
        rate = f"{self.per_hour:,.6g} requests/h"
        if self.declared.requests_per_hour is not None:
            kind = f"Poisson arrivals, {rate}"
        elif self.declared.hourly_profile:
            kind = f"hourly profile, mean {rate}"
        else:
            kind = f"trace {self.declared.trace}, mean {rate}"
        return kind if self.declared.replicas == 1 else f"{kind}, {self.declared.replicas} replicas"

    @property
    def has_closed_form(self) -> bool:
        """Whether `poisson_form` may stand for a replay: Poisson arrivals at one replica (short service is the caller's)."""
        return self.declared.requests_per_hour is not None and self.declared.replicas == 1

    def arrivals(self, per_hour: float, *, count: int = POISSON_COUNT) -> Arrivals:
        """Arrivals at a mean of `per_hour`: drawn anew (Poisson, profile), or the trace played faster or slower.

        `count`: how many Poisson arrivals to draw, and the least of a profile, which is played for whole days.
        """
        random = np.random.default_rng([self.seed, 1])
        if self.recorded is not None:
            return self.recorded.at_rate(per_hour / SECONDS_PER_HOUR)
        if self.declared.hourly_profile:
            factor = per_hour / self.per_hour
            profile = [rate * factor for rate in self.declared.hourly_profile]
            days = min(MOST_PROFILE_DAYS, int(np.ceil(count / sum(profile))))
            return profile_arrivals(profile, days=days, random=random)
        return poisson_arrivals(per_hour / SECONDS_PER_HOUR, count=count, random=random)

    def occupancy(self, per_hour: float, life: Lifecycle, *, count: int = POISSON_COUNT) -> Occupancy:
        """The replay of the arrivals at a mean of `per_hour`."""
        if life.idle_timeout_s is None:
            return poisson_form(per_hour / SECONDS_PER_HOUR / life.replicas, life)
        drawn = self.arrivals(per_hour, count=count)
        return replay(drawn, life, random=np.random.default_rng([self.seed, 2]))

    def quick_occupancy(self, per_hour: float, life: Lifecycle) -> Occupancy:
        """The closed form where it holds, else a short replay: for curves and searches over many rates."""
        if self.has_closed_form and life.billing_step_s <= 0:
            return poisson_form(per_hour / SECONDS_PER_HOUR, life)
        return self.occupancy(per_hour, life, count=QUICK_COUNT)


def demand_of(declared: Traffic, *, seed: int, recorded_s: Sequence[float]) -> Demand:
    """The declared traffic with the arrival times of its trace, which somebody else has read."""
    known = declared.trace is not None and len(recorded_s) > 1 and max(recorded_s) > min(recorded_s)
    return Demand(declared, seed, recorded_arrivals(recorded_s) if known else None)
