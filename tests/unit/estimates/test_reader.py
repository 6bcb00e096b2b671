"""The way of sums back, and the whole way there and back under everything that can go wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ArmId
from router.errors import StoreError
from router.estimates.layout import (
    BLOCK_S,
    MAX_PARTS,
    OPEN_SLOTS,
    SLOT_S,
    SLOTS_PER_BLOCK,
    RouteKeys,
    slot_at,
)
from router.estimates.learned import Learned
from router.estimates.reader import Past, Reader
from router.estimates.writer import Writer
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from router.types import POOLED
from tests.support.builders import CHAT, FAST, PLAIN
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore

WINDOW_S = 3600
AT_BLOCK_START = 1_800_000_000.0
assert AT_BLOCK_START % BLOCK_S == 0


@dataclass
class Proxy:
    """One process: a writer and a reader over a connection of its own."""

    clock: ManualClock
    """Of its host; the store has its own."""
    shared: MemoryStore
    store: FaultyStore = field(init=False)
    writer: Writer = field(init=False)
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.store = FaultyStore(self.shared)
        self.writer = Writer(self.store, self.clock, prefix="p", ttl_s=2 * WINDOW_S, max_fields=50)
        self.reader = Reader(self.store, self.writer, prefix="p", model="m", window_s=WINDOW_S)

    def add(self, n: int = 1, arm: ArmId = FAST) -> bool:
        """One finished request; whether there was room for it."""
        before = self.writer.dropped
        self.writer.add(Learned("m", arm, CHAT, {"n": n}))
        return self.writer.dropped == before

    async def settle(self) -> Past:
        """Everything sent and everything read."""
        self.store.fault = None
        await self.writer.flush()
        return await self.reader.refresh()


@pytest.fixture
def clock() -> ManualClock:
    """Time starts with a block."""
    return ManualClock(AT_BLOCK_START)


@pytest.fixture
def proxy(clock: ManualClock) -> Proxy:
    """One process over a store of its own."""
    return Proxy(clock, MemoryStore(clock))


def sums(past: Past) -> dict[ArmId, int]:
    """Requests by arm over all blocks."""
    total: Counter[ArmId] = Counter()
    for cells in past.blocks.values():
        for (arm, _, _), fields in cells.items():
            total[arm] += fields["n"]
    return dict(total)


def slots_read(store: FaultyStore) -> list[list[int]]:
    """Numbers of the slots asked for, read by read."""
    return [[int(key.rpartition(":")[2]) for key in keys] for keys in store.reads]


async def test_what_was_written_is_read_at_once(proxy: Proxy) -> None:
    """Open slots are read every time."""
    proxy.add(1)
    assert sums(await proxy.settle()) == {FAST: 1}
    proxy.add(2)
    proxy.add(5, PLAIN)
    assert sums(await proxy.settle()) == {FAST: 3, PLAIN: 5}


async def test_what_another_process_wrote_is_read_too(clock: ManualClock) -> None:
    """They share nothing but the store."""
    shared = MemoryStore(clock)
    one, two = Proxy(clock, shared), Proxy(clock, shared)
    one.add(1)
    two.add(2)
    await one.settle()
    assert sums(await two.settle()) == {FAST: 3}
    assert sums(await one.settle()) == {FAST: 3}


async def test_a_sealed_slot_is_read_once(proxy: Proxy, clock: ManualClock) -> None:
    """After the first time only what may have changed is asked for."""
    await proxy.settle()
    clock.advance(SLOT_S)
    await proxy.settle()
    await proxy.settle()
    current = slot_at(clock.wall())
    first, *later = slots_read(proxy.store)
    assert first == list(range(current - 1 - WINDOW_S // SLOT_S, current))
    assert later == [
        list(range(current - OPEN_SLOTS, current + 1)),
        list(range(current - OPEN_SLOTS + 1, current + 1)),
    ]


async def test_after_an_outage_all_slots_since_then_are_read(
    proxy: Proxy, clock: ManualClock
) -> None:
    """Other processes went on writing."""
    other = Proxy(clock, proxy.shared)
    await proxy.settle()
    for _ in range(30):
        proxy.store.fault = Fault.BEFORE
        other.add(1)
        await other.writer.flush()
        with pytest.raises(StoreError):
            await proxy.reader.refresh()
        clock.advance(SLOT_S)
    assert sums(proxy.reader.past()) == {}
    assert sums(await proxy.settle()) == {FAST: 30}


async def test_while_the_store_is_away_the_past_and_own_sums_still_count(
    proxy: Proxy, clock: ManualClock
) -> None:
    """Requests go on being learned from."""
    proxy.add(1)
    await proxy.settle()
    clock.advance(200)
    await proxy.settle()
    proxy.store.fault = Fault.BEFORE
    proxy.add(2)
    with pytest.raises(StoreError):
        await proxy.writer.flush()
    proxy.add(4)
    past = proxy.reader.past()
    assert sums(past) == {FAST: 7}
    assert past.blocks[past.newest_block] == {(FAST, CHAT, POOLED): {"n": 6}}


async def test_blocks_are_two_minutes_and_complete_when_all_their_slots_are_sealed(
    proxy: Proxy, clock: ManualClock
) -> None:
    """A complete block never changes again."""
    block = slot_at(clock.wall()) // SLOTS_PER_BLOCK
    proxy.add(1)
    past = await proxy.settle()
    assert past.newest_block == block
    assert {at: cells for at, cells in past.blocks.items() if cells} == {
        block: {(FAST, CHAT, POOLED): {"n": 1}}
    }
    assert block not in past.complete
    clock.advance(BLOCK_S + (OPEN_SLOTS - 1) * SLOT_S - 1)
    assert block not in (await proxy.settle()).complete
    clock.advance(1)
    past = await proxy.settle()
    assert block in past.complete
    assert past.newest_block == block + 1


async def test_the_past_ends_with_the_window(proxy: Proxy, clock: ManualClock) -> None:
    """By whole blocks."""
    proxy.add(1)
    assert sums(await proxy.settle()) == {FAST: 1}
    clock.advance(WINDOW_S)
    assert sums(await proxy.settle()) == {FAST: 1}
    clock.advance(BLOCK_S)
    assert sums(await proxy.settle()) == {}


async def test_a_restart_finds_the_past_in_the_store(proxy: Proxy, clock: ManualClock) -> None:
    """One refresh brings it back."""
    for _ in range(20):
        proxy.add(1)
        await proxy.settle()
        clock.advance(SLOT_S)
    assert sums(await Proxy(clock, proxy.shared).settle()) == {FAST: 20}


async def test_a_wall_clock_that_is_set_back_neither_loses_nor_repeats_what_is_known(
    proxy: Proxy, clock: ManualClock
) -> None:
    """Time services do that; sealed slots stay sealed."""
    proxy.add(1)
    await proxy.settle()
    clock.advance(300)
    await proxy.settle()
    clock.step_wall(-250)
    assert sums(await proxy.settle()) == {FAST: 1}
    proxy.add(2)
    assert sums(await proxy.settle()) == {FAST: 3}
    clock.advance(400)
    proxy.add(4)
    assert sums(await proxy.settle()) == {FAST: 7}


async def test_processes_whose_clocks_are_minutes_apart_see_each_other_s_sums(
    clock: ManualClock,
) -> None:
    """At once, and for good: all go by the store's."""
    shared = MemoryStore(clock)
    hosts = [ManualClock(AT_BLOCK_START + skew) for skew in (0.0, -400.0, +700.0)]
    proxies = [Proxy(host, shared) for host in hosts]
    for proxy in proxies:
        await proxy.writer.compare_clocks()
    for _ in range(30):
        for proxy in proxies:
            proxy.add(1)
            await proxy.settle()
        for each in (clock, *hosts):
            each.advance(SLOT_S)
    for proxy in proxies:
        past = await proxy.settle()
        assert sums(past) == {FAST: 90}
        assert past.newest_block == slot_at(clock.wall()) // SLOTS_PER_BLOCK


