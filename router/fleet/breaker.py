"""The breaker of one server: numbers in, states out; no clock and no I/O.

```
closed ── failures in a row, or their share of a window ──► open
open ── its time is over, and a request comes ──► half-open
half-open ── as many successes in a row as probes ──► closed
half-open ── one failure ──► open, for twice as long
half-open ── a probe ends without a result ──► half-open, the next request is one
```

Open is a matter of time and half-open of the next requests, so neither is for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_SLOTS = 6
"""Parts of the window that are forgotten at a time."""


class BreakerState(StrEnum):
    """What a breaker lets pass: everything, nothing, or a few probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When a breaker opens, and for how long."""

    failures: int = 3
    """In a row."""
    failure_ratio: float = 0.5
    window_s: float = 30.0
    least_requests: int = 10
    """Of the window, below which its share of failures says nothing."""
    open_s: float = 1.0
    """The first time; doubled each time that it opens again without a window of health between."""
    open_cap_s: float = 60.0
    probes: int = 1
    """Requests let through at a time while half-open; as many must succeed to close."""


class Breaker:
    """The breaker of one server. `now` is monotonic and in seconds everywhere."""

    __slots__ = (
        "_counts",
        "_in_a_row",
        "_last_closed",
        "_limits",
        "_probing",
        "_slot",
        "_successes",
        "_times_open",
        "epoch",
        "last_failure",
        "open_until",
        "state",
    )

    def __init__(self, limits: BreakerLimits) -> None:
        self._limits = limits
        self.state = BreakerState.CLOSED
        self.open_until = 0.0
        self.epoch = 0
        """Counts changes of state: a probe of an earlier epoch gives no place back."""
        self.last_failure: float | None = None
        """When the last of the present row of failures was seen; None while there is none."""
        self._in_a_row = 0
        self._times_open = 0
        self._last_closed: float | None = None
        self._probing = 0
        self._successes = 0
        self._slot = 0
        self._counts = [[0, 0] for _ in range(_SLOTS)]

    def allows(self, now: float) -> bool:
        """Whether a request may pass."""
        if self.state is BreakerState.CLOSED:
            return True
        return self.wants_probe(now)

    def wants_probe(self, now: float) -> bool:
        """Whether the next request would be a probe."""
        if self.state is BreakerState.OPEN:
            return now >= self.open_until
        return self.state is BreakerState.HALF_OPEN and self._probing < self._limits.probes

    def begin_probe(self, now: float) -> int | None:
        """Takes the place of a probe; returns the epoch to give it back with, None without one."""
        if not self.wants_probe(now):
            return None
        if self.state is BreakerState.OPEN:
            self._enter(BreakerState.HALF_OPEN)
        self._probing += 1
        return self.epoch

    def end_probe(self, epoch: int) -> None:
        """Gives the place of a probe back, whether or not anything was seen of it."""
        if epoch == self.epoch:
            self._probing -= 1

    def succeeded(self, now: float) -> bool:
        """A request was answered; returns whether that closed the breaker.

        While it is open nothing is taken from that: the request is older than what opened it.
        """
        if self.state is BreakerState.OPEN:
            return False
        self._in_a_row, self.last_failure = 0, None
        if self.state is BreakerState.CLOSED:
            self._count(0, now)
            return False
        self._successes += 1
        if self._successes < self._limits.probes:
            return False
        self.close(now)
        return True

    def failed(self, now: float) -> bool:
        """A request failed; returns whether that opened the breaker."""
        if self.state is BreakerState.OPEN:
            return False
        self._in_a_row += 1
        self.last_failure = now
        if self.state is BreakerState.CLOSED:
            self._count(1, now)
            if not self._too_many():
                return False
        self.open(now)
        return True

    def open(self, now: float, at_least_s: float = 0.0) -> None:
        """Opens, for longer if it has lately been open before."""
        healthy = self._last_closed is None or now - self._last_closed >= self._limits.window_s
        if self.state is BreakerState.CLOSED and healthy:
            self._times_open = 0
        for_s = min(self._limits.open_s * 2.0**self._times_open, self._limits.open_cap_s)
        if for_s < self._limits.open_cap_s:
            self._times_open += 1
        self._enter(BreakerState.OPEN)
        self.open_until = now + max(for_s, at_least_s)

    def close(self, now: float) -> None:
        """Closes: the server has shown that it works. What was counted before is forgotten."""
        self._enter(BreakerState.CLOSED)
        self._last_closed = now
        self._in_a_row, self.last_failure = 0, None
        for slot in self._counts:
            slot[0] = slot[1] = 0

    def _enter(self, state: BreakerState) -> None:
        self.state = state
        self.epoch += 1
        self._probing = self._successes = 0

    def _count(self, which: int, now: float) -> None:
        slot = int(now * _SLOTS / self._limits.window_s)
        if slot != self._slot:
            for passed in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
                self._counts[passed % _SLOTS] = [0, 0]
            self._slot = max(slot, self._slot)
        self._counts[self._slot % _SLOTS][which] += 1

    def _too_many(self) -> bool:
        limits = self._limits
        if self._in_a_row >= limits.failures:
            return True
        failed = sum(slot[1] for slot in self._counts)
        seen = failed + sum(slot[0] for slot in self._counts)
        return seen >= limits.least_requests and failed >= limits.failure_ratio * seen
