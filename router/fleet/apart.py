"""Does something for each of many servers, apart from each other: one that hangs delays no other.

Whoever looks again and again who is due begins it here, and waits for none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, KeysView, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from router.breath import breathe
from router.lifecycle import cancelled, in_background

_Key = TypeVar("_Key", bound=Hashable)

Work = Callable[[], Coroutine[Any, Any, None]]


class Apart(Generic[_Key]):
    """At most one piece of work for each key at a time, so as many tasks as there are keys."""

    def __init__(self) -> None:
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._failed: list[Exception] = []
        self._ended = False

    @property
    def busy(self) -> KeysView[_Key]:
        """For whom something is being done."""
        return self._running.keys()

    async def begin(self, work: Mapping[_Key, Work]) -> None:
        """Starts it for all who are not busy, and waits for none.

        Raises:
            ExceptionGroup: What has failed since the last call, in a way nobody had foreseen.
        """
        await self._start(work)
        failed, self._failed = self._failed, []
        if failed:
            raise ExceptionGroup("it failed for some servers", failed)

    async def finish(self, work: Mapping[_Key, Work]) -> None:
        """Starts it for all who are not busy, and waits until none of them is.

        What fails is told by the next `begin`: one server's flaw is no reason not to serve.
        """
        await self._start(work)
        running = [self._running[key] for key in work if key in self._running]
        if running:
            await asyncio.wait(running)

    def keep(self, keys: Collection[_Key]) -> None:
        """Ends what is done for others."""
        for key, task in self._running.items():
            if key not in keys:
                task.cancel()

    def end(self) -> None:
        """Ends everything; nothing begins any more."""
        self._ended = True
        self.keep(())

    async def close(self) -> None:
        """Ends everything and waits until it has ended."""
        self.end()
        await cancelled(self._running.values())

    async def _start(self, work: Mapping[_Key, Work]) -> None:
        for key, one in work.items():
            if self._ended:
                return
            if key not in self._running:
                self._running[key] = task = in_background(one())
                task.add_done_callback(partial(self._over, key))
                # It takes its first step alone, and then it is the turn of requests: many servers
                # are often due together.
                await asyncio.sleep(0)
                await breathe()

    def _over(self, key: _Key, task: asyncio.Task[None]) -> None:
        del self._running[key]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed.append(error)