async def test_a_store_clock_that_was_far_ahead_costs_nothing_that_is_dated_right(
    clock: ManualClock,
) -> None:
    """What was sealed ahead of time is read again; what was dated ahead counts when it is time."""
    shared = MemoryStore(clock)
    host = ManualClock(AT_BLOCK_START)
    proxy = Proxy(host, shared)
    await proxy.writer.compare_clocks()
    proxy.add(1)
    await proxy.settle()
    clock.step_wall(+1800.0)
    await proxy.writer.compare_clocks()
    proxy.add(10)
    assert sums(await proxy.settle()) == {FAST: 11}
    clock.step_wall(-1800.0)
    await proxy.writer.compare_clocks()
    for each in (clock, host):
        each.advance(100)
    proxy.add(100)
    assert sums(await proxy.settle()) == {FAST: 101}
    for each in (clock, host):
        each.advance(1800)
    assert sums(await proxy.settle()) == {FAST: 111}


async def test_garbage_in_a_slot_is_counted_once_and_left_out(
    proxy: Proxy, clock: ManualClock
) -> None:
    """It is counted when the slot is sealed, not at every refresh."""
    key = RouteKeys("p", "m").slot(slot_at(clock.wall()))
    garbage = Addition({"": {"garbage": 1, "fast|chat|n": 2}}, {key: 1000})
    await proxy.store.add(Batch("x", 1, 1000), [garbage])
    await proxy.settle()
    assert proxy.reader.unknown_fields == 0
    clock.advance(OPEN_SLOTS * SLOT_S)
    assert sums(await proxy.settle()) == {FAST: 2}
    await proxy.settle()
    assert proxy.reader.unknown_fields == 1


