"""When each server of a route is due for something that is done to it again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import FleetState

_JITTER = 0.2
"""Share of an interval by which it varies, so that processes do not fall into step."""


@dataclass(frozen=True, slots=True)
class Target:
    """One server, and the pool whose settings hold for it."""

    pool: PoolFacts
    replica: Replica


class Rounds:
    """Keeps the next time of every server.

    Args:
        route: Its pools.
        fleet: Knows the servers that are there now.
        interval_s: Between two times, for a pool; 0 for never.
        uniform: Draws from [0, 1).
    """

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        interval_s: Callable[[PoolFacts], float],
        uniform: Callable[[], float],
    ) -> None:
        self._route = route
        self._fleet = fleet
        self._interval_s = interval_s
        self._uniform = uniform
        self._next: dict[Replica, float] = {}

    def everyone(self, now: float) -> list[Target]:
        """All servers; they are due again an interval from now."""
        return self._take(now, lambda *_: True)

    def due(self, now: float, busy: Collection[Replica] = ()) -> list[Target]:
        """The servers whose time has come; they are due again an interval from now.

        Args:
            now: Monotonic.
            busy: Those that it is being done for: they stay due until that is over.
        """
        return self._take(now, lambda replica, at: at <= now and replica not in busy)

    def put_off(self, replica: Replica, until: float) -> None:
        """Lets a server wait for longer."""
        self._next[replica] = until

    def adopt(self, old: Rounds) -> None:
        """Keeps the times of servers that were there under an older configuration."""
        times = {replica.place: at for replica, at in old._next.items()}
        for target in self._targets():
            at = times.get(target.replica.place)
            if at is not None:
                # The interval may have become shorter.
                self._next[target.replica] = min(at, self._next.get(target.replica, at))

    def _take(self, now: float, wanted: Callable[[Replica, float], bool]) -> list[Target]:
        targets = list(self._targets())
        before, self._next = self._next, {}
        taken = []
        for target in targets:
            at = before.get(target.replica, now)
            if wanted(target.replica, at):
                taken.append(target)
                share = 1.0 + _JITTER * (self._uniform() - 0.5)
                at = now + self._interval_s(target.pool) * share
            self._next[target.replica] = at
        return taken

    def _targets(self) -> Iterator[Target]:
        for arm_id, pool in self._route.pools.items():
            if self._interval_s(pool) > 0:
                for replica in self._fleet.replicas(arm_id):
                    yield Target(pool, replica)


def credentials(replica: Replica) -> dict[str, str]:
    """Headers that a server needs to answer us."""
    return {"Authorization": f"Bearer {replica.api_key}"} if replica.api_key else {}
