"""Work for many, each apart from the others."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from router.fleet.apart import Apart
from tests.support.apart import a_moment, over


class World:
    """Work that ends when it is let go on."""

    def __init__(self) -> None:
        self.apart = Apart[str]()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.go_on = {name: asyncio.Event() for name in "abc"}

    async def work(self, name: str) -> None:
        """What is done for one."""
        self.begun.append(name)
        try:
            await self.go_on[name].wait()
        finally:
            self.ended.append(name)
        if name == "c":
            raise LookupError(name)

    async def begin(self, names: str) -> None:
        """Begins it for these."""
        await self.apart.begin({name: partial(self.work, name) for name in names})

    async def finish(self, names: str) -> None:
        """The same, waited for."""
        await self.apart.finish({name: partial(self.work, name) for name in names})


async def test_one_at_a_time_for_each() -> None:
    """Who is busy is not begun again; the others are."""
    world = World()
    await world.begin("ab")
    world.go_on["b"].set()
    await a_moment()
    assert (set(world.apart.busy), world.ended) == ({"a"}, ["b"])
    await world.begin("ab")
    assert world.begun == ["a", "b", "b"]
    await world.apart.close()


async def test_who_waits_waits_for_what_runs_already() -> None:
    """And for nothing that it did not name."""
    world = World()
    await world.begin("ac")
    world.go_on["a"].set()
    world.go_on["b"].set()
    await world.finish("ab")
    assert (world.begun, world.ended) == (["a", "c", "b"], ["a", "b"])
    await world.apart.close()


async def test_a_flaw_is_told_once_and_hurts_nobody_else() -> None:
    """By the next that begins, which begins all the same; who waits is not told."""
    world = World()
    for event in world.go_on.values():
        event.set()
    await world.finish("ca")
    with pytest.raises(ExceptionGroup) as caught:
        await world.begin("b")
    assert [str(error) for error in caught.value.exceptions] == ["c"]
    await over(world.apart)
    await world.begin("")
    assert world.ended == ["c", "a", "b"]


async def test_what_nobody_wants_any_more_is_ended() -> None:
    """The others go on."""
    world = World()
    await world.begin("ab")
    world.apart.keep({"b"})
    await a_moment()
    assert (set(world.apart.busy), world.ended) == ({"b"}, ["a"])
    await world.apart.close()


async def test_after_the_end_nothing_begins() -> None:
    """What runs is cancelled and cleaned up, which is no flaw; ending twice is harmless."""
    world = World()
    await world.begin("ab")
    waiting = asyncio.ensure_future(world.finish("a"))
    await asyncio.sleep(0)
    for _ in range(2):
        await world.apart.close()
    await waiting
    assert (list(world.apart.busy), sorted(world.ended)) == ([], ["a", "b"])
    await world.begin("abc")
    assert world.begun == ["a", "b"]
