"""Owns every background task: starts it, keeps it running, ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger("specroute.lifecycle")


class Lifecycle:
    """The background tasks of one process."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.errors = 0
        """Rounds of background work that failed in a way nobody had foreseen."""

    def every(self, interval_s: float, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` again and again, `interval_s` after now or after it last ended.

        An error ends the round, is logged and counted, and the next round comes all the same.
        """
        # The one place where tasks are made; see CONTRIBUTING.
        task = asyncio.get_running_loop().create_task(self._loop(interval_s, name, work))
        self._tasks.append(task)

    async def _loop(
        self, interval_s: float, name: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except Exception:  # noqa: BLE001
                # One of the three places that may catch everything: a background task that ends
                # silently is how learning stops without anybody noticing.
                self.errors += 1
                _log.exception("background work failed", extra={"task": name})

    async def stop(self) -> None:
        """Cancels all tasks and waits until they are gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
