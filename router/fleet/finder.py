"""Keeps the sets of servers up to date; a source that fails leaves the last set in use."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from policies.types import ArmId
from router.clock import Clock
from router.fleet.apart import Apart, Work
from router.fleet.discovery import Discovery, DiscoveryError, discovery_for
from router.fleet.model import PoolFacts, RouteFacts
from router.fleet.state import FleetState

_log = logging.getLogger("specroute.discovery")


@dataclass(slots=True)
class _Source:
    """Where one pool's servers come from."""

    arm_id: ArmId
    pool: PoolFacts
    discovery: Discovery
    next: float = field(default=0.0)
    error: str | None = None
    """Why the last look found nothing out."""


class Finder:
    """Finds the servers of one route; of pools whose servers are listed there is nothing to find.

    Args:
        route: Its pools.
        fleet: Is told what is found.
        clock: Time.
        sources: By arm, in place of what the configuration asks for.
    """

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        clock: Clock,
        sources: Mapping[ArmId, Discovery] | None = None,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        given = sources or {}
        self._sources = [
            _Source(arm_id, pool, given.get(arm_id) or discovery_for(pool.settings))
            for arm_id, pool in route.pools.items()
            if pool.settings.discover is not None
        ]
        self.apart = Apart[ArmId]()

    async def round(self) -> None:
        """Looks for the servers of all pools."""
        await self.apart.finish(self._work(self._sources))

    async def due(self) -> None:
        """Begins to look for the servers of the pools whose time has come."""
        now, busy = self._clock.monotonic(), self.apart.busy
        due = [source for source in self._sources if source.next <= now]
        await self.apart.begin(self._work([one for one in due if one.arm_id not in busy]))

    def errors(self) -> Mapping[ArmId, str]:
        """Why the servers of a pool could not be looked for, by arm; the last set is in use."""
        return {source.arm_id: source.error for source in self._sources if source.error is not None}

    def _work(self, sources: Sequence[_Source]) -> dict[ArmId, Work]:
        return {source.arm_id: partial(self._find, source) for source in sources}

    async def _find(self, source: _Source) -> None:
        discover = source.pool.settings.discover
        source.next = self._clock.monotonic() + (discover.interval_s if discover else 0.0)
        try:
            found = await source.discovery.find()
        except DiscoveryError as error:
            if source.error != str(error):
                _log.warning(
                    "servers not found; the last set stays in use",
                    extra={"pool": source.arm_id, "error": str(error)},
                )
            source.error = str(error)
            return
        if source.error is not None:
            _log.info("servers found again", extra={"pool": source.arm_id})
        source.error = None
        wanted = [(item.url, item.weight) for item in found]
        if self._fleet.replace(source.arm_id, wanted, now=self._clock.monotonic()):
            _log.info("set of servers", extra={"pool": source.arm_id, "servers": len(wanted)})
