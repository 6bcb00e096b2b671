"""Recommendations for whoever looks at the dashboard, reckoned in a process of their own.

For eight pools and ten classes they take ten seconds of one core: requests must not wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson

from router.clock import Clock

FRESH_S = 60.0
"""For so long the last answer is given again; estimates of an hour change slowly."""

LONGEST_S = 120.0
"""Then it is given up."""

_NICE = 10

_log = logging.getLogger("specroute.recommend")

StateFn = Callable[[], Awaitable[dict[str, Any]]]


class NoRecommendationError(Exception):
    """It could not be reckoned; the message is for people."""


class Recommender:
    """Answers as `specroute recommend --json` does, at most one reckoning at a time.

    Args:
        state: Makes the state.
        clock: Time.
    """

    def __init__(self, state: StateFn, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._reckoning = asyncio.Lock()
        self._made: tuple[float, dict[str, Any]] | None = None

    async def answer(self, *, anew: bool = False) -> dict[str, Any]:
        """What is recommended by what was known at `time`.

        Args:
            anew: Whether an answer that was given before will not do.

        Raises:
            NoRecommendationError: It could not be reckoned.
        """
        asked = self._clock.monotonic()
        async with self._reckoning:
            made = self._made
            # Who has waited for others may find an answer that is newer than the question.
            if made is None or made[0] < (asked if anew else asked - FRESH_S):
                taken, state = self._clock.monotonic(), await self._state()
                self._made = made = (taken, await _reckoned(orjson.dumps(state)))
            return made[1]


async def _reckoned(state: bytes) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "recommend", "--json", "--state", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    with suppress(OSError):  # it may have ended already
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    try:
        async with asyncio.timeout(LONGEST_S):
            told, complaint = await process.communicate(state)
    except TimeoutError as error:
        raise NoRecommendationError(f"it took longer than {LONGEST_S:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        _log.warning("no recommendation", extra={"said": complaint.decode(errors="replace")})
        raise NoRecommendationError(f"the process that reckons ended with {process.returncode}")
    found: dict[str, Any] = orjson.loads(told)
    return found
