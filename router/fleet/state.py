"""The servers of one route from moment to moment, in this process: which of them takes a request.

Two questions, `available` and `lease`, and one thing to be told, `saw`. No I/O: probing, scraping
and finding servers are `probe`, `scrape` and `discovery`, which call the other verbs.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from policies.balance import cost, pick, saved
from policies.types import ArmId
from policies.values import value
from router.clock import Clock, SystemClock
from router.config.routes import Pool
from router.fleet.affinity import AffinityTable
from router.fleet.breaker import BreakerLimits, BreakerState
from router.fleet.cooling import CoolingLimits
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.placement import Placement, Weights
from router.fleet.server import Lease, Server, ServerLimits
from router.types import ReplicaId

__all__ = ["FleetState", "Lease", "Placement", "Prospect", "ReplicaState", "Seen"]

_REMEMBERED = 256
"""Servers of a pool that have gone and get their number back if they return."""

_NOWHERE = Placement()


class Seen(StrEnum):
    """What a request showed of the server that it was sent to."""

    ANSWERED = "answered"
    """An answer below 500, or one that was the request's own fault."""
    FAILED = "failed"
    """It broke off, with 5xx or without a word, or sent nothing in time."""
    UNREACHABLE = "unreachable"
    """No connection: it gets no more requests until a probe finds it up again."""
    BUSY = "busy"
    """429 or 503: it works, and asks for less."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One server now, for display."""

    replica: Replica
    in_flight: int
    up: bool
    """Whether it answers probes and connections."""
    breaker: BreakerState = BreakerState.CLOSED
    open_s: float | None = None
    """Until the breaker lets a request try; None unless it is open."""
    cooling_s: float | None = None
    """Until it may get requests again after it said it was busy; None when it may."""
    suspect: bool = False
    """Whether it has stopped working on what it has."""
    draining: bool = False
    share: float = 1.0
    """How far its slow start is, in (0, 1]."""
    line_s: float = 0.0
    """How long the first stream in line there has waited for its answer to begin."""
    gauges: ReplicaGauges = UNKNOWN
    """What the engine says of its load."""

    @property
    def word(self) -> str:
        """Its state in a word or two, the weightiest first."""
        if self.draining:
            return "draining"
        if not self.up:
            return "down"
        if self.suspect:
            return "suspect"
        if self.breaker is not BreakerState.CLOSED:
            return "open" if self.breaker is BreakerState.OPEN else "half open"
        if self.cooling_s is not None:
            return f"cooling {self.cooling_s:.0f} s"
        return "up" if self.share == 1.0 else f"up, {self.share:.0%}"


@value
class Prospect:
    """What a request would meet on an arm if it came now."""

    load: int = 0
    """Requests at the server that would take it, itself included; 0 where there is no server."""
    cached: float = 0.0
    """Share of its prompt that this server has seen lately, in [0, 1]."""
    bytes_ahead: int = 0
    """Of requests at that server whose streams have sent nothing yet."""
    waited_s: float = 0.0
    """How long the first of these has waited that nobody has overtaken."""


_NOBODY = Prospect()


class _PoolState:
    """The servers of one arm."""

    def __init__(self, facts: PoolFacts, *, baseline: bool) -> None:
        settings = facts.settings
        self.facts = facts
        self.baseline = baseline
        self.limits = limits_of(settings)
        self.table = AffinityTable(settings.balance.affinity_blocks, settings.balance.affinity_s)
        self.remembers = bool(settings.balance.affinity and settings.balance.affinity_blocks)
        self.servers: list[Server] = []
        self.numbers: OrderedDict[str, int] = OrderedDict()
        """By URL, of those that are there and of some that were."""

    def number(self, url: str) -> int:
        """The number of a server: the one it had, else the smallest that nobody has."""
        known = self.numbers.get(url)
        if known is not None:
            return known
        here = {server.replica.url for server in self.servers}
        gone = [other for other in self.numbers if other not in here]
        for other in gone[: max(len(gone) - _REMEMBERED, 0)]:
            del self.numbers[other]
        taken = set(self.numbers.values())
        self.numbers[url] = next(n for n in count() if n not in taken)
        return self.numbers[url]


