"""Gauges of a server."""

from __future__ import annotations

import pytest

from router.fleet.breaker import BreakerState
from router.fleet.gauges import ReplicaGauges
from router.fleet.state import ReplicaState
from router.observe.catalog import GAUGES
from router.observe.replicas import replica_gauges
from tests.support.builders import PLAIN, route_facts

REPLICA = route_facts().pools[PLAIN].replicas[0]


def test_a_server_shows_all_that_is_known() -> None:
    """Under names that the table explains."""
    state = ReplicaState(
        REPLICA,
        in_flight=3,
        up=True,
        breaker=BreakerState.OPEN,
        open_s=1.0,
        cooling_s=2.5,
        suspect=True,
        draining=False,
        share=0.5,
        line_s=1.5,
        gauges=ReplicaGauges(4, 1, 0.75),
    )
    shown = dict(replica_gauges(state))
    assert shown == {
        "specroute_in_flight_requests": 3,
        "specroute_replica_up": 1,
        "specroute_replica_breaker": 2,
        "specroute_replica_cooling_seconds": 2.5,
        "specroute_replica_suspect": 1,
        "specroute_replica_draining": 0,
        "specroute_replica_share_ratio": 0.5,
        "specroute_replica_line_seconds": 1.5,
        "specroute_replica_running_requests": 4,
        "specroute_replica_waiting_requests": 1,
        "specroute_replica_kv_usage_ratio": 0.75,
    }
    assert set(shown) <= set(GAUGES)


@pytest.mark.parametrize(
    ("breaker", "expected"), [(BreakerState.CLOSED, 0), (BreakerState.HALF_OPEN, 1)]
)
def test_what_is_not_told_is_left_out(breaker: BreakerState, expected: int) -> None:
    """Unknown is not 0; a server that is not cooling has no time to wait."""
    shown = dict(replica_gauges(ReplicaState(REPLICA, in_flight=0, up=False, breaker=breaker)))
    assert shown["specroute_replica_breaker"] == expected
    assert shown["specroute_replica_cooling_seconds"] == 0
    assert not [name for name in shown if "running" in name or "waiting" in name or "kv" in name]
