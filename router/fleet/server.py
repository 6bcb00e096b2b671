"""One server from moment to moment, in this process: load, health and what follows from them.

Plain numbers behind a few verbs; no clock and no I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from router.fleet.breaker import Breaker, BreakerLimits, BreakerState
from router.fleet.cooling import Cooling, CoolingLimits
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.fleet.model import Replica
from router.fleet.placement import Weights

_SMALLEST_SHARE = 0.1
"""Of its load that a server gets when it has just come."""
_SPARE = 16
"""Leases that are over and may stand among those waiting for a first piece."""
_FAILING = 1000.0
"""Requests that a failure not yet made good counts as: a server that fails fast looks idle."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the servers of one pool are judged by."""

    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    cooling: CoolingLimits = field(default_factory=CoolingLimits)
    slow_start_s: float = 10.0
    stall_s: float = 120.0
    stall_requests: int = 2
    weights: Weights = field(default_factory=Weights)


@dataclass(eq=False, slots=True)
class Lease:
    """One request at one server; released exactly once."""

    replica: Replica
    touched: float | None = None
    """When the last piece of the answer came; set by whoever holds the lease."""
    server: Server | None = None
    """Where it counts; None once it is released."""
    begun: float = 0.0
    streamed: bool = True
    """A whole answer sends nothing until it is complete, however well its server works."""
    seen: float | None = None
    """`touched` as the watchdog last saw it."""
    probe: int | None = None
    """Epoch of the breaker whose probe this is."""
    load: int = 1
    """Requests at the server when this one came, itself included."""
    waiting: int | None = None
    """Of these, how many the engine last said it had not begun; None where it does not tell."""
    prompt_bytes: int = 0

    def release(self) -> None:
        """The request is over, however it ended; more calls change nothing."""
        server, self.server = self.server, None
        if server is not None:
            server.end(self)


