"""Which slot it is, whatever the clocks of hosts say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import StoreError
from router.estimates.layout import OPEN_SLOTS, SLOT_S, slot_at
from router.estimates.slot_clock import TOLERANCE_S, SlotClock
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore

START = 1_800_000_000.0


class World:
    """A host, and a store on another one."""

    def __init__(self, host: float = START, store: float = START) -> None:
        self.host = ManualClock(host)
        self.stores = ManualClock(store)
        self.store = FaultyStore(MemoryStore(self.stores))
        self.slots = SlotClock(self.host)

    def advance(self, seconds: float) -> None:
        """Time passes everywhere."""
        self.host.advance(seconds)
        self.stores.advance(seconds)

    async def compare(self) -> None:
        """As a refresh does."""
        await self.slots.compare(self.store, "key")


def test_until_the_store_has_told_it_is_the_host_s_time() -> None:
    """Learning goes on while the store is away."""
    world = World()
    assert (world.slots.now(), world.slots.wall()) == (slot_at(START), START)
    assert (world.slots.compared, world.slots.skew_s) == (False, None)


@pytest.mark.parametrize("skew_s", [-7200.0, -11.0, 11.0, 130.0, 86_400.0])
async def test_hosts_whose_clocks_are_wrong_mean_the_same_slot(skew_s: float) -> None:
    """By as much as you like, in either direction; how much is known."""
    world = World(host=START - skew_s)
    await world.compare()
    for _ in range(5):
        assert world.slots.now() == slot_at(world.stores.wall())
        world.advance(SLOT_S)
    assert world.slots.skew_s == pytest.approx(skew_s)


async def test_a_clock_that_is_set_forward_and_back_moves_nothing_once_the_store_has_told() -> None:
    """Whatever has passed is measured by the clock that nobody sets."""
    world = World()
    await world.compare()
    for step in (+3600.0, -3600.0, -900.0, +900.0):
        world.host.step_wall(step)
        world.advance(1.0)
        assert world.slots.now() == slot_at(world.stores.wall())
    assert world.slots.turned_back == 0


def test_a_small_step_back_lets_the_slot_last() -> None:
    """What is sealed stays sealed."""
    world = World()
    slot = world.slots.now()
    world.host.step_wall(-OPEN_SLOTS * SLOT_S)
    assert (world.slots.now(), world.slots.turned_back) == (slot, 0)
    world.advance((OPEN_SLOTS + 1) * SLOT_S)
    assert world.slots.now() == slot + 1


def test_a_host_that_was_far_ahead_is_not_ahead_for_ever() -> None:
    """Without a store to tell the time; whoever has sealed slots learns of it."""
    world = World()
    world.host.step_wall(+3600.0)
    ahead = world.slots.now()
    world.host.step_wall(-3600.0)
    assert (world.slots.now(), world.slots.turned_back) == (slot_at(START), 1)
    assert ahead == slot_at(START) + 360


async def test_a_store_that_is_replaced_by_one_with_another_clock_is_followed() -> None:
    """All processes follow it, so all mean the same slot still."""
    world = World()
    await world.compare()
    world.slots.now()
    world.stores.step_wall(-600.0)
    await world.compare()
    assert world.slots.now() == slot_at(world.stores.wall())
    assert world.slots.turned_back == 1


@given(st.floats(-TOLERANCE_S, TOLERANCE_S))
async def test_small_differences_are_left_alone(skew_s: float) -> None:
    """A reply takes its time, and time must not jitter."""
    world = World()
    await world.compare()
    before = world.slots.wall()
    world.stores.step_wall(0.999 * skew_s)
    await world.compare()
    assert world.slots.wall() == before


async def test_a_store_that_took_its_time_to_tell_is_believed_as_far_as_it_goes() -> None:
    """Half of what the question took may be wrong."""
    world = World()
    await world.compare()

    class Slow(MemoryStore):
        async def time(self, key: str) -> float:
            world.advance(8.0)
            told = await super().time(key)
            world.advance(2.0)
            return told

    await world.slots.compare(Slow(world.stores), "key")
    assert world.slots.wall() == world.stores.wall()
    world.stores.step_wall(+60.0)
    await world.slots.compare(Slow(world.stores), "key")
    assert world.slots.wall() == pytest.approx(world.stores.wall(), abs=5.0)


async def test_what_was_told_holds_while_the_store_is_away() -> None:
    """And the failure is the asker's to see."""
    world = World(host=START - 500.0)
    await world.compare()
    world.store.fault = Fault.BEFORE
    with pytest.raises(StoreError):
        await world.compare()
    world.advance(3000.0)
    assert world.slots.now() == slot_at(world.stores.wall())


async def test_times_of_the_host_can_be_turned_into_the_store_s() -> None:
    """As those at which tokens came."""
    world = World(host=START + 40.0)
    assert world.slots.behind_host_s() == 0.0
    await world.compare()
    assert world.slots.behind_host_s() == 40.0
