"""Figures that engines tell, and how long they are believed."""

from __future__ import annotations

from typing import Any

import pytest

from router.fleet.fetch import GoneError, LateError, Page
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.fleet.scrape import Scraper, interval_s
from router.fleet.state import FleetState
from tests.support.builders import PLAIN, pool, route_facts
from tests.support.clock import ManualClock
from tests.support.fake_fetch import FakeFetch

URL = "http://plain.test:8000/metrics"
TEXT = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_waiting{engine="0"} 1\n'


class World:
    """One server of vLLM, and readings of its metrics."""

    def __init__(self, **pool_keys: Any) -> None:
        facts = route_facts(pool("plain", **{"engine": "vllm", **pool_keys}))
        self.clock = ManualClock()
        self.fleet = FleetState(facts, self.clock)
        self.fetch = FakeFetch()
        self.fetch.pages[URL] = Page(200, TEXT)
        self.scraper = Scraper(facts, self.fleet, self.clock, self.fetch, uniform=lambda: 0.5)

    @property
    def gauges(self) -> ReplicaGauges:
        """What is believed now."""
        return self.fleet.view()[PLAIN][0].gauges

    async def run(self, seconds: int) -> None:
        """Lets time pass."""
        for _ in range(seconds):
            await self.scraper.due()
            self.clock.advance(1.0)


@pytest.mark.parametrize(
    ("engine", "scrape_s", "expected"),
    [
        ("vllm", None, 2.0),
        ("llamacpp", None, 0.0),
        ("generic", None, 0.0),
        ("vllm", 0, 0.0),
        ("llamacpp", 7, 7.0),
    ],
)
def test_who_is_read_how_often(engine: str, scrape_s: float | None, expected: float) -> None:
    """As the engine bears it, unless the configuration says otherwise."""
    made = route_facts(pool("plain", engine=engine, balance={"scrape_s": scrape_s}))
    assert interval_s(made.pools[PLAIN]) == expected


async def test_figures_are_read_at_their_interval() -> None:
    """And not at all where it is 0."""
    world = World()
    await world.run(5)
    assert (world.gauges, len(world.fetch.asked)) == (ReplicaGauges(3, 1), 3)
    silent = World(engine="llamacpp")
    await silent.run(5)
    assert silent.fetch.asked == []


@pytest.mark.parametrize(
    "page", [LateError(), GoneError(), Page(500), Page(200, b"nothing of ours"), Page(200, b"\xff")]
)
async def test_figures_that_are_not_renewed_age_out(page: Page | Exception) -> None:
    """After three intervals nothing is believed: unknown, not 0."""
    world = World()
    await world.scraper.round()
    world.fetch.pages[URL] = page
    world.clock.advance(5.9)
    await world.scraper.round()
    assert world.gauges == ReplicaGauges(3, 1)
    world.clock.advance(0.1)
    await world.scraper.round()
    assert world.gauges == UNKNOWN


async def test_a_server_without_metrics_is_asked_seldom() -> None:
    """It may be restarted with them."""
    world = World()
    world.fetch.pages[URL] = Page(404)
    await world.run(60)
    assert len(world.fetch.asked) == 1
    world.fetch.pages[URL] = Page(200, TEXT)
    await world.run(1)
    assert world.gauges == ReplicaGauges(3, 1)
