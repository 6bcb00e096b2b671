"""Gauges of one server, from what the fleet knows of it."""

from __future__ import annotations

from collections.abc import Iterator

from router.fleet.breaker import BreakerState
from router.fleet.state import ReplicaState

_BREAKER = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 1.0, BreakerState.OPEN: 2.0}


def replica_gauges(state: ReplicaState) -> Iterator[tuple[str, float]]:
    """Name and value of each gauge; what an engine does not tell is left out."""
    yield "specroute_in_flight_requests", float(state.in_flight)
    yield "specroute_replica_up", float(state.up)
    yield "specroute_replica_breaker", _BREAKER[state.breaker]
    yield "specroute_replica_cooling_seconds", state.cooling_s or 0.0
    yield "specroute_replica_suspect", float(state.suspect)
    yield "specroute_replica_draining", float(state.draining)
    yield "specroute_replica_share_ratio", state.share
    yield "specroute_replica_line_seconds", state.line_s
    told = state.gauges
    for name, value in (
        ("specroute_replica_running_requests", told.running),
        ("specroute_replica_waiting_requests", told.waiting),
        ("specroute_replica_kv_usage_ratio", told.kv_usage),
    ):
        if value is not None:
            yield name, float(value)
