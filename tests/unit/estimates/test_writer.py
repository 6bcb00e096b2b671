"""The way of sums into the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from policies.types import ArmId, ClassId
from router.errors import StoreError
from router.estimates.layout import HOUR_TTL_S, SLOTS_PER_HOUR, RouteKeys, slot_at
from router.estimates.learned import Learned
from router.estimates.made import Made
from router.estimates.pending import MAX_SLOT_PARTS
from router.estimates.writer import MAX_DEFERRED, Writer
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from router.types import POOLED, SegmentId, TenantId
from tests.support.builders import CHAT, FAST, PLAIN
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore


class World:
    """A writer, its store and the time."""

    def __init__(self, max_fields: int = 1000) -> None:
        self.clock = ManualClock()
        self.store = FaultyStore(MemoryStore(self.clock))
        self.writer = Writer(
            self.store, self.clock, prefix="p", ttl_s=10_000, max_fields=max_fields
        )

    def add(self, n: int = 1, arm: ArmId = FAST, model: str = "m") -> None:
        """One finished request."""
        self.writer.add(Learned(model, arm, CHAT, {"n": n}))

    async def stored(self, slots_ago: int = 0, model: str = "m") -> Mapping[str, int]:
        """What the store holds of a slot."""
        slot = slot_at(self.clock.wall()) - slots_ago
        return (await self.store.inner.read([RouteKeys("p", model).slot(slot)]))[0]

    async def fails(self, fault: Fault) -> None:
        """A flush that fails."""
        self.store.fault = fault
        with pytest.raises(StoreError):
            await self.writer.flush()
        self.store.fault = None


@pytest.fixture
def world() -> World:
    """Nothing has been added yet."""
    return World()


async def test_nothing_to_send_means_no_call(world: World) -> None:
    """An idle proxy leaves the store alone."""
    await world.writer.flush()
    world.add()
    await world.writer.flush()
    await world.writer.flush()
    assert len(world.store.batches) == 1


async def test_requests_of_one_interval_go_together(world: World) -> None:
    """As one batch, summed by cell."""
    world.add(1)
    world.add(2)
    world.add(5, PLAIN)
    await world.writer.flush()
    assert await world.stored() == {"fast|chat|n": 3, "plain|chat|n": 5}
    assert len(world.store.batches) == 1


async def test_a_request_belongs_to_the_slot_in_which_it_ended(world: World) -> None:
    """Even if it is sent a little later."""
    world.add(1)
    world.clock.advance(10)
    world.add(2)
    await world.writer.flush()
    assert [await world.stored(ago) for ago in (0, 1)] == [{"fast|chat|n": 2}, {"fast|chat|n": 1}]


async def test_what_comes_too_late_goes_into_a_slot_that_is_still_open(world: World) -> None:
    """Sealed slots are never read again: what is added to them would be lost."""
    world.add(1)
    world.clock.advance(10)
    world.add(2)
    world.clock.advance(60)
    await world.writer.flush()
    assert [await world.stored(ago) for ago in (0, 1, 2, 6, 7)] == [
        {},
        {"fast|chat|n": 3},
        {},
        {},
        {},
    ]


@pytest.mark.parametrize("fault", Fault)
async def test_a_failed_batch_is_sent_again_and_counts_once(world: World, fault: Fault) -> None:
    """Whether the request was lost or only the reply."""
    world.add(1)
    await world.fails(fault)
    world.add(2)
    await world.fails(fault)
    await world.writer.flush()
    assert await world.stored() == {"fast|chat|n": 3}
    assert world.writer.unconfirmed("m") == {}
    assert [batch.number for batch in world.store.batches] == [1, 1, 1, 2]


async def test_a_lost_reply_counts_once_however_long_the_store_is_away(world: World) -> None:
    """Hours later the batch has the same name."""
    world.add(1)
    await world.fails(Fault.AFTER)
    world.clock.advance(9_000)
    await world.writer.flush()
    assert await world.stored(900) == {"fast|chat|n": 1}
    assert await world.stored(1) == {}


async def test_a_batch_that_arrives_after_a_later_one_is_ignored(world: World) -> None:
    """A frozen server may run an abandoned call long after its successor was confirmed."""
    world.add(1)
    await world.writer.flush()
    first = world.store.batches[0]
    world.add(2)
    await world.writer.flush()
    key = RouteKeys("p", "m").slot(slot_at(world.clock.wall()))
    await world.store.add(first, [Addition({"fast|chat|": {"n": 1}}, {key: 100})])
    assert await world.stored() == {"fast|chat|n": 3}


async def test_two_writers_never_mistake_each_other_s_batches() -> None:
    """Both count from 1."""
    clock = ManualClock()
    store = MemoryStore(clock)
    for _ in range(2):
        writer = Writer(store, clock, prefix="p", ttl_s=100)
        writer.add(Learned("m", FAST, CHAT, {"n": 1}))
        await writer.flush()
    assert await store.read([RouteKeys("p", "m").slot(slot_at(clock.wall()))]) == [
        {"fast|chat|n": 2}
    ]


async def test_what_is_not_confirmed_is_still_known(world: World) -> None:
    """Learning goes on while the store is away."""
    world.add(1)
    await world.fails(Fault.BEFORE)
    world.add(2)
    world.clock.advance(500)
    world.add(4)
    assert world.writer.unconfirmed("m") == {(FAST, CHAT, POOLED): {"n": 7}}
    assert world.writer.unconfirmed("other") == {}
    await world.writer.flush()
    assert world.writer.unconfirmed("m") == {}


async def test_log_costs_by_kind_are_told_though_requests_add_them_by_moment(world: World) -> None:
    """To whoever looks before they are stored, and to the store; in its classes and parts alike."""
    band = (FAST, CHAT, SegmentId("~0"))
    for lean, y in (("x12ab2", -3), ("x12ab1", 5), ("", 7)):
        cost = {f"m.s{lean}.n": 1, f"m.s{lean}.s": y, f"m.s{lean}.q": y * y}
        world.writer.add(Learned("m", FAST, CHAT, {"n": 1, **cost}, also=((band, cost),)))
    added_up = {"y.s.n": 3, "y.s.s": 9, "y.s.q": 83}
    waiting = world.writer.unconfirmed("m")
    await world.writer.flush()
    stored = await world.stored()
    assert stored["fast|chat|m.sx12ab2.s"] == -3
    for name, value in added_up.items():
        assert waiting[FAST, CHAT, POOLED][name] == waiting[band][name] == value
        assert stored[f"fast|chat|{name}"] == stored[f"fast|chat|~0|{name}"] == value


async def test_memory_is_bounded_by_cells_not_by_requests(world: World) -> None:
    """A thousand requests of one cell and slot take the room of one."""
    small = World(max_fields=2)
    for _ in range(1000):
        small.add(1)
        small.add(1, PLAIN)
    assert small.writer.dropped == 0
    await small.writer.flush()
    assert await small.stored() == {"fast|chat|n": 1000, "plain|chat|n": 1000}


async def test_a_request_without_room_is_dropped_whole_and_counted() -> None:
    """Half of one would be a count without its sum."""
    world = World(max_fields=3)
    world.writer.add(Learned("m", FAST, CHAT, {"n": 1, "tokens": 10}))
    world.writer.add(Learned("m", PLAIN, CHAT, {"n": 1, "tokens": 10}))
    world.writer.add(Learned("m", FAST, CHAT, {"n": 1, "tokens": 20}))
    assert world.writer.dropped == 2
    assert world.writer.unconfirmed("m") == {(FAST, CHAT, POOLED): {"n": 2, "tokens": 30}}


async def test_a_request_whose_segment_has_no_room_is_dropped_whole_too() -> None:
    """What is there already needs none."""
    world = World(max_fields=3)
    sums, part = {"n": 1, "tokens": 10}, SegmentId("a1")
    world.writer.add(Learned("m", FAST, CHAT, sums, part))
    world.writer.add(Learned("m", FAST, CHAT, sums, SegmentId("b2")))
    world.writer.add(Learned("m", FAST, CHAT, sums, part))
    assert world.writer.dropped == 3
    assert world.writer.unconfirmed("m") == {
        (FAST, CHAT, POOLED): {"n": 2, "tokens": 20},
        (FAST, CHAT, part): {"n": 2},
    }


async def test_room_comes_back_when_the_store_confirms() -> None:
    """And not before: what was sent may have to be sent again."""
    world = World(max_fields=1)
    world.add()
    await world.fails(Fault.BEFORE)
    world.add()
    assert world.writer.dropped == 1
    await world.writer.flush()
    world.add()
    assert world.writer.dropped == 1


async def test_requests_that_finish_while_a_batch_is_on_its_way_are_not_lost() -> None:
    """Of the same route, and of a route that is used for the first time just then."""
    clock = ManualClock()
    inner = MemoryStore(clock)
    arrived, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
            arrived.set()
            await go.wait()
            return await inner.add(batch, additions)

    writer = Writer(Slow(clock), clock, prefix="p", ttl_s=100)
    writer.add(Learned("a", FAST, CHAT, {"n": 1}))
    flushes = [asyncio.ensure_future(writer.flush()) for _ in range(2)]
    await arrived.wait()
    writer.add(Learned("a", FAST, CHAT, {"n": 2}))
    writer.add(Learned("b", FAST, CHAT, {"n": 4}))
    go.set()
    await asyncio.gather(*flushes)
    await writer.flush()
    slot = slot_at(clock.wall())
    keys = [RouteKeys("p", model).slot(slot) for model in "ab"]
    assert await inner.read(keys) == [{"fast|chat|n": 3}, {"fast|chat|n": 4}]
    assert (writer.unconfirmed("a"), writer.unconfirmed("b")) == ({}, {})


async def test_a_cancelled_flush_loses_nothing() -> None:
    """As when the proxy stops in the middle of one."""
    clock = ManualClock()
    store = MemoryStore(clock)
    arrived = asyncio.Event()

    class Stuck(MemoryStore):
        stuck = True

        async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
            added = await store.add(batch, additions)
            if self.stuck:
                arrived.set()
                await asyncio.Event().wait()
            return added

    slow = Stuck(clock)
    writer = Writer(slow, clock, prefix="p", ttl_s=100)
    writer.add(Learned("m", FAST, ClassId("chat"), {"n": 1}))
    flush = asyncio.ensure_future(writer.flush())
    await arrived.wait()
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    slow.stuck = False
    await writer.flush()
    assert await store.read([RouteKeys("p", "m").slot(slot_at(clock.wall()))]) == [
        {"fast|chat|n": 1}
    ]


async def test_increments_that_the_store_refused_are_counted(world: World) -> None:
    """Garbage in the store is not the proxy's fault, but it shows."""

    class Refusing(MemoryStore):
        async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
            return 3

    writer = Writer(Refusing(world.clock), world.clock, prefix="p", ttl_s=100)
    writer.add(Learned("m", FAST, CHAT, {"n": 1}))
    await writer.flush()
    assert writer.refused == 3


