"""Owns every background task: starts it, keeps it running, ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

_CANCEL_AGAIN_S = 1.0

_T = TypeVar("_T")

_log = logging.getLogger("specroute.lifecycle")

Work = Callable[[], Awaitable[None]]


def in_background(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    """Runs something beside the caller, who ends it with `cancelled` at the latest."""
    return asyncio.get_running_loop().create_task(work)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels those that still run and waits until they are gone, whatever they end with."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


class Lifecycle:
    """The background tasks of one process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.errors = 0
        """Pieces of background work that failed in a way nobody had foreseen."""

    def every(self, interval_s: float, name: str, work: Work) -> Callable[[], object]:
        """Runs `work` again and again, `interval_s` after now or after it last ended.

        An error ends the round, is logged and counted, and the next round comes all the same.

        Returns:
            Ends it.
        """
        return self._begin(self._loop(interval_s, name, work)).cancel

    def once(self, name: str, work: Work) -> None:
        """Runs `work` beside everything else; an error is logged and counted.

        Once the stop has begun nothing is started any more.
        """
        if not self._stopping:
            self._begin(self._round(name, work))

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # The one place where tasks are made; see CONTRIBUTING.
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _loop(self, interval_s: float, name: str, work: Work) -> None:
        task = asyncio.current_task()
        # A cancellation that got lost inside the work still shows.
        while not self._stopping and not (task is not None and task.cancelling()):
            await asyncio.sleep(interval_s)
            await self._round(name, work)

    async def _round(self, name: str, work: Work) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001
            # One of the four places that may catch everything: a background task that ends
            # silently is how learning stops without anybody noticing.
            self.errors += 1
            _log.exception("background work failed", extra={"task": name})

    async def stop(self) -> None:
        """Cancels all tasks and waits until they are gone.

        A cancellation can get lost: a library that swallows one, or the race in Python 3.11's
        `asyncio.wait_for` (python/cpython#86296). So no round begins any more, and who is still
        there after a while is cancelled again.
        """
        self._stopping = True
        # The task that stops the others may be one of them.
        left = self._tasks - {asyncio.current_task()}
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
