"""Who is due when."""

from __future__ import annotations

from router.fleet.rounds import Rounds, credentials
from router.fleet.state import FleetState
from tests.support.builders import FAST, PLAIN, pool, route_facts
from tests.support.clock import ManualClock

FACTS = route_facts(pool("plain", replicas=2), pool("fast", method="mtp", api_key="sk-1"))


def rounds(fleet: FleetState, drawn: float = 0.5) -> Rounds:
    """Every ten seconds for `plain`, never for `fast`."""
    return Rounds(
        FACTS, fleet, lambda made: 10.0 if made.arm.arm_id == PLAIN else 0.0, lambda: drawn
    )


def names(made: Rounds, now: float) -> list[str]:
    """Who is due."""
    return [target.replica.replica_id for target in made.due(now)]


def test_every_server_is_due_again_after_its_interval() -> None:
    """Those of a pool without an interval never are."""
    made = rounds(FleetState(FACTS))
    assert [names(made, now) for now in (0.0, 9.9, 10.0, 19.9, 25.0)] == [
        ["plain/0", "plain/1"],
        [],
        ["plain/0", "plain/1"],
        [],
        ["plain/0", "plain/1"],
    ]


def test_intervals_vary_a_little() -> None:
    """So that processes started together do not stay together."""
    assert [names(rounds(FleetState(FACTS), drawn), 0.0) for drawn in (0.0, 0.99)]
    early, late = rounds(FleetState(FACTS), 0.0), rounds(FleetState(FACTS), 1.0)
    for made in (early, late):
        names(made, 0.0)
    assert (bool(names(early, 9.0)), bool(names(late, 10.9)), bool(names(late, 11.0))) == (
        True,
        False,
        True,
    )


def test_everyone_is_taken_whether_due_or_not() -> None:
    """And is then due an interval later."""
    made = rounds(FleetState(FACTS))
    names(made, 0.0)
    assert len(made.everyone(5.0)) == 2
    assert names(made, 10.0) == []
    assert len(names(made, 15.0)) == 2


def test_new_servers_are_due_at_once_and_old_ones_are_forgotten() -> None:
    """As discovery finds them."""
    fleet = FleetState(FACTS, ManualClock())
    made = rounds(fleet)
    names(made, 0.0)
    fleet.replace(PLAIN, [("http://new:1", 1.0), ("http://plain.test:8000", 1.0)], 1.0)
    assert names(made, 1.0) == ["plain/2"]


def test_one_can_be_put_off() -> None:
    """For longer than its interval."""
    fleet = FleetState(FACTS)
    made = rounds(fleet)
    names(made, 0.0)
    made.put_off(fleet.replicas(PLAIN)[0], 60.0)
    assert names(made, 10.0) == ["plain/1"]
    assert names(made, 60.0) == ["plain/0", "plain/1"]


def test_who_is_busy_stays_due() -> None:
    """Until that is over."""
    fleet = FleetState(FACTS)
    made = rounds(fleet)
    names(made, 0.0)
    first = fleet.replicas(PLAIN)[0]
    busy = [target.replica.replica_id for target in made.due(10.0, {first})]
    assert (busy, names(made, 11.0)) == (["plain/1"], ["plain/0"])


def test_times_outlive_a_reload() -> None:
    """Of servers with the same pool and address, whatever their numbers; others are due at once."""
    fleet = FleetState(FACTS, ManualClock())
    old = rounds(fleet)
    names(old, 0.0)
    old.put_off(fleet.replicas(PLAIN)[0], 5.0)
    after = FleetState(FACTS, ManualClock())
    urls = [replica.url for replica in fleet.replicas(PLAIN)]
    after.replace(PLAIN, [(url, 1.0) for url in ("http://new:1", *urls)], 1.0)
    new = rounds(after)
    new.adopt(old)
    assert [names(new, now) for now in (1.0, 5.0, 10.0)] == [["plain/2"], ["plain/0"], ["plain/1"]]


def test_a_shorter_interval_holds_from_the_reload_on() -> None:
    """However far away the old time was."""
    old = rounds(FleetState(FACTS))
    old.put_off(FACTS.pools[PLAIN].replicas[0], 3600.0)
    new = rounds(FleetState(FACTS))
    new.everyone(0.0)
    new.adopt(old)
    assert "plain/0" in names(new, 10.0)


def test_a_server_gets_the_key_it_wants() -> None:
    """And none where the pool has none."""
    fleet = FleetState(FACTS)
    assert credentials(fleet.replicas(FAST)[0]) == {"Authorization": "Bearer sk-1"}
    assert credentials(fleet.replicas(PLAIN)[0]) == {}
