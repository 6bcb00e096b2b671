"""What probes make of servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.fleet.fetch import GoneError, LateError, Page
from router.fleet.probe import Prober
from router.fleet.state import FleetState
from tests.support.apart import a_moment, over
from tests.support.builders import FAST, PLAIN, pool, route_facts
from tests.support.clock import ManualClock
from tests.support.fake_fetch import FakeFetch

URL = "http://plain.test:8000/health"
GOOD, BAD, LATE, GONE = Page(200), Page(503), LateError(), GoneError()


class World:
    """One server, and probes of it."""

    def __init__(self, **health: Any) -> None:
        facts = route_facts(pool("plain", health=health, api_key="sk-1"))
        self.clock = ManualClock()
        self.fleet = FleetState(facts, self.clock)
        self.fetch = FakeFetch()
        self.prober = Prober(facts, self.fleet, self.clock, self.fetch, uniform=lambda: 0.5)

    async def probe(self, page: Page | Exception) -> bool:
        """Probes the server, which answers so; returns whether it is up then."""
        self.fetch.pages[URL] = page
        await self.prober.round()
        return self.fleet.view()[PLAIN][0].up


@pytest.mark.parametrize(
    ("pages", "ups"),
    [
        ((GOOD, LATE, GOOD, LATE, LATE, LATE, GOOD), (1, 1, 1, 1, 0, 0, 1)),
        ((GOOD, BAD, BAD, GOOD), (1, 1, 0, 1)),
        ((GOOD, GONE, GOOD), (1, 0, 1)),
        ((LATE, GOOD), (0, 1)),
        ((BAD, GOOD), (0, 1)),
        ((Page(401), Page(404)), (1, 1)),
    ],
)
async def test_a_server_is_up_or_down_by_its_probes(
    pages: tuple[Page | Exception, ...], ups: tuple[int, ...]
) -> None:
    """One known to be alive may miss one in a row; a refused connection is enough by itself."""
    world = World()
    assert [int(await world.probe(page)) for page in pages] == list(ups)


async def test_how_many_probes_it_takes_is_configured() -> None:
    """In both directions, so that a wavering server does not come and go."""
    world = World(down_after=3, up_after=2)
    pages = (GOOD, LATE, LATE, LATE, GOOD, LATE, GOOD, GOOD)
    assert [int(await world.probe(page)) for page in pages] == [1, 1, 1, 0, 0, 0, 0, 1]


async def test_a_server_found_down_by_a_request_comes_back_by_probes() -> None:
    """As many as are asked for."""
    world = World(up_after=2)
    await world.probe(GOOD)
    await world.probe(GOOD)
    world.fleet.mark(world.fleet.replicas(PLAIN)[0], up=False, now=0.0)
    assert await world.probe(GOOD)


async def test_probes_come_at_their_interval_with_the_pools_key() -> None:
    """Each server at its own time."""
    world = World(interval_s=5)
    for _ in range(10):
        await world.prober.due()
        await over(world.prober.apart)
        world.clock.advance(1.0)
    assert world.fetch.asked == [URL] * 2
    assert world.fetch.headers == [{"Authorization": "Bearer sk-1"}] * 2


async def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the server's name and address and why, not its key."""
    world = World()
    for page in (GOOD, GONE, GONE, GOOD):
        await world.probe(page)
    assert [record.getMessage() for record in caplog.records] == [
        "server is down",
        "server is up",
    ]
    assert [(vars(line)["url"], vars(line)["why"]) for line in caplog.records] == [
        ("http://plain.test:8000", "no connection"),
        ("http://plain.test:8000", "/health answered 200"),
    ]
    assert "sk-1" not in caplog.text


async def test_a_server_that_hangs_delays_no_other() -> None:
    """Others are probed at their own times, and it is not probed a second time meanwhile."""
    slow, quick = {"interval_s": 1, "timeout_s": 60}, {"interval_s": 1, "timeout_s": 1}
    facts = route_facts(pool("plain", health=slow), pool("fast", method="mtp", health=quick))
    clock, fetch = ManualClock(), FakeFetch()
    fleet = FleetState(facts, clock)
    prober = Prober(facts, fleet, clock, fetch, uniform=lambda: 0.5)
    fetch.held["http://plain"] = asyncio.Event()
    fetch.pages["http://fast.test:8000/health"] = GONE
    for _ in range(5):
        await prober.due()
        await a_moment()
        clock.advance(1.0)
    assert sorted(fetch.asked) == ["http://fast.test:8000/health"] * 5 + [URL]
    assert (fleet.answers(FAST), fleet.answers(PLAIN)) == (False, True)
    fetch.held["http://plain"].set()
    await over(prober.apart)
    await prober.due()
    assert fetch.asked.count(URL) == 2


async def test_a_server_that_has_gone_is_waited_for_no_longer() -> None:
    """So no more is being done than there are servers."""
    world = World()
    world.fetch.held[URL] = asyncio.Event()
    await world.prober.due()
    assert len(world.prober.apart.busy) == 1
    world.fleet.replace(PLAIN, [], now=0.0)
    await world.prober.due()
    await over(world.prober.apart)


async def test_probes_are_counted_across_a_reload() -> None:
    """A busy server that is late once is not taken for one that has never answered."""
    old, new = World(down_after=3), World(down_after=3, timeout_s=1)
    for page in (GOOD, LATE):
        await old.probe(page)
    new.prober.adopt(old.prober)
    await new.prober.meet()
    assert new.fetch.asked == []
    assert [await new.probe(LATE) for _ in range(2)] == [True, False]


async def test_probes_keep_their_times_across_a_reload() -> None:
    """Or a server would be asked twice in a row, and be given half the time to miss it."""
    old, new = World(interval_s=5), World(interval_s=5)
    await old.prober.due()
    await over(old.prober.apart)
    new.prober.adopt(old.prober)
    for _ in range(6):
        await new.prober.due()
        await over(new.prober.apart)
        new.clock.advance(1.0)
    assert new.fetch.asked == [URL]
