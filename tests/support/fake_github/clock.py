"""A clock that does not wait: sleeping moves it forward, and what was slept is kept."""

from __future__ import annotations


class InstantClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now_s = 1000.0

    def now_s(self) -> float:
        """Seconds, monotonic."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Pass the time."""
        self.slept.append(seconds)
        self._now_s += seconds