async def test_a_segment_counts_in_its_class_and_apart(world: World) -> None:
    """Of what counts apart only what bears on arms' effects."""
    sums = {"n": 1, "status.ok": 1, "y.s.n": 1, "ttft.7": 1}
    world.writer.add(Learned("m", FAST, CHAT, sums, SegmentId("a1")))
    world.writer.add(Learned("m", FAST, CHAT, sums, SegmentId("+")))
    await world.writer.flush()
    small = {"n": 1, "status.ok": 1, "y.s.n": 1}
    assert await world.stored() == {
        **{f"fast|chat|{name}": 2 for name in sums},
        **{f"fast|chat|a1|{name}": 1 for name in small},
        **{f"fast|chat|+|{name}": 1 for name in small},
    }


async def test_the_number_of_segments_of_a_slot_is_bounded(world: World) -> None:
    """Those beyond it count in their class and its copy band; the next slot has room again."""
    for slot in range(2):
        for index in range(MAX_SLOT_PARTS + 10):
            world.writer.add(Learned("m", FAST, CHAT, {"n": 1}, SegmentId(f"s{slot}.{index}")))
            world.writer.add(Learned("m", FAST, CHAT, {"n": 1}, SegmentId(f"t{slot}.{index}+")))
        world.clock.advance(10)
    cells = world.writer.unconfirmed("m")
    assert cells[FAST, CHAT, POOLED] == {"n": 4 * (MAX_SLOT_PARTS + 10)}
    assert len(cells) == 2 + 2 * MAX_SLOT_PARTS
    copying = sum(fields["n"] for key, fields in cells.items() if key[2].endswith("+"))
    assert copying == 2 * (MAX_SLOT_PARTS + 10)