async def test_a_store_that_answers_for_other_slots_is_an_error(clock: ManualClock) -> None:
    """Rather than sums under the wrong time."""

    class Short(MemoryStore):
        async def read(self, keys: Sequence[str]) -> Sequence[dict[str, int]]:
            return []

    with pytest.raises(StoreError, match="another number of slots"):
        await Proxy(clock, Short(clock)).reader.refresh()


async def test_a_past_that_was_given_out_does_not_change(proxy: Proxy, clock: ManualClock) -> None:
    """Own sums are laid over a copy of what was read."""
    proxy.add(1)
    past = await proxy.settle()
    proxy.add(2)
    proxy.reader.past()
    assert sums(past) == {FAST: 1}


async def test_segments_are_bounded_whatever_the_store_holds(
    proxy: Proxy, clock: ManualClock
) -> None:
    """The largest of each block stay, open or sealed; the class is whole."""
    for number in range(1, 4):
        key = RouteKeys("p", "m").slot(slot_at(clock.wall()))
        fields = {f"fast|chat|s{number}.{index}|n": index for index in range(1, 501)}
        addition = Addition({"": {"fast|chat|n": 9, **fields}}, {key: 1000})
        await proxy.store.add(Batch("x", number, 1000), [addition])
        clock.advance(SLOT_S)
        past = await proxy.settle()
        for cells in past.blocks.values():
            assert len(cells) <= 1 + MAX_PARTS
    clock.advance(OPEN_SLOTS * SLOT_S)
    [cells] = [cells for cells in (await proxy.settle()).blocks.values() if cells]
    assert cells[FAST, CHAT, POOLED] == {"n": 27}
    kept = [fields["n"] for (_, _, part), fields in cells.items() if part]
    assert len(kept) == MAX_PARTS
    assert min(kept) > 500 - MAX_PARTS


# --- There and back, whatever happens ---------------------------------------------------------

PROXIES = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PROXIES, st.sampled_from([FAST, PLAIN]), st.integers(1, 9)),
        st.tuples(st.just("flush"), PROXIES),
        st.tuples(st.just("refresh"), PROXIES),
        st.tuples(st.just("fault"), PROXIES, st.sampled_from([None, *Fault])),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 9.0, 11.0, 25.0, 130.0])),
        st.tuples(st.just("restart"), PROXIES),
    ),
    max_size=60,
)


async def _there_and_back(steps: Iterable[tuple[object, ...]]) -> None:
    clock = ManualClock(AT_BLOCK_START)
    shared = MemoryStore(clock)
    proxies = [Proxy(clock, shared), Proxy(clock, shared)]
    expected: Counter[ArmId] = Counter()
    for step in steps:
        match step:
            case ("add", int(at), arm, int(n)) if isinstance(arm, str):
                if proxies[at].add(n, ArmId(arm)):
                    expected[ArmId(arm)] += n
            case ("flush", int(at)):
                await _try(proxies[at].writer.flush())
            case ("refresh", int(at)):
                await _try(proxies[at].reader.refresh())
            case ("fault", int(at), fault):
                proxies[at].store.fault = fault if isinstance(fault, Fault) else None
            case ("wait", float(seconds)):
                clock.advance(seconds)
            case ("restart", int(at)):  # in good order: what was learned is flushed before
                await proxies[at].settle()
                proxies[at] = Proxy(clock, shared)
    for proxy in proxies:
        await proxy.settle()
    for proxy in [*proxies, Proxy(clock, shared)]:
        assert sums(await proxy.settle()) == dict(expected)
        assert proxy.writer.unconfirmed("m") == {}


async def _try(work: object) -> None:
    assert asyncio.iscoroutine(work)
    try:
        await work
    except StoreError:
        return


@given(STEPS)
def test_nothing_is_lost_and_nothing_counts_twice(steps: list[tuple[object, ...]]) -> None:
    """Two processes, any order of requests, flushes, refreshes, lost calls, lost replies, waits.

    In the end every process, and one that has just started, knows exactly what was added and not
    dropped.
    """
    waited = sum(step[1] for step in steps if step[0] == "wait" and isinstance(step[1], float))
    if waited < WINDOW_S:
        asyncio.run(_there_and_back(steps))


async def test_who_looks_in_the_middle_of_a_refresh_sees_nothing_twice(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large store is read in steps, between which others ask for the past."""
    looks: list[int] = []

    async def look() -> None:
        await asyncio.sleep(0)
        looks.append(sums(proxy.reader.past())[FAST])

    for _ in range(2 * OPEN_SLOTS):
        proxy.add()
        await proxy.settle()
        proxy.clock.advance(SLOT_S)
    monkeypatch.setattr("router.estimates.history._FIELDS_PER_STEP", 1)
    monkeypatch.setattr("router.estimates.history.breathe", look)
    proxy.clock.advance(OPEN_SLOTS * SLOT_S)
    after = await proxy.settle()
    assert looks
    assert set(looks) == {2 * OPEN_SLOTS} == {sums(after)[FAST]}
