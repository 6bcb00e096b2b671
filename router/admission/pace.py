"""How often something happens of late, and what to tell those who come too early."""

from __future__ import annotations

import math

SHORTEST_S = 1
LONGEST_S = 60
"""Bounds of the advice. OpenAI's client obeys up to a minute and falls back on its own guess beyond
it (`openai/_base_client.py`: 0 < Retry-After ≤ 60)."""

_WINDOW_S = 10.0
"""Long enough to see a few requests of some seconds end, short enough to follow a change of load
before the advice given has run out."""

_SHORTEST_SPAN_S = 1.0


class Pace:
    """Counts events in two windows, the running one and the one before; holds no list."""

    __slots__ = ("_before", "_before_s", "_count", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._count = 0
        self._before = 0
        self._before_s = 0.0

    def saw(self, now: float, count: int = 1) -> None:
        """Takes events that have just happened."""
        past_s = now - self._since
        if past_s >= _WINDOW_S:
            # After a silence the window before is an empty one.
            silent = past_s >= 2 * _WINDOW_S
            self._before, self._before_s = (0, _WINDOW_S) if silent else (self._count, past_s)
            self._count, self._since = 0, now
        self._count += count

    def per_second(self, now: float, prior: float = 1.0) -> float:
        """Events a second, always above 0.

        Args:
            now: Monotonic clock.
            prior: Events that are taken for granted, so that nothing seen is slow and not never.
        """
        span = now - self._since + self._before_s
        return (self._count + self._before + prior) / max(span, _SHORTEST_SPAN_S)


def advised(seconds: float) -> int:
    """A `Retry-After`: whole seconds, never early, within bounds."""
    return min(max(math.ceil(seconds), SHORTEST_S), LONGEST_S)
