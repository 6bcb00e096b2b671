"""Who shares the limits of tenants."""

from __future__ import annotations

import pytest

from router.errors import StoreError
from router.stores.memory import MemoryStore
from router.tenants.presence import WINDOW_S, Presence, places_of
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore


async def test_all_know_of_each_other_and_who_is_gone_is_forgotten() -> None:
    """Ranks differ; one that says nothing for two windows is not counted."""
    clock = ManualClock(1_800_000_000.0)
    store = MemoryStore(clock)
    those = [Presence("p", name) for name in "bac"]
    for _ in range(2):
        for one in those:
            await one.refresh(store, clock.wall())
    assert [(one.processes, one.rank) for one in those] == [(3, 1), (3, 0), (3, 2)]
    assert not await those[0].refresh(store, clock.wall())
    for _ in range(3):
        clock.advance(WINDOW_S)
        for one in those[:2]:
            await one.refresh(store, clock.wall())
    assert [(one.processes, one.rank) for one in those[:2]] == [(2, 1), (2, 0)]


async def test_without_the_store_the_last_known_number_holds() -> None:
    """Nobody's limit grows because nobody can be asked."""
    clock = ManualClock(1_800_000_000.0)
    store = FaultyStore(MemoryStore(clock))
    one, other = Presence("p", "a"), Presence("p", "b")
    for presence in (one, other, one):
        await presence.refresh(store, clock.wall())
    store.fault = Fault.BEFORE
    clock.advance(100.0)
    with pytest.raises(StoreError):
        await one.refresh(store, clock.wall())
    assert (one.processes, one.rank) == (2, 0)


@pytest.mark.parametrize(("limit", "processes"), [(10, 4), (7, 3), (4, 4), (1000, 7)])
def test_the_parts_add_up_to_the_limit(limit: int, processes: int) -> None:
    """Where there is one for everybody at least."""
    parts = [places_of(limit, processes, rank) for rank in range(processes)]
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1


async def test_until_the_store_tells_what_is_known_here_holds() -> None:
    """One of four workers takes its part from the first request on, store or no store."""
    one = Presence("p", processes=4, rank=2)
    assert (one.processes, one.rank) == (4, 2)
    await one.refresh(MemoryStore(ManualClock(1000.0)), 1000.0)
    assert (one.processes, one.rank) == (1, 0)
