"""Asks every server for its health, again and again."""

from __future__ import annotations

import asyncio
import logging

import aiohttp

from router.clock import Clock
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import FleetState

PROBE_INTERVAL_S = 2.0
_TIMEOUT_S = 2.0
_OK = 200

_log = logging.getLogger("specroute.probe")


class Prober:
    """Probes the servers of one route."""

    def __init__(self, route: RouteFacts, fleet: FleetState, clock: Clock) -> None:
        self._route = route
        self._fleet = fleet
        self._clock = clock

    async def round(self) -> None:
        """Probes all servers once, side by side."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(
                *(
                    self._probe(session, pool, replica)
                    for pool in self._route.pools.values()
                    for replica in pool.replicas
                )
            )

    async def _probe(
        self, session: aiohttp.ClientSession, pool: PoolFacts, replica: Replica
    ) -> None:
        headers = {"Authorization": f"Bearer {replica.api_key}"} if replica.api_key else {}
        try:
            async with session.get(
                replica.url + pool.adapter.health_path, headers=headers, allow_redirects=False
            ) as response:
                up = response.status == _OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            up = False
        if self._fleet.mark(replica, up=up, now=self._clock.monotonic()):
            _log.warning(
                "server is %s", "up" if up else "down", extra={"replica": replica.replica_id}
            )
