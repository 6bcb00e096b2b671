"""A fair queue before a bounded number of places: a state machine without clock, I/O or tasks.

Between tenants it is start-time fair queuing (Goyal, Vin and Cheng, 1996) in which what a tenant
has in flight counts as served: the virtual time V advances by one round while as many requests are
let in as there are places, and a tenant's turn comes at V, as it was when its oldest request came
to the head of its line, plus one round for each request that it has in flight. So the tenant with
the fewest in flight is next, tenants that want more than there is end up with the same number of
places however many requests they send and however long those stay, and nobody is passed more than
(in flight × places + waiting tenants) times. Within a tenant, first come, first served.

When the queue is full, a tenant with less than its share of it takes the place of the youngest
request of whoever has most waiting: a flood fills its own share and is refused beyond it.

A tenant with nothing here leaves no trace, so memory is bounded by places and waiting places.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from router.admission.stays import LONGEST_S, Stays, advised
from router.types import TenantId

Ticket = NewType("Ticket", int)
"""Number of a waiting request; never used twice."""

_STALE_TURNS = 64
_ANY = 2**62

_ADVISED_SHARE = 0.6
"""Of the places that become free, what is spoken for by advice: a queue that is fed as fast as it
drains never gets shorter, and few places become free unevenly. The simulated rushes of
tests/unit/admission/test_queue.py and `bench/verify_limits.py` hold it to this: of those who come
back as told, 95 % are served then."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is let in."""

    max_concurrent: int
    max_concurrent_per_tenant: int
    max_waiting: int
    max_wait_s: float
    by_tenant: Mapping[TenantId, int] = field(default_factory=dict)
    """Lower limits of tenants that have one of their own."""

    def of(self, tenant: TenantId) -> int:
        """Places that a tenant may have."""
        return min(self.max_concurrent_per_tenant, self.by_tenant.get(tenant, _ANY))


class Cause(StrEnum):
    """Why a request is sent away."""

    QUEUE_FULL = "queue_full"
    DISPLACED = "displaced"
    """It waited beyond its tenant's share, and a tenant below its own came."""
    DEADLINE = "deadline"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is sent away."""

    cause: Cause
    by_tenant: bool
    """Its tenant had all the places it may have; else the process had."""
    retry_after_s: int
    ticket: Ticket | None = None
    """None when it has not waited."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A request that waits."""

    ticket: Ticket
    displaced: Refused | None = None
    """Who had to go for it."""


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """What a tenant has here."""

    tenant: TenantId
    in_flight: int
    waiting: int


class _Tenant:
    """One tenant that has something here."""

    __slots__ = ("first", "in_flight", "name", "promised_s", "round", "stays", "turn", "waiting")

    def __init__(self, name: TenantId, stays: Stays, now: float) -> None:
        self.name = name
        self.in_flight = 0
        self.waiting: OrderedDict[Ticket, None] = OrderedDict()
        self.first: list[Ticket] = []
        """Of these, who came back as told; they are at the head of the line."""
        self.round = 0.0
        """Virtual time when its oldest request came to the head of its line."""
        self.turn = 0
        """Number of that event; decides between equal rounds."""
        self.stays = stays
        self.promised_s = now
        """Up to when the places that it will get are spoken for by advice given."""

    def go_first(self, ticket: Ticket) -> None:
        """Puts one that has just joined before all but those who were put there before."""
        self.first = [earlier for earlier in self.first if earlier in self.waiting]
        for waiting in (ticket, *reversed(self.first)):
            self.waiting.move_to_end(waiting, last=False)
        self.first.append(ticket)


@dataclass(slots=True)
class _Waiting:
    tenant: _Tenant
    since_s: float


