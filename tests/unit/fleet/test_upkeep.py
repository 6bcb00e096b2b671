"""All background work of a fleet."""

from __future__ import annotations

import pytest

from router.fleet.fetch import GoneError, Page
from router.fleet.state import FleetState
from router.fleet.upkeep import FleetUpkeep
from tests.support.builders import PLAIN, pool, route_facts
from tests.support.clock import ManualClock
from tests.support.fake_fetch import FakeFetch

FACTS = route_facts(pool("plain", engine="vllm"))


class World:
    """One server and its upkeep."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fleet = FleetState(FACTS, self.clock)
        self.fetch = FakeFetch()
        self.upkeep = FleetUpkeep(FACTS, self.fleet, self.clock, self.fetch)


async def test_a_round_finds_out_who_is_there() -> None:
    """So that a proxy knows before its port opens."""
    world = World()
    world.fetch.pages["http://plain.test:8000/health"] = GoneError()
    await world.upkeep.round()
    assert not world.fleet.answers(PLAIN)


async def test_each_kind_of_work_is_there_by_name() -> None:
    """One that hangs delays no other."""
    world = World()
    world.fetch.pages["http://plain.test:8000/metrics"] = Page(
        200, b"vllm:num_requests_running 2\n"
    )
    work = dict(world.upkeep.work())
    assert list(work) == ["find", "probe", "scrape", "identify", "watch"]
    for each in work.values():
        await each()
    assert world.fleet.view()[PLAIN][0].gauges.running == 2


async def test_the_watchdog_barks_once(caplog: pytest.LogCaptureFixture) -> None:
    """When a server stops working, and when it works again."""
    world = World()
    start = world.clock.monotonic()
    leases = [world.fleet.lease(PLAIN, now=start) for _ in range(2)]
    for second in range(130):
        world.clock.advance(1.0)
        if second == 125 and leases[0] is not None:
            leases[0].touched = 1.0
        await world.upkeep.watch()
    assert [record.getMessage() for record in caplog.records] == [
        "server is suspect: it sends nothing",
        "server works again",
    ]
