"""All background work of a fleet."""

from __future__ import annotations

import asyncio

import pytest

from router.fleet.fetch import GoneError, Page
from router.fleet.state import FleetState
from router.fleet.upkeep import FleetUpkeep
from tests.support.apart import over
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
    await over(world.upkeep.scraper.apart)
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


async def test_what_was_known_is_not_asked_for_again() -> None:
    """A reload waits for servers that are new, and for no other."""
    old = World()
    await old.upkeep.round()
    new = World()
    new.upkeep.adopt(old.upkeep)
    await new.upkeep.meet()
    assert (len(old.fetch.asked), new.fetch.asked) == (1, [])


async def test_the_end_of_work_ends_what_hangs() -> None:
    """And lets nothing begin, so that nobody is asked for a fleet that serves no more."""
    world = World()
    world.fetch.held["http://plain"] = asyncio.Event()
    for name, each in world.upkeep.work():
        if name != "watch":
            await each()
    assert len(world.upkeep.prober.apart.busy) == len(world.upkeep.scraper.apart.busy) == 1
    await world.upkeep.close()
    assert len(world.upkeep.prober.apart.busy) == len(world.upkeep.scraper.apart.busy) == 0
    world.clock.advance(60.0)
    asked = len(world.fetch.asked)
    await world.upkeep.round()
    assert len(world.fetch.asked) == asked
