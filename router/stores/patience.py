"""How long a store is waited for. Pure."""

from __future__ import annotations

MOST = 8.0
"""Times the least limit; a connection that died without a word is given up after as long."""


class Patience:
    """A limit that doubles with each silence, and shrinks to twice what answers take.

    A server that is slow because it is asked too much works on calls that were given up all the
    same. Were they asked again after as short a time, it would do nothing else, and no answer would
    ever be in time.

    Args:
        least_s: The limit for a store that answers.

    Example:
        >>> patience = Patience(1.0)
        >>> patience.silent(), patience.silent(), patience.limit_s
        (None, None, 4.0)
        >>> patience.answered(1.5), patience.limit_s
        (None, 3.0)
    """

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.limit_s = least_s

    def silent(self) -> None:
        """Takes that no answer came within the limit."""
        self.limit_s = min(2.0 * self.limit_s, MOST * self._least_s)

    def answered(self, took_s: float) -> None:
        """Takes how long an answer took."""
        self.limit_s = max(self._least_s, min(self.limit_s, 2.0 * took_s))
