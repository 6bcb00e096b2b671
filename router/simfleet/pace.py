"""The clock that simulated engines run against, so that tests need not wait for it."""

from __future__ import annotations

import asyncio
from typing import Protocol

from router.clock import Clock, SystemClock


class Pace(Protocol):
    """Time, and letting it pass."""

    def now(self) -> float:
        """Seconds that never go back."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    async def pause(self, seconds: float) -> None:
        """Comes back after so many seconds of the simulation."""

    async def wait(self, seconds: float) -> None:
        """Comes back after so many seconds as `now` counts them."""


class RealPace:
    """The machine's clock; a simulated second takes `1 / speed` of a real one.

    Steps that follow each other without a break are paced by when they should end, so that what
    the loop does meanwhile adds nothing to them.
    """

    def __init__(self, speed: float = 1.0, clock: Clock | None = None) -> None:
        self._speed = speed
        self._clock = clock or SystemClock()
        self._due = 0.0
        self.now = self._clock.monotonic
        self.wall = self._clock.wall

    async def pause(self, seconds: float) -> None:
        """See `Pace`."""
        now = self.now()
        # A little late is made up for; after a break, or when too slow by far, it begins anew.
        start = self._due if 0 <= now - self._due < _CATCH_UP_S else now
        self._due = start + seconds / self._speed
        await asyncio.sleep(max(self._due - now, 0.0))

    async def wait(self, seconds: float) -> None:
        """See `Pace`."""
        await asyncio.sleep(seconds)


_CATCH_UP_S = 0.05
