"""Sets of servers, kept up to date."""

from __future__ import annotations

import asyncio

import pytest

from router.fleet.discovery import DiscoveryError, Found
from router.fleet.finder import Finder
from router.fleet.state import FleetState
from tests.support.apart import a_moment, over
from tests.support.builders import FAST, PLAIN, route_facts
from tests.support.builders import pool as listed
from tests.support.clock import ManualClock

BOTH = (("plain", "none"), ("fast", "mtp"))
FACTS = route_facts(
    {
        "name": "plain",
        "method": "none",
        "discover": {"dns": {"name": "llm.test", "port": 8000}, "interval_s": 5},
    },
    listed("fast", method="mtp"),
)


class Source:
    """A discovery that finds what it is told."""

    def __init__(self) -> None:
        self.found: tuple[Found, ...] | DiscoveryError = ()
        self.asked = 0
        self.go_on: asyncio.Event | None = None

    async def find(self) -> tuple[Found, ...]:
        """As told."""
        self.asked += 1
        if self.go_on is not None:
            await self.go_on.wait()
        if isinstance(self.found, DiscoveryError):
            raise self.found
        return self.found


class World:
    """A route with one pool whose servers are found."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fleet = FleetState(FACTS, self.clock)
        self.source = Source()
        self.finder = Finder(FACTS, self.fleet, self.clock, {PLAIN: self.source})

    async def urls(self, *urls: str) -> list[str]:
        """Servers after these are found."""
        self.source.found = tuple(Found(url) for url in urls)
        await self.finder.round()
        return [replica.url for replica in self.fleet.replicas(PLAIN)]


async def test_servers_come_and_go() -> None:
    """Those of listed pools stay."""
    world = World()
    assert not world.fleet.answers(PLAIN)
    assert await world.urls("http://a:1", "http://b:1") == ["http://a:1", "http://b:1"]
    assert world.fleet.answers(PLAIN)
    assert await world.urls("http://b:1", "http://c:1") == ["http://b:1", "http://c:1"]
    assert await world.urls() == []
    assert len(world.fleet.replicas(FAST)) == 1


async def test_a_source_that_fails_keeps_the_last_set(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once why, shown for as long, and said when it is over."""
    caplog.set_level("INFO", "specroute.discovery")
    world = World()
    await world.urls("http://a:1")
    caplog.clear()
    world.source.found = DiscoveryError("llm.test: no answer")
    for _ in range(3):
        await world.finder.round()
    assert [replica.url for replica in world.fleet.replicas(PLAIN)] == ["http://a:1"]
    assert world.finder.errors() == {PLAIN: "llm.test: no answer"}
    await world.urls("http://a:1")
    assert world.finder.errors() == {}
    assert [record.getMessage() for record in caplog.records] == [
        "servers not found; the last set stays in use",
        "servers found again",
    ]


async def test_looks_come_at_their_interval() -> None:
    """However they end."""
    world = World()
    for second in range(11):
        if second == 3:
            world.source.found = DiscoveryError("gone")
        await world.finder.due()
        await over(world.finder.apart)
        world.clock.advance(1.0)
    assert world.source.asked == 3


async def test_a_running_request_outlives_its_server() -> None:
    """It ends as any other."""
    world = World()
    await world.urls("http://a:1")
    lease = world.fleet.lease(PLAIN, now=0.0)
    assert lease is not None
    await world.urls("http://b:1")
    lease.touched = 1.0
    lease.release()
    assert [item.in_flight for item in world.fleet.view()[PLAIN]] == [0]


async def test_a_source_that_hangs_delays_no_other() -> None:
    """Other pools' servers come and go meanwhile."""
    found = [listed(name, method=method, discover={"file": "x"}) for name, method in BOTH]
    for made in found:
        del made["replicas"]
    facts, clock = route_facts(*found), ManualClock()
    fleet, slow, quick = FleetState(facts, clock), Source(), Source()
    slow.go_on = asyncio.Event()
    quick.found = (Found("http://a:1"),)
    finder = Finder(facts, fleet, clock, {PLAIN: slow, FAST: quick})
    for _ in range(11):
        await finder.due()
        await a_moment()
        clock.advance(1.0)
    assert (slow.asked, quick.asked) == (1, 3)
    assert (fleet.answers(PLAIN), fleet.answers(FAST)) == (False, True)
    await finder.apart.close()
