"""The past as columns."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import ClassId
from router.dashboard.answers import Histories, RoutePast
from router.estimates.layout import BLOCK_S, SLOT_S
from router.estimates.learned import Learned
from router.estimates.reader import Reader
from router.estimates.writer import Writer
from router.stores.memory import MemoryStore
from tests.support.builders import ARMS, CHAT, FAST
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore

AN_HOUR = 3600
WINDOW_S = 3600


class World:
    """A proxy that writes, and somebody who looks at its past."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FaultyStore(MemoryStore(self.clock))
        self.writer = Writer(self.store, self.clock, prefix="p", ttl_s=2 * WINDOW_S)
        self.reader = Reader(self.store, self.writer, prefix="p", model="m", window_s=WINDOW_S)
        self.histories = Histories(self.writer.slots)

    async def learn(self, n: int, class_id: ClassId = CHAT) -> None:
        """Requests that end now."""
        self.writer.add(Learned("m", FAST, class_id, {"n": n}))
        await self.writer.flush()
        await self.reader.refresh()

    async def look(self, span_s: float, class_id: str | None = None) -> dict[str, Any]:
        """The route's columns."""
        route = RoutePast("m", ARMS, self.reader)
        since = self.clock.wall() - span_s
        told = await self.histories.answer([route], WINDOW_S, since, class_id)
        [columns] = told["routes"]
        return dict(columns)

    async def requests(self, span_s: float, class_id: str | None = None) -> list[int]:
        """Requests of the fast pool, point by point."""
        columns = await self.look(span_s, class_id)
        [pool] = [of for of in columns["pools"] if of["pool"] == FAST]
        return list(pool["requests"])


@pytest.mark.parametrize(
    ("span_s", "step_s"), [(600, SLOT_S), (3600, BLOCK_S), (86_400, AN_HOUR), (1e9, AN_HOUR)]
)
async def test_points_get_longer_with_the_span(span_s: float, step_s: int) -> None:
    """Slots for a quarter of an hour, blocks for the window, hours beyond; never before eight days."""
    world = World()
    await world.learn(3)
    columns = await world.look(span_s)
    assert columns["step_s"] == step_s
    assert len(columns["times"]) <= 8 * 24
    assert sum(await world.requests(span_s)) == 3


async def test_a_point_still_grows_and_the_past_stays() -> None:
    """What is not over is read again; nothing is lost or doubled when it is."""
    world = World()
    await world.learn(2)
    assert await world.requests(600) == [2]
    await world.learn(1)
    assert sum(await world.requests(600)) == 3
    world.clock.advance(10 * SLOT_S + SLOT_S / 2)
    await world.learn(5)
    found = await world.requests(600)
    assert [n for n in found if n] == [3, 5]
    assert [n for n in await world.requests(600) if n] == [3, 5]


async def test_rate_and_share_are_of_the_point() -> None:
    """Requests over the seconds that have passed of it."""
    world = World()
    world.clock.advance(5.0)
    await world.learn(10)
    columns = await world.look(600)
    assert columns["lengths_s"][-1] == pytest.approx(5.0)
    assert columns["requests_per_s"][-1] == pytest.approx(2.0)
    assert [pool["share"][-1] for pool in columns["pools"]] == [0.0, 1.0]


async def test_what_has_just_begun_is_left_out() -> None:
    """A point of a second would make a jump of every request."""
    world = World()
    await world.learn(10)
    world.clock.advance(SLOT_S + 1.0)
    await world.learn(1)
    assert await world.requests(600) == [10]
    world.clock.advance(SLOT_S / 2)
    assert await world.requests(600) == [10, 1]


async def test_one_class_alone() -> None:
    """Others are not counted; a name that nobody has gives empty points."""
    world = World()
    await world.learn(4)
    await world.learn(6, ClassId("code"))
    assert sum(await world.requests(600)) == 10
    assert sum(await world.requests(600, "code")) == 6
    assert sum(await world.requests(600, "<b>")) == 0


async def test_a_store_that_is_away_is_said() -> None:
    """No figure then, but why."""
    world = World()
    await world.learn(1)
    world.store.fault = Fault.BEFORE
    columns = await world.look(600)
    assert "store" in columns["error"]
