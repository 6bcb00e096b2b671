"""What changes about servers from moment to moment, in this process: load and health.

Plain numbers behind a few verbs; no I/O. Probing is `router.fleet.probe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policies.types import ArmId
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.types import ReplicaId


class Seen(StrEnum):
    """What a try showed of a server."""

    ANSWERED = "answered"
    FAILED = "failed"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Placement:
    """What placing a request may look at."""

    prefix: tuple[int, ...] = ()
    prompt_bytes: int = 0


class Lease:
    """One request at one server."""

    __slots__ = ("_state", "replica", "touched")

    def __init__(self, replica: Replica, state: _Now) -> None:
        self.replica = replica
        self.touched: float | None = None
        self._state: _Now | None = state
        state.in_flight += 1

    def release(self) -> None:
        """Ends it; may be called twice."""
        if self._state is not None:
            self._state.in_flight -= 1
            self._state = None


@dataclass(slots=True)
class _Now:
    in_flight: int = 0
    up: bool = True
    """Assumed until shown otherwise, so that the first request after a start is served."""
    since: float | None = None
    """When `up` last changed, monotonic; None if it never did."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One server now, for display."""

    replica: Replica
    in_flight: int
    up: bool


class FleetState:
    """Load and health of every server of one route."""

    def __init__(self, route: RouteFacts) -> None:
        self._route = route
        self._now: dict[ReplicaId, _Now] = {
            replica.replica_id: _Now() for pool in route.pools.values() for replica in pool.replicas
        }

    def mark(self, replica: Replica, *, up: bool, now: float) -> bool:
        """Records that a server answers or does not; returns whether that is news."""
        state = self._now[replica.replica_id]
        changed = state.up != up
        if changed:
            state.up, state.since = up, now
        return changed

    def available(self, arm_id: ArmId) -> bool:
        """Whether any server of the arm answers."""
        return any(self._now[item.replica_id].up for item in self._pool(arm_id).replicas)

    def pick(self, arm_id: ArmId, exclude: frozenset[ReplicaId] = frozenset()) -> Replica | None:
        """The server of the arm with the fewest requests in flight.

        Servers that do not answer come last instead of never: with nothing else left, trying one
        beats refusing. None when all are excluded.
        """
        replicas = [r for r in self._pool(arm_id).replicas if r.replica_id not in exclude]
        if not replicas:
            return None
        return min(replicas, key=self._rank)

    def _rank(self, replica: Replica) -> tuple[bool, int]:
        state = self._now[replica.replica_id]
        return (not state.up, state.in_flight)

    def lease(
        self,
        arm_id: ArmId,
        placement: Placement,
        exclude: frozenset[ReplicaId] = frozenset(),
        *,
        now: float,
    ) -> Lease | None:
        """Places a request at a server of the arm."""
        del placement, now
        replica = self.pick(arm_id, exclude)
        return None if replica is None else Lease(replica, self._now[replica.replica_id])

    def saw(
        self, replica: Replica, seen: Seen, *, now: float, retry_after_s: float | None = None
    ) -> None:
        """Is told what a try showed."""
        del retry_after_s
        if seen is Seen.FAILED:
            self.mark(replica, up=False, now=now)

    def view(self) -> Mapping[ArmId, tuple[ReplicaState, ...]]:
        """All servers now, by arm."""
        return {
            arm_id: tuple(
                ReplicaState(
                    replica,
                    self._now[replica.replica_id].in_flight,
                    self._now[replica.replica_id].up,
                )
                for replica in pool.replicas
            )
            for arm_id, pool in self._route.pools.items()
        }

    def _pool(self, arm_id: ArmId) -> PoolFacts:
        return self._route.pools[arm_id]