class FairQueue:
    """The places of one process. `now` is always the monotonic clock, in seconds."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._tenants: dict[TenantId, _Tenant] = {}
        self._waiting: OrderedDict[Ticket, _Waiting] = OrderedDict()
        """In the order of arrival, which is the order of deadlines too."""
        self._lines = 0
        """Tenants with somebody waiting."""
        self._turns: list[tuple[float, int, _Tenant]] = []
        """A heap of whose turn it is; some entries are overtaken by events, see `_holds`."""
        self._virtual = 0.0
        self._counter = 0
        self._stays = Stays(now)
        self._promised_s = now
        self._draining = False
        self.in_flight = 0
        """Places taken."""

    @property
    def limits(self) -> Limits:
        """What holds now."""
        return self._limits

    @property
    def waiting(self) -> int:
        """Requests waiting."""
        return len(self._waiting)

    @property
    def tenants(self) -> int:
        """Tenants that have something here."""
        return len(self._tenants)

    def loads(self) -> Iterator[TenantLoad]:
        """What each of them has."""
        for tenant in self._tenants.values():
            yield TenantLoad(tenant.name, tenant.in_flight, len(tenant.waiting))

    # --- Events -------------------------------------------------------------------------------

    def try_enter(self, name: TenantId, now: float) -> bool:
        """Takes a place if there is one for this tenant; overtakes nobody.

        Whoever waits has no room, or would have been let in: so where there is room for this
        tenant, none of its requests waits, and nobody else could use the place.
        """
        if self.in_flight >= self._limits.max_concurrent:
            return False
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name, Stays(now, self._stays.seen_s), now)
        elif tenant.in_flight >= self._limits.of(name):
            return False
        tenant.in_flight += 1
        self.in_flight += 1
        return True

    def join(self, name: TenantId, now: float, *, first: bool = False) -> Queued | Refused:
        """Queues a request for which `try_enter` has just found no place.

        Args:
            name: Whose it is.
            now: Monotonic clock.
            first: It was refused before and comes back as it was told: it goes before the others
                of its tenant.
        """
        tenant = self._tenants.get(name)
        if self._draining:
            return self._refused(tenant, Cause.DRAINING, now)
        if self._limits.max_wait_s <= 0:
            return self._refused(tenant, Cause.QUEUE_FULL, now)
        displaced = None
        if len(self._waiting) >= self._limits.max_waiting:
            crowd = self._over_share(tenant)
            if crowd is None:
                return self._refused(tenant, Cause.QUEUE_FULL, now)
            youngest = next(reversed(crowd.waiting))
            displaced = self._refused(crowd, Cause.DISPLACED, now, youngest)
            self._remove(youngest)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name, Stays(now, self._stays.seen_s), now)
        self._counter += 1
        ticket = Ticket(self._counter)
        tenant.waiting[ticket] = None
        if first:
            tenant.go_first(ticket)
        self._waiting[ticket] = _Waiting(tenant, now)
        if len(tenant.waiting) == 1:
            self._lines += 1
            self._come_to_head(tenant)
        return Queued(ticket, displaced)

    def leave(self, ticket: Ticket) -> None:
        """A waiting request goes away by itself."""
        self._remove(ticket)

    def finish(self, name: TenantId, stay_s: float | None, now: float) -> list[Ticket]:
        """Gives a place back.

        Args:
            name: Whose it was.
            stay_s: For how long; None for a place that was never used.
            now: Monotonic clock.

        Returns:
            Who is let in.
        """
        tenant = self._tenants[name]
        tenant.in_flight -= 1
        self.in_flight -= 1
        if stay_s is not None:
            self._stays.saw(stay_s, now)
            tenant.stays.saw(stay_s, now)
        if tenant.waiting:
            self._await_turn(tenant)
        elif not tenant.in_flight:
            del self._tenants[name]
        return self._fill() if self._waiting else []

    def expire(self, now: float) -> list[Refused]:
        """Sends away who has waited for as long as anybody may."""
        gone: list[Refused] = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            ticket, waiting = next(iter(self._waiting.items()))
            gone.append(self._refused(waiting.tenant, Cause.DEADLINE, now, ticket))
            self._remove(ticket)
        return gone

    def next_deadline(self) -> float | None:
        """When `expire` has something to do; None while nobody waits."""
        for waiting in self._waiting.values():
            return waiting.since_s + self._limits.max_wait_s
        return None

    def change(self, limits: Limits) -> list[Ticket]:
        """Uses other limits from now on; returns who is let in. Nobody is thrown out."""
        self._limits = limits
        for tenant in self._tenants.values():
            if tenant.waiting:
                self._await_turn(tenant)
        return self._fill()

    def drain(self, now: float) -> list[Refused]:
        """Sends all away who wait, and from now on whoever would have to."""
        self._draining = True
        gone = [
            self._refused(waiting.tenant, Cause.DRAINING, now, ticket)
            for ticket, waiting in self._waiting.items()
        ]
        for refused in gone:
            if refused.ticket is not None:
                self._remove(refused.ticket)
        return gone

    # --- Turns --------------------------------------------------------------------------------

    def _come_to_head(self, tenant: _Tenant) -> None:
        """Its next request is now the oldest of its line."""
        self._counter += 1
        tenant.round, tenant.turn = self._virtual, self._counter
        self._await_turn(tenant)

    def _await_turn(self, tenant: _Tenant) -> None:
        if tenant.in_flight < self._limits.of(tenant.name):
            heapq.heappush(self._turns, (tenant.round + tenant.in_flight, tenant.turn, tenant))
            if len(self._turns) > 2 * self._lines + _STALE_TURNS:
                self._forget_stale_turns()

    def _forget_stale_turns(self) -> None:
        # By turn, since a change of limits may have entered a tenant twice.
        valid = {entry[1]: entry for entry in self._turns if self._holds(*entry)}
        self._turns = list(valid.values())
        heapq.heapify(self._turns)

    def _holds(self, key: float, turn: int, tenant: _Tenant) -> bool:
        """Whether an entry of the heap still says what is the case."""
        return (
            bool(tenant.waiting)
            and turn == tenant.turn
            and key == tenant.round + tenant.in_flight
            and tenant.in_flight < self._limits.of(tenant.name)
        )

    def _fill(self) -> list[Ticket]:
        admitted: list[Ticket] = []
        while self._turns and self.in_flight < self._limits.max_concurrent:
            key, turn, tenant = heapq.heappop(self._turns)
            if not self._holds(key, turn, tenant):
                continue
            self._virtual += 1 / self._limits.max_concurrent
            ticket, _ = tenant.waiting.popitem(last=False)
            del self._waiting[ticket]
            tenant.in_flight += 1
            self.in_flight += 1
            admitted.append(ticket)
            if tenant.waiting:
                self._come_to_head(tenant)
            else:
                self._end_line()
        return admitted

    def _remove(self, ticket: Ticket) -> None:
        tenant = self._waiting.pop(ticket).tenant
        del tenant.waiting[ticket]
        if tenant.waiting:
            return  # the next of the line inherits the turn
        self._end_line()
        if not tenant.in_flight:
            del self._tenants[tenant.name]

    def _end_line(self) -> None:
        self._lines -= 1
        if not self._lines:
            self._turns.clear()
            self._virtual = 0.0

    # --- Refusals -----------------------------------------------------------------------------

    def _over_share(self, tenant: _Tenant | None) -> _Tenant | None:
        """Who must make room in a full queue for one more of this tenant; None for nobody."""
        own = len(tenant.waiting) if tenant else 0
        share = len(self._waiting) // (self._lines + (own == 0))
        if own >= share:
            return None
        # Someone has more than the share then, and keeps at least as many as the newcomer gets.
        return max(self._tenants.values(), key=lambda other: len(other.waiting))

    def _refused(
        self, tenant: _Tenant | None, cause: Cause, now: float, ticket: Ticket | None = None
    ) -> Refused:
        by_tenant = tenant is not None and tenant.in_flight >= self._limits.of(tenant.name)
        return Refused(
            cause, by_tenant, self._retry_after(tenant, now, by_tenant=by_tenant), ticket
        )

    def _retry_after(self, tenant: _Tenant | None, now: float, *, by_tenant: bool) -> int:
        """When a place is likely to be free for one more of this tenant.

        Advice is given out like the places themselves, one after another at about the rate at which
        they become free: if all were told the same second, all but a few would come in vain.
        """
        stays = tenant.stays if tenant else self._stays
        share = max(self.in_flight, 1) / max(self._lines, 1)
        rate = (tenant.in_flight if tenant and by_tenant else share) / stays.mean_s(now)
        ahead_s = (len(tenant.waiting) if tenant else 0) / rate
        # Who comes back may wait again; half of that time is room for error.
        ahead_s -= min(ahead_s, self._limits.max_wait_s) / 2
        # Those who were refused within one moment come back within one, so that each second brings
        # all of its share at once: no more of them than can wait.
        rate = min(_ADVISED_SHARE * rate, max(self._limits.max_waiting / max(self._lines, 1), 1.0))
        promised_s = tenant.promised_s if tenant else self._promised_s
        next_s = min(max(promised_s, now + ahead_s) + 1 / rate, now + LONGEST_S)
        if tenant:
            tenant.promised_s = next_s
        else:
            self._promised_s = next_s
        return advised(next_s - now)
