"""How long requests stay of late, hence when there will be room; and how a client is told."""

from __future__ import annotations

import math

SHORTEST_S = 1
LONGEST_S = 60
"""Bounds of the advice. OpenAI's client obeys up to two minutes and does not try again beyond them;
its versions before 2 obeyed up to one and guessed beyond it."""

_MEMORY = 64
"""Departures over which the mean looks back: a few places' worth, so that it follows the load."""

_ASSUMED_S = 5.0
"""Stay of a request before any has ended: an answer of a few hundred tokens."""


class Stays:
    """Mean of the latest stays, as a moving mean; holds no list.

    By Little's law `k` places whose holders stay for S seconds become free k / S times a second.
    Unlike a count of departures that holds at once when a quiet house has filled up.
    """

    __slots__ = ("_last_s", "_seen", "seen_s")

    def __init__(self, now: float, assumed_s: float = _ASSUMED_S) -> None:
        """Knows nothing yet.

        Args:
            now: Monotonic clock.
            assumed_s: The mean until there is an own one.
        """
        self.seen_s = assumed_s
        """Mean of those that have ended, in seconds."""
        self._seen = 0
        self._last_s = now

    def saw(self, stay_s: float, now: float) -> None:
        """Takes the stay of one that has just ended."""
        if self._seen < _MEMORY:
            self._seen += 1
        self.seen_s += (stay_s - self.seen_s) / self._seen
        self._last_s = now

    def mean_s(self, now: float) -> float:
        """Seconds, above 0; no shorter than the silence since one has ended."""
        return max(self.seen_s, now - self._last_s, 1e-3)


def advised(seconds: float) -> int:
    """A `Retry-After`: whole seconds, never early, within bounds."""
    return math.ceil(min(max(seconds, SHORTEST_S), LONGEST_S))
