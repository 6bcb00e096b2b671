"""Promises that processes tell each other through the store."""

from __future__ import annotations

from router.stores.memory import MemoryStore
from router.tenants.board import PromiseBoard
from tests.support.clock import ManualClock


async def test_others_learn_what_is_due_soon_and_nobody_its_own() -> None:
    """By name; also where two processes have promised the same request."""
    clock = ManualClock(1000.0)
    store = MemoryStore(clock)
    one, other, third = (PromiseBoard("p", name) for name in ("one", "other", "third"))
    await one.tell(store, [(1004.5, "a"), (1012.25, "b"), (1055.0, "later")])
    await other.tell(store, [(1006.0, "a")])
    await one.tell(store, [])
    assert await one.others(store, 1003.0) == {"a": [1006.0]}
    assert await third.others(store, 1003.0) == {"a": [1004.5, 1006.0], "b": [1012.25]}
    assert await third.others(store, 1052.0) == {"later": [1055.0]}


async def test_what_is_over_and_what_nobody_understands_is_left_out() -> None:
    """Whoever wrote it."""
    clock = ManualClock(1000.0)
    store = MemoryStore(clock)
    await PromiseBoard("p", "one").tell(store, [(1001.0, "a"), (1009.0, "odd.name")])
    assert await PromiseBoard("p").others(store, 1005.0) == {}