async def test_all_that_a_request_adds_goes_in_one_batch(world: World) -> None:
    """Slot, hour, month and made tokens: all of it counts once, or none."""
    bands = (((FAST, CHAT, SegmentId("~1")), {"n": 1}), ((FAST, ClassId("*"), POOLED), {"x": 2}))
    now = world.clock.wall()
    learned = Learned(
        "m",
        FAST,
        CHAT,
        {"n": 1, "tokens": 8},
        also=bands,
        tenant=TenantId("t1"),
        ledger={"n": 1},
        made=Made(8, now - 10, now),
    )
    world.writer.add(learned)
    await world.fails(Fault.AFTER)
    await world.writer.flush()
    assert await world.stored() == {
        "fast|chat|n": 1,
        "fast|chat|tokens": 8,
        "fast|chat|~1|n": 1,
        "fast|*|x": 2,
    }
    keys, slot = RouteKeys("p", "m"), slot_at(now)
    asked = [keys.hour(slot // SLOTS_PER_HOUR), keys.month("2027-01")]
    made = [keys.made(slot - 1), keys.made(slot)]
    assert await world.store.inner.read([*asked, *made]) == [
        {"fast|chat|n": 1, "fast|chat|tokens": 8, "fast|*|x": 2},
        {"t1|n": 1},
        {"fast|chat": 8},
        {},
    ]
    assert world.writer.waiting == 0


async def test_tokens_made_more_than_five_minutes_ago_are_counted_as_late(world: World) -> None:
    """Their slots have been read; the others are told exactly."""
    now = world.clock.wall()
    world.writer.add(Learned("m", FAST, CHAT, {"n": 1}, made=Made(4000, now - 400, now)))
    await world.writer.flush()
    keys, slot = RouteKeys("p", "m"), slot_at(now)
    told = await world.store.inner.read([keys.made(of) for of in range(slot - 40, slot + 1)])
    assert sum(fields.get("fast|chat", 0) for fields in told) + world.writer.late_made_tokens == (
        4000
    )
    assert world.writer.late_made_tokens == 1000


async def test_times_by_a_wrong_host_clock_are_put_right() -> None:
    """Once the store has told its time."""
    host = ManualClock(1_800_000_000.0 + 300)
    store = MemoryStore(ManualClock(1_800_000_000.0))
    writer = Writer(store, host, prefix="p", ttl_s=100)
    await writer.compare_clocks()
    made = Made(5, host.wall() - 1, host.wall())
    writer.add(Learned("m", FAST, CHAT, {"n": 1}, made=made))
    await writer.flush()
    keys, slot = RouteKeys("p", "m"), slot_at(1_800_000_000.0)
    read = await store.read([keys.slot(slot), keys.made(slot - 1)])
    assert read == [{"fast|chat|n": 1}, {"fast|chat": 5}]


@pytest.mark.parametrize("wrong_s", [-600.0, 600.0])
async def test_the_store_is_asked_for_its_time_before_the_first_batch(wrong_s: float) -> None:
    """A process that began while it was away did not know better; its sums count now."""
    host = ManualClock(1_800_000_000.0 + wrong_s)
    store = FaultyStore(MemoryStore(ManualClock(1_800_000_000.0)))
    writer = Writer(store, host, prefix="p", ttl_s=100)
    writer.add(Learned("m", FAST, CHAT, {"n": 1}))
    store.fault = Fault.BEFORE
    with pytest.raises(StoreError):
        await writer.flush()
    store.fault = None
    await writer.flush()
    keys, slot = RouteKeys("p", "m"), slot_at(1_800_000_000.0)
    late, now = await store.read([keys.slot(slot - 1), keys.slot(slot)])
    assert (late, now) == (({"fast|chat|n": 1}, {}) if wrong_s < 0 else ({}, {"fast|chat|n": 1}))


async def test_deferred_sums_are_worked_out_before_anybody_asks_for_them(world: World) -> None:
    """In the slot in which their request ended, however late that is."""
    asked = []

    def work_out(n: int) -> Learned:
        asked.append(n)
        return Learned("m", FAST, CHAT, {"n": n})

    for n in (1, 2):
        world.writer.defer(partial(work_out, n))
    assert asked == []
    assert world.writer.unconfirmed("m") == {(FAST, CHAT, POOLED): {"n": 3}}
    world.writer.defer(partial(work_out, 4))
    world.writer.defer(lambda: None)
    world.clock.advance(10)
    world.writer.defer(partial(work_out, 8))
    await world.writer.flush()
    assert asked == [1, 2, 4, 8]
    assert [await world.stored(ago) for ago in (0, 1)] == [{"fast|chat|n": 8}, {"fast|chat|n": 7}]


async def test_deferred_requests_are_bounded(world: World) -> None:
    """Where many end between two flushes, the oldest are worked out on the way."""
    asked = []
    for n in range(10 * MAX_DEFERRED):
        world.writer.defer(lambda n=n: asked.append(n))  # type: ignore[misc]
    assert 9 * MAX_DEFERRED <= len(asked) < 10 * MAX_DEFERRED
    await world.writer.flush()
    assert asked == list(range(10 * MAX_DEFERRED))


async def test_a_flush_ends_however_many_requests_end_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while it works goes with the next one, instead of keeping all from the store."""

    def ended() -> None:
        for _ in range(MAX_DEFERRED // 2):
            world.writer.defer(lambda: Learned("m", FAST, CHAT, {"n": 1}))

    async def busy() -> None:
        ended()
        await asyncio.sleep(0)

    ended()
    monkeypatch.setattr("router.estimates.writer.breathe", busy)
    async with asyncio.timeout(30):
        await world.writer.flush()
    assert (await world.stored())["fast|chat|n"] >= MAX_DEFERRED // 2


async def test_an_outage_takes_room_by_cell_and_hour_not_by_slot() -> None:
    """A day of it costs no more than what the hours hold."""
    world = World(max_fields=60)
    world.store.fault = Fault.BEFORE
    for _ in range(24 * 60):
        world.add(1)
        with pytest.raises(StoreError):
            await world.writer.flush()
        world.clock.advance(60)
    assert world.writer.dropped == 0
    world.store.fault = None
    await world.writer.flush()
    assert await world.stored(1) == {"fast|chat|n": 24 * 60}


async def test_a_batch_that_the_store_may_have_forgotten_is_not_sent_again(world: World) -> None:
    """After nine days it could count twice; it is dropped and counted."""
    world.add(1)
    await world.fails(Fault.AFTER)
    world.clock.advance(HOUR_TTL_S)
    world.add(2)
    await world.writer.flush()
    assert (world.writer.dropped, world.writer.waiting) == (1, 0)
    assert [batch.number for batch in world.store.batches] == [1, 2]


async def test_a_store_that_tells_no_time_is_added_to_all_the_same(world: World) -> None:
    """A user may lack the permission; the host's clock has to do."""

    class Mute(MemoryStore):
        async def time(self, key: str) -> float:
            raise StoreError("no permission")

    store = Mute(world.clock)
    writer = Writer(store, world.clock, prefix="p", ttl_s=100)
    writer.add(Learned("m", FAST, CHAT, {"n": 1}))
    await writer.flush()
    key = RouteKeys("p", "m").slot(slot_at(world.clock.wall()))
    assert await store.read([key]) == [{"fast|chat|n": 1}]
    assert writer.slots.skew_s is None
