"""The past beyond the window."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policies.types import ArmId, ClassId
from router.errors import StoreError
from router.estimates.history import HOURS, MAX_TENANTS, History
from router.estimates.layout import MADE_SLOTS, MAX_CLASSES, OPEN_SLOTS, RouteKeys, slot_at
from router.estimates.learned import Learned
from router.estimates.ledger import OTHER
from router.estimates.made import Made
from router.estimates.writer import Writer
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from router.types import POOLED, SegmentId, TenantId
from tests.support.builders import CHAT, FAST
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore

AN_HOUR = 3600.0
AT_HOUR = 1_800_000_000.0
"""2027-01-15, 08:00 UTC."""
assert AT_HOUR % AN_HOUR == 0


class World:
    """A writer and a history of one route."""

    def __init__(self) -> None:
        self.clock = ManualClock(AT_HOUR)
        self.store = FaultyStore(MemoryStore(self.clock))
        self.writer = Writer(self.store, self.clock, prefix="p", ttl_s=4000)
        self.history = History(self.store, self.writer.slots, prefix="p", model="m")
        self._batches = 0

    async def learn(self, n: int = 1, part: SegmentId = POOLED) -> None:
        """Requests that end now."""
        self.writer.add(Learned("m", FAST, CHAT, {"n": n}, part))
        await self.writer.flush()

    async def hours(self, days: float = 8.0) -> dict[int, int]:
        """Requests by how many hours ago they ended."""
        current = int(self.clock.wall() // AN_HOUR)
        read = await self.history.read_hours(self.clock.wall() - days * 86_400)
        return {
            current - hour: cells[FAST, CHAT, POOLED]["n"] for hour, cells in read.items() if cells
        }

    async def keep(self, key: str, fields: dict[str, int]) -> None:
        """What somebody else wrote."""
        self._batches += 1
        await self.store.add(Batch("x", self._batches, 9999), [Addition({"": fields}, {key: 9999})])


async def test_requests_count_in_their_hour_for_eight_days() -> None:
    """Whole classes only."""
    world = World()
    for hour in range(HOURS + 3):
        await world.learn(hour, SegmentId("a1"))
        world.clock.advance(AN_HOUR)
    assert await world.hours() == {ago: HOURS + 3 - ago for ago in range(1, HOURS)}
    assert await world.hours(days=0.25) == {ago: HOURS + 3 - ago for ago in range(1, 7)}
    cells = (await world.history.read_hours(world.clock.wall() - AN_HOUR)).values()
    assert all(key == (FAST, CHAT, POOLED) for of in cells for key in of)


async def test_hours_may_end_before_the_current_one() -> None:
    """Those that began at that time or later are neither told nor read."""
    world = World()
    for _ in range(4):
        await world.learn()
        world.clock.advance(AN_HOUR)
    now = world.clock.wall()
    found = await world.history.read_hours(now - 4 * AN_HOUR, now - 2 * AN_HOUR)
    assert sorted(found) == [now // AN_HOUR - 4, now // AN_HOUR - 3]
    assert len(world.store.reads[-1]) == 2


async def test_past_hours_are_asked_for_once_an_hour() -> None:
    """The current one and the one before it may grow, and are asked for again after a while."""
    world = World()
    await world.hours()
    assert len(world.store.reads[-1]) == HOURS
    await world.hours()
    assert list(world.store.reads[-1]) == []
    world.clock.advance(11)
    await world.hours()
    assert len(world.store.reads[-1]) == 2
    world.clock.advance(AN_HOUR)
    await world.hours()
    assert len(world.store.reads[-1]) == HOURS


async def test_what_comes_late_is_found_in_its_hour() -> None:
    """A process that was cut off for hours merges them when the store is back."""
    world = World()
    cut_off = World()
    cut_off.clock, cut_off.store = world.clock, FaultyStore(world.store.inner)
    cut_off.writer = Writer(cut_off.store, world.clock, prefix="p", ttl_s=4000)
    await cut_off.writer.compare_clocks()
    cut_off.store.fault = Fault.BEFORE
    for hour in range(5):
        await world.learn(1)
        cut_off.writer.add(Learned("m", FAST, CHAT, {"n": 10 + hour}))
        with pytest.raises(StoreError):
            await cut_off.writer.flush()
        world.clock.advance(AN_HOUR)
    assert await world.hours() == dict.fromkeys(range(1, 6), 1)
    cut_off.store.fault = None
    await cut_off.writer.flush()
    world.clock.advance(AN_HOUR)
    assert await world.hours() == {6 - hour: 11 + hour for hour in range(5)}


async def test_a_store_that_is_away_is_an_error_and_nothing_is_made_up() -> None:
    """The next call asks again."""
    world = World()
    await world.learn(3)
    world.store.fault = Fault.BEFORE
    with pytest.raises(StoreError):
        await world.hours()
    with pytest.raises(StoreError):
        await world.history.read_month("2027-01")
    world.store.fault = None
    assert await world.hours() == {0: 3}


async def test_classes_of_an_hour_are_bounded_whatever_the_store_holds() -> None:
    """What nobody understands is counted."""
    world = World()
    key = RouteKeys("p", "m").hour(int(AT_HOUR // AN_HOUR))
    await world.keep(key, {f"fast|c{n}|n": n for n in range(1, 1000)} | {"garbage": 1})
    [*_, cells] = (await world.history.read_hours(AT_HOUR)).values()
    assert len(cells) == MAX_CLASSES
    assert world.history.unknown_fields == 1


async def test_a_month_tells_each_tenant_s_sums() -> None:
    """Across hours; another month is another."""
    world = World()
    for tenant, n in (("t1", 2), ("t2", 3), ("t1", 4)):
        ledger = {"n": 1, "tokens": n}
        learned = Learned("m", FAST, CHAT, {"n": 1}, tenant=TenantId(tenant), ledger=ledger)
        world.writer.add(learned)
        await world.writer.flush()
        world.clock.advance(86_400)
    assert await world.history.read_month("2027-01") == {
        "t1": {"n": 2, "tokens": 6},
        "t2": {"n": 1, "tokens": 3},
    }
    assert await world.history.read_month("2026-12") == {}


async def test_tenants_of_a_month_are_bounded_whatever_the_store_holds() -> None:
    """The largest stay, the others are told together; nothing is lost."""
    world = World()
    fields = {f"t{n}|n": n for n in range(1, MAX_TENANTS + 51)} | {"x|y|n": 1, "z": 1}
    await world.keep(RouteKeys("p", "m").month("2027-01"), fields)
    read = await world.history.read_month("2027-01")
    assert len(read) == MAX_TENANTS + 1
    assert read[OTHER] == {"n": sum(range(1, 51))}
    assert world.history.unknown_fields == 2


async def test_made_tokens_are_read_when_they_cannot_grow_any_more() -> None:
    """An answer tells at its end, up to five minutes later, when its tokens were made."""
    world = World()
    first = slot_at(AT_HOUR)
    world.clock.advance(95)
    made = Made(100, AT_HOUR, AT_HOUR + 95)
    world.writer.add(Learned("m", FAST, CHAT, {"n": 1}, made=made))
    await world.writer.flush()
    slots = range(first, first + 10)
    with pytest.raises(ValueError, match="may still grow"):
        await world.history.read_made(slots)
    world.clock.advance((MADE_SLOTS + OPEN_SLOTS + 1) * 10)
    assert world.history.settled_made >= slots[-1]
    read = await world.history.read_made(slots)
    assert [of[FAST, CHAT] for of in read.values()] == [10, 11, 10, 11, 10, 11, 10, 11, 10, 6]


async def test_what_is_told_five_minutes_later_is_still_in_time() -> None:
    """A reader that asks at the first moment has all of it."""
    world = World()
    made = Made(9, AT_HOUR, AT_HOUR + 1)
    world.clock.advance(MADE_SLOTS * 10 + 9.9)
    world.writer.add(Learned("m", FAST, CHAT, {"n": 1}, made=made))
    await world.writer.flush()
    assert world.writer.late_made_tokens == 0
    slot = slot_at(AT_HOUR)
    assert world.history.settled_made < slot
    world.clock.advance(OPEN_SLOTS * 10)
    assert world.history.settled_made == slot
    assert await world.history.read_made([slot]) == {slot: {(FAST, CHAT): 9}}


async def test_garbage_among_made_tokens_is_left_out() -> None:
    """And counted."""
    world = World()
    slot = slot_at(AT_HOUR) - 100
    fields = {"fast|chat": 5, "x": 1, "a|b|c": 1, "fast|bad": -3}
    await world.keep(RouteKeys("p", "m").made(slot), fields)
    assert await world.history.read_made([slot]) == {slot: {(ArmId("fast"), ClassId("chat")): 5}}
    assert world.history.unknown_fields == 3


async def test_a_store_that_answers_for_other_keys_is_an_error() -> None:
    """Rather than sums under the wrong time."""
    clock = ManualClock()

    class Short(MemoryStore):
        async def read(self, keys: Sequence[str]) -> Sequence[dict[str, int]]:
            return [{}]

    slots = Writer(Short(clock), clock, prefix="p", ttl_s=1).slots
    with pytest.raises(StoreError, match="another number of keys"):
        await History(Short(clock), slots, prefix="p", model="m").read_hours(0.0)
