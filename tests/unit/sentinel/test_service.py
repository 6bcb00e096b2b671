"""Quarantines as processes share them: one store, several readers, and a store that is away."""

from __future__ import annotations

import pytest

from router.errors import StoreError
from router.estimates.layout import BLOCK_S, Cells
from router.estimates.reader import Past
from router.sentinel.desk import QuarantineDesk, UnknownQuarantineError
from router.sentinel.evidence import Watched
from router.sentinel.service import Quality
from router.stores.memory import MemoryStore
from router.types import POOLED
from tests.support.builders import CHAT, FAST, MODEL, PLAIN
from tests.support.clock import ManualClock

WATCHED = Watched(PLAIN, cells=2, quarantine_s=1000.0)
DAMAGED: Cells = {
    (FAST, CHAT, POOLED): {"n": 100, "drawn": 100, "drawn.bad": 20},
    (PLAIN, CHAT, POOLED): {"n": 100, "drawn": 100},
}


class Away(MemoryStore):
    """A store that can be gone."""

    gone = False

    async def get(self, key: str):  # type: ignore[no-untyped-def]
        """See `DocumentStore`."""
        if self.gone:
            raise StoreError("gone")
        return await super().get(key)


@pytest.fixture
def clock() -> ManualClock:
    """Time."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Away:
    """What processes share."""
    return Away(clock)


def process(store: Away, clock: ManualClock) -> Quality:
    """A process that has just started."""
    return Quality(store, "p", clock.wall)


def past(clock: ManualClock, *, complete: bool = True) -> Past:
    """Damage in the stretches before this one, or in this one alone."""
    now = int(clock.wall() // BLOCK_S)
    if not complete:
        return Past({now: DAMAGED}, now, frozenset())
    return Past({now - 2: DAMAGED, now - 1: DAMAGED}, now, frozenset({now - 2, now - 1}))


async def test_who_finds_it_tells_all_others(store: Away, clock: ManualClock) -> None:
    """Those that were there before, and those that start later."""
    first, second = process(store, clock), process(store, clock)
    empty = Past({}, 0, frozenset())
    await second.look(MODEL, WATCHED, empty)
    await first.look(MODEL, WATCHED, past(clock))
    assert FAST in first.barred(MODEL)(CHAT)
    await second.look(MODEL, WATCHED, empty)
    third = process(store, clock)
    await third.look(MODEL, WATCHED, empty)
    assert all(FAST in of.barred(MODEL)(CHAT) for of in (second, third))
    assert len(await store.log("{p:quality}:v1:book:m", 9)) == 1


async def test_the_same_sums_are_added_once_however_many_look(
    store: Away, clock: ManualClock
) -> None:
    """Every process folds the same stretches; whoever writes first has done it."""
    mild: Cells = {**DAMAGED, (FAST, CHAT, POOLED): {"n": 100, "drawn": 100, "drawn.bad": 1}}
    known = Past({5: mild}, 6, frozenset({5}))
    processes = [process(store, clock) for _ in range(3)]
    for _ in range(2):
        for one in processes:
            await one.look(MODEL, WATCHED, known)
    assert {one.book(MODEL).evidence[FAST, CHAT].counts["drawn.bad"] for one in processes} == {1}
    document = await store.get("{p:quality}:v1:book:m")
    assert document is not None
    assert document.version == 1


async def test_local_evidence_is_enough_to_leave_while_the_store_is_away(
    store: Away, clock: ManualClock
) -> None:
    """And the way back leads over the book."""
    one = process(store, clock)
    store.gone = True
    with pytest.raises(StoreError):
        await one.look(MODEL, WATCHED, past(clock, complete=False))
    assert FAST in one.barred(MODEL)(CHAT)
    assert one.book(MODEL).quarantines[FAST, CHAT].why.startswith("structure: ")
    store.gone = False
    await one.look(MODEL, WATCHED, Past({}, 0, frozenset()))
    assert FAST in one.barred(MODEL)(CHAT)
    clock.advance(3 * BLOCK_S)
    healthy: Cells = {key: {"n": 9, "drawn": 9} for key in DAMAGED}
    now = int(clock.wall() // BLOCK_S)
    await one.look(MODEL, WATCHED, Past({now - 1: healthy}, now, frozenset({now - 1})))
    assert not one.barred(MODEL)(CHAT)


async def test_an_emptied_store_lets_nobody_back_in(store: Away, clock: ManualClock) -> None:
    """Who knows of a quarantine keeps to it."""
    one = process(store, clock)
    await one.look(MODEL, WATCHED, past(clock))
    fresh = Away(clock)
    one._store = fresh
    await one.look(MODEL, WATCHED, Past({}, 0, frozenset()))
    assert FAST in one.barred(MODEL)(CHAT)


async def test_an_order_lifts_it_everywhere(store: Away, clock: ManualClock) -> None:
    """A process that has left by itself goes back as well."""
    one = process(store, clock)
    await one.look(MODEL, WATCHED, past(clock))
    desk = QuarantineDesk(store, "p", clock.wall, lambda: [MODEL])
    [shown] = (await desk.listed())["models"][MODEL]["quarantines"]
    assert (shown["pool"], shown["class"], shown["state"]) == (FAST, CHAT, "quarantined")
    assert shown["counts"]["drawn.bad"] == 40
    await desk.lift(MODEL, (FAST, CHAT), "me", "mended")
    await one.look(MODEL, WATCHED, past(clock))
    assert not one.barred(MODEL)(CHAT)
    with pytest.raises(UnknownQuarantineError):
        await desk.lift(MODEL, (FAST, CHAT), "me")
    with pytest.raises(UnknownQuarantineError):
        await desk.lift("other", (FAST, CHAT), "me")


async def test_the_gauge_shows_what_is_kept_out(store: Away, clock: ManualClock) -> None:
    """A route that is released keeps nobody out."""
    one = process(store, clock)
    await one.look(MODEL, WATCHED, past(clock))
    labels = {"model": MODEL, "pool": FAST, "class": CHAT}
    assert list(one.gauges()) == [("specroute_quarantined", labels, 1.0)]
    one.release(MODEL)
    assert list(one.gauges()) == []
