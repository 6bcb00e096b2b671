"""What is done for the fleet of a route besides serving: find, probe, scrape, identify, watch."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from router.clock import Clock
from router.fleet.apart import Apart
from router.fleet.fetch import Fetch
from router.fleet.finder import Finder
from router.fleet.identify import Identifier
from router.fleet.model import RouteFacts
from router.fleet.probe import Prober
from router.fleet.scrape import CounterBook, Scraper
from router.fleet.state import FleetState

PROBE_INTERVAL_S = 0.25
"""How often it is looked whose time has come."""
_WATCH_S = 1.0

_log = logging.getLogger("specroute.fleet")


class FleetUpkeep:
    """The background work of one route's fleet: each kind for each server waits for no other."""

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
        self._fleet = fleet
        self._clock = clock
        self._watched = clock.monotonic()
        self.finder = Finder(route, fleet, clock)
        self.prober = Prober(route, fleet, clock, fetch, uniform=uniform)
        self.scraper = Scraper(route, fleet, clock, fetch, uniform=uniform, book=book, wall=wall)
        self.identifier = Identifier(route, fleet, clock, fetch, uniform=uniform)

    async def round(self) -> None:
        """Finds all servers, then probes them."""
        await self.finder.round()
        await self.prober.round()

    async def meet(self) -> None:
        """Finds all servers, then probes those that have not been probed yet."""
        await self.finder.round()
        await self.prober.meet()

    def adopt(self, old: FleetUpkeep) -> None:
        """Goes on where the work for the same servers under an older configuration left off."""
        self.prober.adopt(old.prober)
        self.scraper.adopt(old.scraper)

    def end(self) -> None:
        """Ends what is being done; nothing begins any more."""
        for apart in self._aparts():
            apart.end()

    async def close(self) -> None:
        """Ends what is being done and waits until it has ended."""
        await asyncio.gather(*(apart.close() for apart in self._aparts()))

    def work(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Names and functions, to be called again and again."""
        yield "find", self.finder.due
        yield "probe", self.prober.due
        yield "scrape", self.scraper.due
        yield "identify", self.identifier.due
        yield "watch", self.watch

    def _aparts(self) -> tuple[Apart[Any], ...]:
        return (self.finder.apart, self.prober.apart, self.scraper.apart, self.identifier.apart)

    async def watch(self) -> None:
        """Looks for servers that have stopped working, once a second."""
        now = self._clock.monotonic()
        if now - self._watched < _WATCH_S:
            return
        self._watched = now
        for replica, suspect in self._fleet.watch(now):
            _log.warning(
                "server is suspect: it sends nothing" if suspect else "server works again",
                extra={"replica": replica.replica_id},
            )