class FleetState:
    """Load and health of every server of one route.

    Args:
        route: Its pools.
        clock: Time, for the questions that come without one: the same that `now` is taken from.
        uniform: Draws from [0, 1); the machine's by default.
    """

    def __init__(
        self,
        route: RouteFacts,
        clock: Clock | None = None,
        *,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock or SystemClock()
        self._uniform = uniform
        self._lives = count(1)
        self._pools = {
            arm_id: _PoolState(pool, baseline=arm_id == route.baseline)
            for arm_id, pool in route.pools.items()
        }
        self._servers: dict[ReplicaId, Server] = {}
        for pool in self._pools.values():
            for replica in pool.facts.replicas:
                pool.numbers[replica.url] = int(replica.replica_id.rpartition("/")[2])
                self._add(pool, replica, None)

    # --- The request path ---------------------------------------------------------------------

    def available(self, arm_id: ArmId) -> bool:
        """Whether a server of the arm would take a request as any other."""
        now = self._clock.monotonic()
        for server in self._pools[arm_id].servers:  # noqa: SIM110 - a generator costs as much again
            if server.usable(now):
                return True
        return False

    def has_choice(self, arm_id: ArmId) -> bool:
        """Whether the arm has more than one server, so that it matters which one gets a request."""
        return len(self._pools[arm_id].servers) > 1

    def lease(
        self,
        arm_id: ArmId,
        placement: Placement = _NOWHERE,
        exclude: frozenset[ReplicaId] = frozenset(),
        *,
        now: float,
    ) -> Lease | None:
        """Places a request at a server of the arm.

        A server whose breaker waits to be tried gets the request, unless that has been tried
        elsewhere already. The baseline gives the least bad of its servers when none is usable,
        since trying beats refusing, but never one that is being drained. None when there is no
        server left.
        """
        pool = self._pools[arm_id]
        candidates: list[Server] = []
        for server in pool.servers:
            if server.replica.replica_id in exclude or not server.usable(now):
                continue
            if not exclude and server.wants_probe(now):
                candidates = [server]
                break
            candidates.append(server)
        if not candidates:
            chosen = _least_bad(pool, exclude, now)
        elif len(candidates) == 1:
            chosen = candidates[0]
        else:
            chosen = self._pick(pool, candidates, placement, now)
        if chosen is None:
            return None
        if pool.remembers:
            pool.table.keep(placement.prefix, chosen.life, now)
        return chosen.begin(now, streamed=placement.streamed, prompt_bytes=placement.prompt_bytes)

    def prospects(self, prefix: tuple[int, ...], now: float | None = None) -> tuple[Prospect, ...]:
        """What a request would meet on each arm, in the route's order; nothing is placed.

        Args:
            prefix: Hashes of the beginnings of its prompt (`router.fleet.affinity`).
            now: Monotonic; this moment by default.
        """
        if now is None:
            now = self._clock.monotonic()
        return tuple([_prospect(pool, prefix, now) for pool in self._pools.values()])

    def saw(
        self, replica: Replica, seen: Seen, *, now: float, retry_after_s: float | None = None
    ) -> bool:
        """A request showed something of a server; returns whether that took the server out.

        Args:
            replica: The server.
            seen: What was seen.
            now: Monotonic.
            retry_after_s: What a busy server asked for; None where it did not.
        """
        server = self._server(replica)
        if server is None:
            return False
        if seen is Seen.ANSWERED:
            server.answered(now)
            return False
        if seen is Seen.BUSY:
            server.busy(now, retry_after_s)
            return False
        opened = server.failed(now)
        if seen is Seen.UNREACHABLE:
            return self.mark(replica, up=False, now=now) or opened
        return opened

    def _pick(
        self, pool: _PoolState, candidates: list[Server], placement: Placement, now: float
    ) -> Server:
        shares = [server.share(now) for server in candidates]
        costs = [
            cost(server.load(now), share) for server, share in zip(candidates, shares, strict=True)
        ]
        if pool.remembers and placement.prefix:
            lives = {server.life: index for index, server in enumerate(candidates)}
            holders, matched = pool.table.match(placement.prefix, lives, now)
            less = saved(matched, placement.prompt_bytes, pool.limits.weights.affinity)
            for life in holders:
                costs[lives[life]] *= 1.0 - less
        return candidates[pick(costs, shares, self._uniform)]

    # --- What the background work tells -------------------------------------------------------

    def mark(self, replica: Replica, *, up: bool, now: float) -> bool:
        """Records that a server answers or does not; returns whether that is news."""
        server = self._server(replica)
        return server is not None and server.mark(up=up, now=now, life=next(self._lives))

    def tell(self, replica: Replica, gauges: ReplicaGauges) -> None:
        """Records what an engine says of its load."""
        server = self._server(replica)
        if server is not None:
            server.tell(gauges)

    def watch(self, now: float) -> list[tuple[Replica, bool]]:
        """Looks for servers that stopped working, or work again: these, and whether suspect."""
        return [
            (server.replica, server.stalled)
            for server in self._servers.values()
            if server.watch(now)
        ]

    def drain(self, replica_id: ReplicaId, *, draining: bool) -> bool:
        """Takes a server out for new requests, or puts it back; whether there is such a server."""
        server = self._servers.get(replica_id)
        if server is None:
            return False
        server.drain(draining=draining, now=self._clock.monotonic())
        return True

    def replace(self, arm_id: ArmId, found: Sequence[tuple[str, float]], now: float) -> bool:
        """Takes the URLs and weights of an arm's servers; returns whether anything is new.

        Servers that stay keep all that is known of them; new ones start slowly unless they are the
        first; requests at servers that have gone run on.
        """
        pool = self._pools[arm_id]
        wanted = dict(found)
        first = not pool.servers
        changed = False
        for server in tuple(pool.servers):
            weight = wanted.pop(server.replica.url, None)
            if weight is None:
                pool.servers.remove(server)
                pool.numbers.move_to_end(server.replica.url)
                del self._servers[server.replica.replica_id]
                changed = True
            elif weight != server.weight:
                server.weight = weight
                changed = True
        for url, weight in wanted.items():
            replica = pool.facts.replica(pool.number(url), url, weight)
            self._add(pool, replica, None if first else now)
            changed = True
        return changed

    def adopt(self, old: FleetState, now: float) -> None:
        """Goes on where a fleet under an older configuration left off.

        Servers are the same where their pool has the same name and they the same address: they keep
        what is known of them, drains included. Others start slowly.
        """
        for arm_id, pool in self._pools.items():
            before = old._pools.get(arm_id)
            if before is not None and pool.facts.settings.discover is not None:
                pool.numbers = OrderedDict(before.numbers)
                for server in before.servers if not pool.servers else ():
                    url, weight = server.replica.url, server.weight
                    self._add(pool, pool.facts.replica(pool.number(url), url, weight), now)
        self.go_on(old, now)

    def go_on(self, old: FleetState, now: float) -> None:
        """Takes what is known of the servers now, once more when requests begin to come here.

        Until then the older fleet served: probes, failures and orders of operators went there.
        """
        self._lives = old._lives
        for arm_id, pool in self._pools.items():
            before = old._pools.get(arm_id)
            known = {} if before is None else {item.replica.url: item for item in before.servers}
            for server in pool.servers:
                server.life = next(self._lives)
                if server.replica.url in known:
                    server.adopt(known[server.replica.url])
                else:
                    server.start_slowly(now)
            if before is not None and pool.facts.settings.balance == before.facts.settings.balance:
                pool.table = before.table

    # --- What is shown ------------------------------------------------------------------------

    def replicas(self, arm_id: ArmId) -> tuple[Replica, ...]:
        """The servers of an arm, in their order."""
        return tuple(server.replica for server in self._pools[arm_id].servers)

    def known(self) -> frozenset[Replica]:
        """All servers of the route."""
        return frozenset(server.replica for server in self._servers.values())

    def answers(self, arm_id: ArmId) -> bool:
        """Whether any server of the arm is up and not taken out, however busy or suspect."""
        return any(server.up and not server.draining for server in self._pools[arm_id].servers)

    def view(self) -> Mapping[ArmId, tuple[ReplicaState, ...]]:
        """All servers now, by arm."""
        now = self._clock.monotonic()
        return {
            arm_id: tuple(_shown(server, now) for server in pool.servers)
            for arm_id, pool in self._pools.items()
        }

    def _add(self, pool: _PoolState, replica: Replica, now: float | None) -> None:
        server = Server(replica, pool.limits, life=next(self._lives), now=now)
        pool.servers.append(server)
        self._servers[replica.replica_id] = server

    def _server(self, replica: Replica) -> Server | None:
        """The server, unless it has gone and its number is another's."""
        server = self._servers.get(replica.replica_id)
        return server if server is not None and server.replica.url == replica.url else None


def limits_of(pool: Pool) -> ServerLimits:
    """What the servers of a pool are judged by."""
    health, balance = pool.health, pool.balance
    return ServerLimits(
        breaker=BreakerLimits(**health.breaker.model_dump()),
        cooling=CoolingLimits(health.cool_s, health.cool_cap_s),
        slow_start_s=balance.slow_start_s,
        stall_s=health.stall_s,
        stall_requests=health.stall_requests,
        weights=Weights(balance.queue, balance.kv, balance.affinity),
    )


def _prospect(pool: _PoolState, prefix: tuple[int, ...], now: float) -> Prospect:
    usable = [server for server in pool.servers if server.usable(now)]
    if not usable:
        return _NOBODY
    best = usable[0]
    if len(usable) > 1:
        costs = [cost(server.load(now), server.share(now)) for server in usable]
        best = usable[costs.index(min(costs))]
    if not (prefix and pool.remembers and len(pool.table)):
        return _at(best, now)
    by_life = {server.life: server for server in usable}
    holders, matched = pool.table.match(prefix, by_life, now)
    if not holders:
        return _at(best, now)
    if best.life in holders:
        return _at(best, now, matched)
    less = pool.limits.weights.affinity * matched
    holder = min(map(by_life.__getitem__, holders), key=lambda server: server.load(now))
    if cost(holder.load(now), holder.share(now), less) > cost(best.load(now), best.share(now)):
        return _at(best, now)
    return _at(holder, now, matched)


def _at(server: Server, now: float, cached: float = 0.0) -> Prospect:
    return Prospect(server.meets, cached, *server.line(now))


def _least_bad(pool: _PoolState, exclude: frozenset[ReplicaId], now: float) -> Server | None:
    if not pool.baseline:
        return None
    left = [
        server
        for server in pool.servers
        if server.replica.replica_id not in exclude and not server.draining
    ]
    return min(left, key=lambda server: (*server.badness(now), server.load(now)), default=None)


def _shown(server: Server, now: float) -> ReplicaState:
    breaker = server.breaker
    is_open = breaker.state is BreakerState.OPEN
    return ReplicaState(
        replica=server.replica,
        in_flight=len(server.leases),
        up=server.up,
        breaker=breaker.state,
        open_s=max(breaker.open_until - now, 0.0) if is_open else None,
        cooling_s=server.cooling.until - now if server.cooling.until > now else None,
        suspect=server.stalled,
        draining=server.draining,
        share=server.ramp(now),
        line_s=server.line(now)[1],
        gauges=server.gauges,
    )
