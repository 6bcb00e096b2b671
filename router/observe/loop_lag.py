"""Measures how late the event loop runs what is due: the time in which nobody is served."""

from __future__ import annotations

from collections.abc import Callable

INTERVAL_S = 0.25
"""Between two looks. A pause of the loop is seen if it is longer, and else with its share of it."""


class LoopLag:
    """One round of background work that is due every `interval_s` and tells how late it came.

    Args:
        interval_s: What it is called by, from the end of one round to the next.
        observe: Takes the lag, in seconds.
        now: Monotonic clock.
    """

    def __init__(
        self, interval_s: float, observe: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        self._interval_s = interval_s
        self._observe = observe
        self._now = now
        self._last_s = now()

    async def measure(self) -> None:
        """Tells the lag since the last round."""
        now = self._now()
        self._observe(max(now - self._last_s - self._interval_s, 0.0))
        self._last_s = now
