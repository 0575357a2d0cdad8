"""How long the hot path may sleep before it drains all sockets again: the kernel stamps meanwhile.

Longer sleeps share the price of waking among more reads. They must not let two tokens of a stream land in one read, nor
keep the next request of a stream that is through waiting. It refuses to sleep itself.
"""

from __future__ import annotations

PAUSE_ABOVE_READS_PER_S = 2500.0
"""Below this rate a sleep costs more than it saves."""
PAUSE_SHARE_OF_GAP = 0.25
"""Sleep at most this share of the mean gap between two arrivals of a stream that flows: two events in one read lose a
stamp. Requests that wait for their first token do not count."""
PAUSE_MAX_S = 0.004
PAUSE_MIN_S = 0.0003
READS_PER_DRAIN = 32
"""Enough to share the price of waking; sleeping longer would delay the next requests of streams that are through."""


def pause_s(reads_per_s: float, *, flowing: int) -> float:
    """How long to sleep between drains, s; 0 = wake for every arrival. `flowing`: streams whose tokens are coming."""
    if reads_per_s < PAUSE_ABOVE_READS_PER_S:
        return 0.0
    pause = min(READS_PER_DRAIN / reads_per_s, PAUSE_SHARE_OF_GAP * flowing / reads_per_s, PAUSE_MAX_S)
    return pause if pause >= PAUSE_MIN_S else 0.0
