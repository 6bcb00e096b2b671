"""Load and health of servers."""

from __future__ import annotations

import asyncio

import pytest

from router.fleet.state import FleetState
from router.types import ReplicaId
from tests.support.builders import FAST, PLAIN, pool, route_facts

FACTS = route_facts(pool("plain"), pool("fast", method="mtp", replicas=3))
R0, R1, R2 = FACTS.pools[FAST].replicas


@pytest.fixture
def fleet() -> FleetState:
    """Three servers of which nothing is known yet."""
    return FleetState(FACTS)


def test_a_server_is_assumed_to_answer_until_shown_otherwise(fleet: FleetState) -> None:
    """So the first request after a start is served."""
    assert fleet.available(FAST)
    assert all(item.up for items in fleet.view().values() for item in items)


def test_only_a_change_is_news(fleet: FleetState) -> None:
    """What was known already is not logged again."""
    assert [fleet.mark(R0, up=up, now=0.0) for up in (True, False, False, True)] == [
        False,
        True,
        False,
        True,
    ]


def test_an_arm_is_available_while_one_of_its_servers_is(fleet: FleetState) -> None:
    """Other arms do not matter."""
    fleet.mark(R0, up=False, now=0.0)
    fleet.mark(R1, up=False, now=0.0)
    assert fleet.available(FAST)
    fleet.mark(R2, up=False, now=0.0)
    assert not fleet.available(FAST)
    assert fleet.available(PLAIN)


def test_the_server_with_the_fewest_requests_is_picked(fleet: FleetState) -> None:
    """The first one where several have as few."""
    assert fleet.pick(FAST) == R0
    with fleet.lease(R0):
        assert fleet.pick(FAST) == R1
        with fleet.lease(R1), fleet.lease(R2), fleet.lease(R2):
            assert fleet.pick(FAST) == R0
    assert fleet.pick(FAST) == R0


def test_servers_that_do_not_answer_come_last_instead_of_never(fleet: FleetState) -> None:
    """With nothing else left, trying one beats refusing."""
    fleet.mark(R0, up=False, now=0.0)
    with fleet.lease(R1), fleet.lease(R2):
        assert fleet.pick(FAST) == R1
        assert fleet.pick(FAST, frozenset({R1.replica_id, R2.replica_id})) == R0


def test_a_server_that_was_tried_is_not_picked_again(fleet: FleetState) -> None:
    """None when all have been."""
    tried: set[ReplicaId] = set()
    for expected in (R0, R1, R2):
        picked = fleet.pick(FAST, frozenset(tried))
        assert picked == expected
        tried.add(expected.replica_id)
    assert fleet.pick(FAST, frozenset(tried)) is None


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), GeneratorExit()])
def test_a_request_is_counted_as_long_as_it_runs_however_it_ends(
    fleet: FleetState, error: BaseException
) -> None:
    """Load never leaks."""

    def in_flight() -> int:
        return fleet.view()[FAST][0].in_flight

    def run() -> None:
        with fleet.lease(R0):
            assert in_flight() == 1
            raise error

    with pytest.raises(type(error)):
        run()
    assert in_flight() == 0


def test_the_view_shows_every_server_by_arm(fleet: FleetState) -> None:
    """In the order of the configuration, frozen at the moment it was taken."""
    with fleet.lease(R1):
        view = fleet.view()
    fleet.mark(R1, up=False, now=0.0)
    assert {
        arm: [(i.replica.replica_id, i.in_flight, i.up) for i in v] for arm, v in view.items()
    } == {
        PLAIN: [("plain/0", 0, True)],
        FAST: [("fast/0", 0, True), ("fast/1", 1, True), ("fast/2", 0, True)],
    }
