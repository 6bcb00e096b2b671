"""Reads the load of servers and their counters from the engines' own metrics, again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from policies.types import ArmId
from router.clock import Clock
from router.engines.counters import ReplicaCounters, read_counters
from router.fleet.apart import Apart, Work
from router.fleet.fetch import Fetch, GoneError, LateError
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.rounds import Rounds, Target, credentials
from router.fleet.state import FleetState

_TIMEOUT_S = 2.0
_MOST_BYTES = 4 * 1024 * 1024
_OK = 200
_NO_METRICS = frozenset((404, 405, 501))
_ASK_AGAIN_S = 60.0
"""A server without metrics may be restarted with them."""
_WORTH = 3
"""Intervals for which figures are better than none."""


class CounterBook(Protocol):
    """Takes what engines have counted (`router.estimates.counted.Counted`)."""

    def take(self, arm_id: ArmId, url: str, counters: ReplicaCounters | None, wall: float) -> None:
        """Takes a reading of a server; None if it did not tell."""

    def gone(self, arm_id: ArmId, url: str, wall: float) -> None:
        """Takes that no server is there."""

    def keep(self, known: Mapping[ArmId, Collection[str]], wall: float) -> None:
        """Takes which servers there are that are read."""


class Scraper:
    """Reads the metrics of one route's servers.

    Args:
        route: Its pools.
        fleet: Takes the load.
        clock: When it is time to read.
        fetch: Gets the pages.
        uniform: Draws from [0, 1).
        book: Takes the counters.
        wall: The time it is told with them, that of the slots; without it the wall clock's.
    """

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        clock: Clock,
        fetch: Fetch,
        *,
        uniform: Callable[[], float] = random.random,
        book: CounterBook | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._book = book
        self._wall = wall or clock.wall
        self._arms = tuple(
            pool.arm.arm_id for pool in route.pools.values() if interval_s(pool) > 0.0
        )
        self._fleet = fleet
        self._clock = clock
        self._fetch = fetch
        self._rounds = Rounds(route, fleet, interval_s, uniform)
        self._read: dict[Replica, float] = {}
        """When figures of a server were last read."""
        self.apart = Apart[Replica]()

    async def round(self) -> None:
        """Reads all servers' metrics once, side by side."""
        await self.apart.finish(self._work(self._rounds.everyone(self._clock.monotonic())))

    async def due(self) -> None:
        """Begins to read the metrics of the servers whose time has come."""
        known = self._fleet.known()
        self._read = {key: value for key, value in self._read.items() if key in known}
        self.apart.keep(known)
        targets = self._rounds.due(self._clock.monotonic(), self.apart.busy)
        await self.apart.begin(self._work(targets))

    def adopt(self, old: Scraper) -> None:
        """Goes on where the scraper of the same servers under an older configuration left off.

        Their figures are taken over with their state, and must age like any others.
        """
        read = {replica.place: at for replica, at in old._read.items()}
        for replica in self._fleet.known():
            at = read.get(replica.place)
            if at is not None:
                self._read[replica] = at

    def _work(self, targets: Sequence[Target]) -> dict[Replica, Work]:
        if self._book is not None and targets:
            urls = {arm: [one.url for one in self._fleet.replicas(arm)] for arm in self._arms}
            self._book.keep(urls, self._wall())
        return {target.replica: partial(self._scrape, target) for target in targets}

    async def _scrape(self, target: Target) -> None:
        replica = target.replica
        gauges = await self._gauges(target)
        now = self._clock.monotonic()
        if gauges.known:
            self._read[replica] = now
            self._fleet.tell(replica, gauges)
        elif replica in self._read:
            worth_s = _WORTH * interval_s(target.pool)
            if now - self._read[replica] >= worth_s:
                del self._read[replica]
                self._fleet.tell(replica, UNKNOWN)

    async def _gauges(self, target: Target) -> ReplicaGauges:
        adapter, replica = target.pool.adapter, target.replica
        try:
            page = await self._fetch.get(
                replica.url + adapter.metrics_path,
                headers=credentials(replica),
                timeout_s=_TIMEOUT_S,
                most_bytes=_MOST_BYTES,
            )
        except GoneError:
            if self._book is not None:
                self._book.gone(target.pool.arm.arm_id, replica.url, self._wall())
            return UNKNOWN
        except LateError:
            return self._unread(target)
        if page.status in _NO_METRICS:
            self._rounds.put_off(replica, self._clock.monotonic() + _ASK_AGAIN_S)
        if page.status != _OK or len(page.body) >= _MOST_BYTES:
            return self._unread(target)  # of a page that was cut, the last figure may be too
        text = page.body.decode("utf-8", "replace")
        self._count(target, read_counters(text))
        return adapter.gauges(text)

    def _unread(self, target: Target) -> ReplicaGauges:
        self._count(target, None)
        return UNKNOWN

    def _count(self, target: Target, counters: ReplicaCounters | None) -> None:
        if self._book is not None:
            arm_id, url = target.pool.arm.arm_id, target.replica.url
            self._book.take(arm_id, url, counters, self._wall())


def interval_s(pool: PoolFacts) -> float:
    """Between two readings of a pool's servers; 0 for none."""
    configured = pool.settings.balance.scrape_s
    return pool.adapter.scrape_s if configured is None else configured
