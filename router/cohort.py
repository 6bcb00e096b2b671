"""Takes requests that come together through the same steps, each step for all of them in turn.

Reading and classifying run far more code over far more tables than a processor's nearest
caches hold, and what the kernel and the parsers of HTTP do between two requests drives it out
again. Where several requests are there in one round of the event loop, a step that is done for all
of them one after the other finds its own code and tables at hand from the second one on (Larus and
Parkes, *Using cohort scheduling to enhance server performance*, USENIX 2002).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

MOST = 16
"""Together at most; others follow once these are on their way, and the loop has seen to whatever
else there is. More gain little, and nobody's request leaves before the last step of the last."""
MOST_BYTES = 512 * 1024
"""Of their bodies together: with large ones it is reading that takes the time."""

T = TypeVar("T")


class _Member(Generic[T]):
    __slots__ = ("error", "item", "size", "through")

    def __init__(self, item: T, size: int, through: asyncio.Future[BaseException | None]) -> None:
        self.item = item
        self.size = size
        self.through = through
        self.error: BaseException | None = None


class Cohort(Generic[T]):
    """Those that wait for the next round of the loop.

    Args:
        steps: What is done with each, in this order. They are called from the loop itself, in a
            context of nobody's, and see nothing of what others of the round will do.
        most: Together at most.
    """

    def __init__(self, steps: Sequence[Callable[[T], None]], *, most: int = MOST) -> None:
        self._steps = tuple(steps)
        self._most = most
        self._waiting: list[_Member[T]] = []
        self._context = Context()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self, item: T, size: int) -> None:
        """Returns once all steps have been done with an item.

        Args:
            item: Whatever the steps work on.
            size: Bytes that they have to read.

        Raises:
            BaseException: What a step raised for this one; later steps were left out.
        """
        loop = self._loop
        if loop is None:
            # Once: asking for the running one is a system call before Python 3.12.
            loop = self._loop = asyncio.get_running_loop()
        through: asyncio.Future[BaseException | None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._round, loop, context=self._context)
        self._waiting.append(_Member(item, size, through))
        error = await through
        if error is not None:
            try:
                raise error
            finally:
                del error, through  # its traceback leads to this frame: nothing may go round

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        walking = self._next()
        member: _Member[T] | None = None
        try:
            for step in self._steps:
                for member in walking:
                    if member.error is None:
                        member.error = _tried(step, member.item)
        finally:
            for member in walking:
                if not member.through.done():
                    member.through.set_result(member.error)
            if self._waiting:
                # Only now: so these are on their way before others are begun with.
                loop.call_soon(self._round, loop, context=self._context)
            # A traceback leads to this frame, which must not lead back to the error.
            walking.clear()
            member = None

    def _next(self) -> list[_Member[T]]:
        """Takes out who goes now; clients that have left meanwhile are not worth the work."""
        waiting, size = self._waiting, 0
        for number, member in enumerate(waiting):
            size += member.size
            if number and (number == self._most or size > MOST_BYTES):
                break
        else:
            number = len(waiting)
        self._waiting = waiting[number:]
        return [member for member in waiting[:number] if not member.through.done()]


def _tried(step: Callable[[T], None], item: T) -> BaseException | None:
    """What went wrong; it is raised where it is waited for."""
    try:
        step(item)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of a library, too, is one request's
        return error
    return None
