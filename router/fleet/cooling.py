"""How long a server that said it is busy is left alone; no clock and no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoolingLimits:
    """Times in seconds."""

    default_s: float = 1.0
    """Where the engine does not say."""
    cap_s: float = 30.0
    """At most, whatever it says."""


class Cooling:
    """One server's deadline. `now` is monotonic and in seconds everywhere."""

    __slots__ = ("_asked_until", "_guessed_until", "_limits")

    def __init__(self, limits: CoolingLimits) -> None:
        self._limits = limits
        self._asked_until = self._guessed_until = 0.0

    @property
    def until(self) -> float:
        """When requests may come again."""
        return max(self._asked_until, self._guessed_until)

    def busy(self, now: float, retry_after_s: float | None) -> None:
        """The server is full; a deadline is never made earlier by that."""
        if retry_after_s is None:
            self._guessed_until = max(self._guessed_until, now + self._limits.default_s)
        else:
            asked = min(max(retry_after_s, 0.0), self._limits.cap_s)
            self._asked_until = max(self._asked_until, now + asked)

    def answered(self) -> None:
        """The server took a request: our own guess is over, what it asked for still stands."""
        self._guessed_until = 0.0