class Server:
    """The state of one server. `now` is monotonic and in seconds everywhere."""

    __slots__ = (
        "_elsewhere",
        "_fresh",
        "_limits",
        "_progress",
        "_ramp_from",
        "_reached",
        "_resting",
        "_worked",
        "breaker",
        "cooling",
        "draining",
        "gauges",
        "leases",
        "life",
        "replica",
        "stalled",
        "told_load",
        "up",
        "weight",
    )

    def __init__(
        self, replica: Replica, limits: ServerLimits, *, life: int, now: float | None = None
    ) -> None:
        """Args: `now` where the server begins slowly, None where it has long been there."""
        self.replica = replica
        self.weight = replica.weight
        self._limits = limits
        self.life = life
        """Changes when the server comes back, and what it had cached is gone."""
        self.up = True
        """Assumed until shown otherwise, so that the first request after a start is served."""
        self.draining = False
        self.stalled = False
        self.breaker = Breaker(limits.breaker)
        self.cooling = Cooling(limits.cooling)
        self.leases: set[Lease] = set()
        self._fresh: list[Lease] = []
        """Streams that had sent nothing when this was last looked at, the oldest first."""
        self._reached = -math.inf
        """When the latest stream came that has been answered."""
        self.gauges = UNKNOWN
        self._elsewhere = 0
        """Requests that the engine told of and that were not ours when it did."""
        self.told_load = 0.0
        """What the engine tells of, beyond the requests that this process knows of."""
        self._progress = -math.inf
        """When the watchdog last saw a sign of work."""
        self._worked = False
        """Whether there was one since."""
        self._ramp_from: float | None = None
        if now is not None:
            self.start_slowly(now)
        self._resting = False
        """Whether anything at all stands against using it: the quick answer for the usual case."""

    # --- Whether, and at what cost ------------------------------------------------------------

    def usable(self, now: float) -> bool:
        """Whether it may get a request as any other."""
        if not self._resting:
            return True
        return (
            self.up and not self.draining and now >= self.cooling.until and self.breaker.allows(now)
        )

    def wants_probe(self, now: float) -> bool:
        """Whether its breaker waits for a request to try it with."""
        return self._resting and self.breaker.wants_probe(now) and self.usable(now)

    def badness(self, now: float) -> tuple[bool, bool, bool, float]:
        """Order in which servers that are not usable are tried when there are no others."""
        return (
            not self.up,
            self.stalled,
            not self.breaker.allows(now),
            max(self.cooling.until - now, 0.0),
        )

    def load(self, now: float) -> float:
        """Requests, and what counts like some."""
        load = len(self.leases) + self.told_load
        failure = self.breaker.last_failure
        if failure is not None and now < failure + self._limits.breaker.open_s:
            load += _FAILING
        return load

    @property
    def meets(self) -> int:
        """Requests that one would find here that came now, itself included."""
        return len(self.leases) + 1 + self._elsewhere

    def line(self, now: float) -> tuple[int, float]:
        """What stands in line: streams that have sent nothing yet.

        Returns:
            Bytes of their requests, which are prompts to be worked on, and for how many seconds the
            first has waited that nobody has overtaken: one that others overtake waits for
            something of its own, and says nothing of who comes next.
        """
        if not self._fresh:
            return 0, 0.0
        left: list[Lease] = []
        size, reached = 0, self._reached
        for lease in self._fresh:
            if lease.touched is not None:
                reached = max(reached, lease.begun)
            elif lease.server is not None:
                left.append(lease)
                size += lease.prompt_bytes
        self._fresh, self._reached = left, reached
        for lease in left:
            if lease.begun > reached:
                return size, max(now - lease.begun, 0.0)
        return size, 0.0

    def share(self, now: float) -> float:
        """Load that it should carry, relative to others: its weight, less while it starts."""
        if self._ramp_from is None:
            return self.weight
        return self.weight * self.ramp(now)

    def ramp(self, now: float) -> float:
        """How far its slow start is, in (0, 1]."""
        if self._ramp_from is None:
            return 1.0
        part = (now - self._ramp_from) / self._limits.slow_start_s
        if part >= 1.0:
            self._ramp_from = None
            return 1.0
        return max(part, _SMALLEST_SHARE)

    # --- What happens -------------------------------------------------------------------------

    def begin(self, now: float, *, streamed: bool = True, prompt_bytes: int = 0) -> Lease:
        """A request goes there.

        Its load is the larger of what is ours and what the engine told, where the latter is brought
        up to date by those of ours that began or ended since: this one is in it too.
        """
        lease = Lease(
            self.replica,
            None,
            self,
            now,
            streamed=streamed,
            load=self.meets,
            waiting=self.gauges.waiting,
            prompt_bytes=prompt_bytes,
        )
        if streamed:
            if len(self._fresh) > 2 * len(self.leases) + _SPARE:
                self.line(now)
            self._fresh.append(lease)
        if self._resting:
            lease.probe = self.breaker.begin_probe(now)
        self.leases.add(lease)
        return lease

    def end(self, lease: Lease) -> None:
        """A request is over."""
        self.leases.discard(lease)
        if lease.touched != lease.seen:
            self._worked = True
        if lease.probe is not None:
            self.breaker.end_probe(lease.probe)

    def answered(self, now: float) -> None:
        """A request was answered."""
        self._worked = True
        closed = self.breaker.succeeded(now)
        if self._resting:
            if closed or self.stalled:
                self._recovered(now)
            self.cooling.answered()
            self._settle(now)

    def failed(self, now: float) -> bool:
        """A request failed; returns whether that opened the breaker."""
        opened = self.breaker.failed(now)
        self._settle(now)
        return opened

    def busy(self, now: float, retry_after_s: float | None) -> None:
        """The server is full: that it says so shows that it works."""
        self._worked = True
        self.cooling.busy(now, retry_after_s)
        self._settle(now)

    def mark(self, *, up: bool, now: float, life: int) -> bool:
        """Records that it answers probes or does not; returns whether that is news."""
        if self.up == up:
            return False
        self.up = up
        if up:
            self.life = life
            self._recovered(now)
        self._settle(now)
        return True

    def drain(self, *, draining: bool, now: float) -> None:
        """An operator takes it out, or puts it back."""
        if self.draining and not draining:
            self.start_slowly(now)
        self.draining = draining
        self._settle(now)

    def adopt(self, old: Server) -> None:
        """Goes on where another left off, of the same address under an older configuration.

        Requests that still run there count here as well; whether it is given up is counted anew
        where the limits have changed.
        """
        self.life = old.life
        self.up, self.draining, self.stalled = old.up, old.draining, old.stalled
        self.leases, self._fresh, self._reached = old.leases, old._fresh, old._reached
        self.gauges = old.gauges
        self.told_load = old.told_load
        self._elsewhere = old._elsewhere
        self._progress, self._worked = old._progress, old._worked
        self._ramp_from = old._ramp_from
        if self._limits.breaker == old._limits.breaker:
            self.breaker = old.breaker
        if self._limits.cooling == old._limits.cooling:
            self.cooling = old.cooling
        self._resting = True

    def tell(self, gauges: ReplicaGauges) -> None:
        """Takes what the engine says of its load."""
        self.gauges = gauges
        waiting = gauges.waiting or 0
        self._elsewhere = max((gauges.running or 0) + waiting - len(self.leases), 0)
        weights = self._limits.weights
        self.told_load = self._elsewhere + weights.queue * waiting
        self.told_load += weights.kv * (gauges.kv_usage or 0.0)

    def watch(self, now: float) -> bool:
        """Looks whether it has stopped working on what it has; returns whether that changed.

        Health checks do not show it: engines have hung while they still answered those.
        """
        since = now - self._limits.stall_s
        silent = 0
        for lease in self.leases:
            if lease.touched != lease.seen:
                lease.seen = lease.touched
                self._worked = True
            silent += lease.streamed and lease.begun <= since
        worked, self._worked = self._worked, False
        if worked:
            self._progress = now
        if self.stalled:
            if not worked:
                return False
            self._recovered(now)
        elif silent < self._limits.stall_requests or self._progress > since:
            return False
        else:
            self.stalled = True
            self.breaker.open(now, self._limits.stall_s / 4)
        self._settle(now)
        return True

    def _recovered(self, now: float) -> None:
        self.stalled = False
        self.breaker.close(now)
        self.start_slowly(now)

    def start_slowly(self, now: float) -> None:
        """Its share grows from a tenth to the whole."""
        self._ramp_from = now if self._limits.slow_start_s > 0 else None

    def _settle(self, now: float) -> None:
        self._resting = not (
            self.up
            and not self.draining
            and self.breaker.state is BreakerState.CLOSED
            and now >= self.cooling.until
        )
