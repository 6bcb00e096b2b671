"""A house with a fair queue in simulated time: who arrives when and stays how long is given."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from router.admission.queue import FairQueue, Limits, Refused, Ticket
from router.types import TenantId


@dataclass(slots=True)
class Visit:
    """One client that comes until it is served or has been refused often enough."""

    tenant: TenantId
    stays_s: float
    tries: int = 0
    served_s: float | None = None
    """When it was let in."""


class House:
    """Runs visits through a queue."""

    def __init__(self, limits: Limits, *, most_tries: int = 1) -> None:
        self.limits = limits
        self.queue = FairQueue(limits, 0.0)
        self.most_tries = most_tries
        self.now = 0.0
        self.held_s: defaultdict[TenantId, float] = defaultdict(float)
        """Place-seconds by tenant."""
        self.advice: list[int] = []
        self.causes: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._waiting: dict[Ticket, Visit] = {}

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Lets something happen."""
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def comes(self, when: float, visit: Visit) -> None:
        """A client comes."""
        self.at(when, lambda: self._arrive(visit))

    def run(self, until: float) -> None:
        """Lets time pass."""
        while self._events and self._events[0][0] <= until:
            when, _, event = heapq.heappop(self._events)
            self.now = when
            self._send_away(self.queue.expire(when))
            event()
        self.now = until

    def _arrive(self, visit: Visit) -> None:
        visit.tries += 1
        if self.queue.try_enter(visit.tenant, self.now):
            self._let_in(visit)
            return
        joined = self.queue.join(visit.tenant, self.now)
        if isinstance(joined, Refused):
            self._refuse(visit, joined)
            return
        self._waiting[joined.ticket] = visit
        if joined.displaced:
            self._send_away([joined.displaced])
        # So that its deadline is kept although nothing else happens then.
        self.at(self.now + self.limits.max_wait_s, lambda: None)

    def _let_in(self, visit: Visit) -> None:
        visit.served_s = self.now
        self.held_s[visit.tenant] += visit.stays_s
        self.at(self.now + visit.stays_s, lambda: self._go(visit))

    def _go(self, visit: Visit) -> None:
        for ticket in self.queue.finish(visit.tenant, visit.stays_s, self.now):
            self._let_in(self._waiting.pop(ticket))

    def _send_away(self, gone: Iterable[Refused]) -> None:
        for refused in gone:
            assert refused.ticket is not None
            self._refuse(self._waiting.pop(refused.ticket), refused)

    def _refuse(self, visit: Visit, refused: Refused) -> None:
        self.advice.append(refused.retry_after_s)
        self.causes[refused.cause] += 1
        if visit.tries < self.most_tries:
            self.comes(self.now + refused.retry_after_s, visit)


def stream_of(
    house: House, tenant: str, *, a_second: float, stays_s: float, seconds: float, seed: int
) -> list[Visit]:
    """Clients of a tenant that come at random, as many a second on average; stays vary twofold."""
    rng, when, visits = random.Random(seed), 0.0, []
    while (when := when + rng.expovariate(a_second)) < seconds:
        visit = Visit(TenantId(tenant), stays_s * rng.uniform(0.5, 1.5))
        visits.append(visit)
        house.comes(when, visit)
    return visits
