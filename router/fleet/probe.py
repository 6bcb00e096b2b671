"""Asks every server for its health, again and again."""

from __future__ import annotations

import asyncio
import logging

import aiohttp

from router.clock import Clock
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import FleetState
from router.types import ReplicaId

PROBE_INTERVAL_S = 2.0
_TIMEOUT_S = 2.0
_LATE = 1
"""Probes that a server known to be alive may miss: a busy one is late, not dead."""
_SERVER_ERROR = 500

_log = logging.getLogger("specroute.probe")


class Prober:
    """Probes the servers of one route."""

    def __init__(self, route: RouteFacts, fleet: FleetState, clock: Clock) -> None:
        self._route = route
        self._fleet = fleet
        self._clock = clock
        self._late: dict[ReplicaId, int] = {}
        """Probes in a row that a server has let pass, by servers that have answered before."""

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
                # One that answers 401 or 404 is alive: what it thinks of us is for requests to see.
                up = response.status < _SERVER_ERROR
        except TimeoutError:
            if self._late.get(replica.replica_id, _LATE) < _LATE:
                self._late[replica.replica_id] += 1
                return
            up = False
        except (aiohttp.ClientError, OSError):
            up = False
        else:
            self._late[replica.replica_id] = 0
        if self._fleet.mark(replica, up=up, now=self._clock.monotonic()):
            _log.warning(
                "server is %s", "up" if up else "down", extra={"replica": replica.replica_id}
            )
