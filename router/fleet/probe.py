"""Asks every server for its health, again and again."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from router.clock import Clock
from router.config.servers import Health
from router.fleet.apart import Apart, Work
from router.fleet.fetch import Fetch, GoneError, LateError
from router.fleet.model import Replica, RouteFacts
from router.fleet.rounds import Rounds, Target, credentials
from router.fleet.state import FleetState

_SERVER_ERROR = 500

_log = logging.getLogger("specroute.probe")


@dataclass(slots=True)
class _Record:
    """The last probes of a server."""

    answered: bool = False
    """Whether it ever did. One that never has gets no credit: it may be another server's place."""
    missed: int = 0
    """In a row."""
    hit: int = 0
    """In a row."""


class Prober:
    """Probes the servers of one route."""

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        clock: Clock,
        fetch: Fetch,
        *,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._fetch = fetch
        self._rounds = Rounds(route, fleet, lambda pool: pool.settings.health.interval_s, uniform)
        self._records: dict[Replica, _Record] = {}
        self.apart = Apart[Replica]()

    async def round(self) -> None:
        """Probes all servers once, side by side."""
        await self.apart.finish(self._work(self._rounds.everyone(self._clock.monotonic())))

    async def meet(self) -> None:
        """Probes once, side by side, the servers that have not been probed yet."""
        targets = self._rounds.everyone(self._clock.monotonic())
        new = [target for target in targets if target.replica not in self._records]
        await self.apart.finish(self._work(new))

    async def due(self) -> None:
        """Begins to probe the servers whose time has come."""
        known = self._fleet.known()
        self._records = {key: value for key, value in self._records.items() if key in known}
        self.apart.keep(known)
        targets = self._rounds.due(self._clock.monotonic(), self.apart.busy)
        await self.apart.begin(self._work(targets))

    def adopt(self, old: Prober) -> None:
        """Goes on where the prober of the same servers under an older configuration left off.

        How many probes in a row were missed is so counted across a reload, and who has been alive
        is still known to have been.
        """
        records = {replica.place: record for replica, record in old._records.items()}
        for replica in self._fleet.known():
            record = records.get(replica.place)
            if record is not None:
                self._records[replica] = record
        self._rounds.adopt(old._rounds)

    def _work(self, targets: Sequence[Target]) -> dict[Replica, Work]:
        return {target.replica: partial(self._probe, target) for target in targets}

    async def _probe(self, target: Target) -> None:
        replica, health = target.replica, target.pool.settings.health
        record = self._records.setdefault(replica, _Record())
        try:
            page = await self._fetch.get(
                replica.url + target.pool.adapter.health_path,
                headers=credentials(replica),
                timeout_s=health.timeout_s,
                most_bytes=0,
            )
        except GoneError as error:
            up: bool | None = False
            why = str(error) or "no connection"
        except LateError as error:
            up = _missed(record, health)
            why = str(error) or "no answer in time"
        else:
            # One that answers 401 or 404 is alive: what it thinks of us is for requests to see.
            good = page.status < _SERVER_ERROR
            up = _hit(record, health) if good else _missed(record, health)
            why = f"{target.pool.adapter.health_path} answered {page.status}"
        if up is None:
            return
        if not up:
            record.hit = 0
        if self._fleet.mark(replica, up=up, now=self._clock.monotonic()):
            _log.warning(
                "server is %s",
                "up" if up else "down",
                extra={"replica": replica.replica_id, "url": replica.url, "why": why},
            )


def _hit(record: _Record, health: Health) -> bool | None:
    """A probe was answered: whether that settles that the server is up."""
    first = not record.answered
    record.answered, record.missed = True, 0
    record.hit += 1
    return True if first or record.hit >= health.up_after else None


def _missed(record: _Record, health: Health) -> bool | None:
    """A probe was not: whether that settles that it is down; a busy server is late, not dead."""
    record.missed += 1
    record.hit = 0
    return False if not record.answered or record.missed >= health.down_after else None
