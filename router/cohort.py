"""Takes requests that come together through the same steps, each step for all of them in turn.

Reading, classifying and choosing run far more code over far more tables than a processor's nearest
caches hold, and what the kernel and the parsers of HTTP do between two requests drives it out
again. Where several requests are there in one round of the event loop, a step that is done for all
of them one after the other finds its own code and tables at hand from the second one on (Larus and
Parkes, *Using cohort scheduling to enhance server performance*, USENIX 2002).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOST = 16
"""Together at most; others follow in the next round, after whatever else the loop has to do. More
gain little, and nobody's request leaves before the last one has taken the last step."""
MOST_BYTES = 512 * 1024
"""Of their bodies together: with large ones it is reading that takes the time."""

T = TypeVar("T")


class _Member(Generic[T]):
    __slots__ = ("error", "item", "size", "through")

    def __init__(self, item: T, size: int, through: asyncio.Future[Exception | None]) -> None:
        self.item = item
        self.size = size
        self.through = through
        self.error: Exception | None = None


class Cohort(Generic[T]):
    """Those that wait for the next round of the loop.

    Args:
        steps: What is done with each, in this order. They are called from the loop itself, in
            nobody's context.
        most: Together at most.
    """

    def __init__(self, steps: Sequence[Callable[[T], None]], *, most: int = MOST) -> None:
        self._steps = tuple(steps)
        self._most = most
        self._waiting: list[_Member[T]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self, item: T, size: int) -> None:
        """Returns once all steps have been done with an item.

        Args:
            item: Whatever the steps work on.
            size: Bytes that they have to read.

        Raises:
            Exception: What a step raised for this one; later steps were left out.
        """
        loop = self._loop
        if loop is None:
            # Once: asking for the running one is a system call before Python 3.12.
            loop = self._loop = asyncio.get_running_loop()
        through: asyncio.Future[Exception | None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._round)
        self._waiting.append(_Member(item, size, through))
        error = await through
        if error is not None:
            try:
                raise error
            finally:
                del error, through  # its traceback leads to this frame: nothing may go round

    def _round(self) -> None:
        walking = self._next()
        if not walking:
            return
        for step in self._steps:
            for member in walking:
                if member.error is None:
                    try:
                        step(member.item)
                    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                        member.error = error
        for member in walking:
            if not member.through.done():
                member.through.set_result(member.error)
        walking.clear()
        del member  # a traceback leads to this frame, which must not lead back to the error

    def _next(self) -> list[_Member[T]]:
        """Takes out who goes now; others have a round of their own."""
        waiting, size = self._waiting, 0
        for number, member in enumerate(waiting):
            size += member.size
            if number and (number == self._most or size > MOST_BYTES):
                self._waiting = waiting[number:]
                break
        else:
            self._waiting = []
            number = len(waiting)
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._round)
        # Clients that have left meanwhile are not worth the work.
        return [member for member in waiting[:number] if not member.through.done()]
