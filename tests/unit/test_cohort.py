"""Who comes in one round of the loop takes each step together, and stands alone for what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from router.cohort import MOST_BYTES, Cohort
from router.lifecycle import in_background


class Item:
    """Something that steps work on."""

    def __init__(self, name: str) -> None:
        self.name = name


class Book:
    """Two steps that write down what they are called with; some items are bad for the first."""

    def __init__(self, *bad: str) -> None:
        self.lines: list[str] = []
        self.bad = bad

    def read(self, item: Item) -> None:
        """The first step."""
        self.lines.append(f"read {item.name}")
        if item.name in self.bad:
            raise ValueError(item.name)

    def choose(self, item: Item) -> None:
        """The second step."""
        self.lines.append(f"choose {item.name}")

    @property
    def steps(self) -> tuple[Callable[[Item], None], ...]:
        """Both."""
        return (self.read, self.choose)


async def takes(cohort: Cohort[Item], names: str, size: int = 1) -> list[BaseException | None]:
    tasks = [in_background(cohort.take(Item(name), size)) for name in names]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_step_is_done_with_all_before_the_next_begins() -> None:
    """In the order in which they came."""
    book = Book()
    assert await takes(Cohort(book.steps), "abc") == [None, None, None]
    assert book.lines == ["read a", "read b", "read c", "choose a", "choose b", "choose c"]


async def test_what_goes_wrong_with_one_is_raised_for_it_alone() -> None:
    """The others go on; with that one nothing more is done."""
    book = Book("b")
    first, failed, last = await takes(Cohort(book.steps), "abc")
    assert (first, last) == (None, None)
    assert isinstance(failed, ValueError)
    assert book.lines[3:] == ["choose a", "choose c"]


@pytest.mark.parametrize(("most", "size"), [(2, 1), (9, MOST_BYTES // 2)])
async def test_many_or_large_ones_go_in_rounds_of_their_own(most: int, size: int) -> None:
    """So the loop sees to whatever else there is in between."""
    book = Book()
    cohort = Cohort(book.steps, most=most)
    tasks = [in_background(cohort.take(Item(name), size)) for name in "abc"]
    await asyncio.sleep(0)  # they come
    await asyncio.sleep(0)  # the first round
    assert book.lines == ["read a", "read b", "choose a", "choose b"]
    await asyncio.gather(*tasks)
    assert book.lines[4:] == ["read c", "choose c"]


async def test_one_that_is_too_large_for_any_round_goes_alone() -> None:
    """Instead of never."""
    book = Book()
    assert await takes(Cohort(book.steps), "ab", size=2 * MOST_BYTES) == [None, None]
    assert book.lines == ["read a", "choose a", "read b", "choose b"]


async def test_who_has_left_costs_nothing_and_holds_nobody_up() -> None:
    """A client may go while its request waits for the round."""
    book = Book()
    cohort = Cohort(book.steps)
    tasks = [in_background(cohort.take(Item(name), 1)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in done] == [type(None), asyncio.CancelledError, type(None)]
    assert "read b" not in book.lines


async def test_a_round_of_which_all_have_left_does_no_harm() -> None:
    """And the next one comes."""
    book = Book()
    cohort = Cohort(book.steps)
    task = in_background(cohort.take(Item("a"), 1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await takes(cohort, "b") == [None]
    assert book.lines == ["read b", "choose b"]


async def test_an_error_leaves_no_cycle() -> None:
    """A refused body goes with its request, not with some later round of the collector."""
    cohort = Cohort(Book("a").steps)
    item = Item("a")
    left = weakref.ref(item)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="a"):
            await cohort.take(item, 1)
        del item
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()


async def test_those_of_a_round_are_on_their_way_before_the_next_begins() -> None:
    """Else everybody waits for two rounds of steps."""
    book = Book()
    cohort = Cohort(book.steps, most=2)

    async def sent(name: str) -> None:
        await cohort.take(Item(name), 1)
        book.lines.append(f"sent {name}")

    await asyncio.gather(*(in_background(sent(name)) for name in "abcd"))
    assert book.lines.index("sent b") < book.lines.index("read c")


class PanicError(BaseException):
    """What a library in another language may raise."""


async def test_a_panic_is_raised_for_one_and_leaves_nobody_waiting() -> None:
    """Nor does it keep others from the next round."""

    def panic(item: Item) -> None:
        if item.name == "b":
            raise PanicError

    cohort: Cohort[Item] = Cohort((panic,), most=2)
    tasks = [in_background(cohort.take(Item(name), 1)) for name in "abc"]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in done] == [type(None), PanicError, type(None)]


async def test_steps_are_called_in_nobodys_context() -> None:
    """What a task has noted of its request is not taken for another's."""
    name: ContextVar[str] = ContextVar("name", default="nobody")
    seen: list[str] = []
    cohort: Cohort[Item] = Cohort((lambda _: seen.append(name.get()),))
    name.set("somebody")
    await takes(cohort, "ab")
    assert seen == ["nobody", "nobody"]
