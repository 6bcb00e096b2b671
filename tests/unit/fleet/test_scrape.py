"""Figures that engines tell, and how long they are believed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from policies.types import Arm, ArmId
from router.engines.counters import ReplicaCounters
from router.estimates.counted import Counted
from router.fleet.fetch import GoneError, LateError, Page
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.fleet.scrape import CounterBook, Scraper, interval_s
from router.fleet.state import FleetState
from tests.support.apart import a_moment, over
from tests.support.builders import PLAIN, pool, route_facts
from tests.support.clock import ManualClock
from tests.support.fake_fetch import FakeFetch

URL = "http://plain.test:8000/metrics"
TEXT = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_waiting{engine="0"} 1\n'


AHEAD_S = 5000.0
"""Of this host's clock before that of the slots."""


class Book:
    """Notes what the scraper tells of counters."""

    def __init__(self) -> None:
        self.told: list[int | str | None] = []
        self.known: Mapping[ArmId, Collection[str]] = {}

    def take(self, arm_id: ArmId, url: str, counters: ReplicaCounters | None, wall: float) -> None:
        """Notes the tokens."""
        del arm_id, url, wall
        self.told.append(None if counters is None else counters.tokens)

    def gone(self, arm_id: ArmId, url: str, wall: float) -> None:
        """Notes that."""
        del arm_id, url, wall
        self.told.append("gone")

    def keep(self, known: Mapping[ArmId, Collection[str]], wall: float) -> None:
        """Notes the servers."""
        del wall
        self.known = known


class World:
    """One server of vLLM, and readings of its metrics."""

    def __init__(self, book: CounterBook | None = None, **pool_keys: Any) -> None:
        facts = route_facts(pool("plain", **{"engine": "vllm", **pool_keys}))
        self.clock = ManualClock()
        self.fleet = FleetState(facts, self.clock)
        self.fetch = FakeFetch()
        self.fetch.pages[URL] = Page(200, TEXT)
        self.book = Book()
        self.scraper = Scraper(
            facts,
            self.fleet,
            self.clock,
            self.fetch,
            uniform=lambda: 0.5,
            book=book or self.book,
            wall=lambda: self.clock.wall() - AHEAD_S,
        )

    @property
    def gauges(self) -> ReplicaGauges:
        """What is believed now."""
        return self.fleet.view()[PLAIN][0].gauges

    async def run(self, seconds: int) -> None:
        """Lets time pass."""
        for _ in range(seconds):
            await self.scraper.due()
            await over(self.scraper.apart)
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


COUNTED = b"vllm:generation_tokens_total 53\nvllm:spec_decode_num_accepted_tokens_total 10\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Page(200, COUNTED), 53),
        (Page(200, TEXT), None),
        (Page(503, COUNTED), None),
        (Page(404), None),
        (LateError(), None),
        (GoneError(), "gone"),
    ],
)
async def test_counters_are_handed_on(page: Page | Exception, expected: int | str | None) -> None:
    """From the same page; that a server is not there is another thing than that it does not tell."""
    world = World()
    world.fetch.pages[URL] = page
    await world.scraper.round()
    assert world.book.told == [expected]
    assert world.book.known == {PLAIN: ["http://plain.test:8000"]}


async def test_servers_that_are_not_read_are_not_counted() -> None:
    """Nobody waits for counters that never come."""
    world = World(engine="llamacpp")
    await world.run(5)
    assert (world.book.told, world.book.known) == ([], {})


async def test_what_is_scraped_becomes_sums_by_slot() -> None:
    """The book of a route, fed by its scraper alone: a minute has three whole slots that are closed."""
    book = Counted([Arm(PLAIN, "ngram", 3, baseline=True)])
    world = World(book)
    for second in range(60):
        page = COUNTED.replace(b" 53", f" {second * 30}".encode())
        world.fetch.pages[URL] = Page(200, page.replace(b" 10", f" {second * 10}".encode()))
        await world.scraper.due()
        await over(world.scraper.apart)
        world.clock.advance(1.0)
    total = book.total(PLAIN, world.clock.wall() - AHEAD_S)
    assert total is not None
    assert (round(total.tokens, 6), round(total.acceptance_length or 0.0, 6)) == (900.0, 1.5)


async def test_a_page_that_was_cut_is_not_read() -> None:
    """Its last figure may be cut too, and what is missing may have been there."""
    world = World()
    world.fetch.pages[URL] = Page(200, TEXT + b"#" * (4 * 1024 * 1024 - len(TEXT)))
    await world.run(1)
    assert (world.gauges, world.book.told) == (UNKNOWN, [None])


async def test_a_server_that_hangs_delays_no_other() -> None:
    """It is not read a second time meanwhile."""
    facts = route_facts(pool("plain", engine="vllm", replicas=2))
    clock, fetch = ManualClock(), FakeFetch()
    fleet = FleetState(facts, clock)
    scraper = Scraper(facts, fleet, clock, fetch, uniform=lambda: 0.5)
    slow, quick = (replica.url + "/metrics" for replica in fleet.replicas(PLAIN))
    fetch.held[slow] = asyncio.Event()
    fetch.pages[quick] = Page(200, TEXT)
    for _ in range(5):
        await scraper.due()
        await a_moment()
        clock.advance(1.0)
    assert (fetch.asked.count(slow), fetch.asked.count(quick)) == (1, 3)
    await scraper.apart.close()


async def test_figures_taken_over_by_a_reload_age_out() -> None:
    """A server that tells nothing from then on is unknown, not as busy as it was."""
    old, new = World(), World()
    await old.scraper.round()
    new.fleet.adopt(old.fleet, now=new.clock.monotonic())
    new.scraper.adopt(old.scraper)
    assert new.gauges == ReplicaGauges(3, 1)
    new.fetch.pages[URL] = LateError()
    new.clock.advance(6.0)
    await new.scraper.round()
    assert new.gauges == UNKNOWN
