"""A loop that is held up shows for how long."""

from __future__ import annotations

import asyncio
import time

from router.lifecycle import Lifecycle
from router.observe.loop_lag import LoopLag
from tests.support.clock import ManualClock


async def test_what_is_late_is_told_by_how_much() -> None:
    """From round to round, never below 0."""
    clock, seen = ManualClock(), list[float]()
    lag = LoopLag(0.25, seen.append, clock.monotonic)
    for passed_s in (0.25, 2.25, 0.125):
        clock.advance(passed_s)
        await lag.measure()
    assert seen == [0.0, 2.0, 0.0]


async def test_work_that_holds_the_loop_up_is_seen() -> None:
    """As background work of the process that it holds up."""
    seen, late, first = list[float](), asyncio.Event(), asyncio.Event()

    def observe(lag_s: float) -> None:
        seen.append(lag_s)
        first.set()
        if lag_s >= 0.15:
            late.set()

    lifecycle, interval_s = Lifecycle(), 0.01
    lifecycle.every(interval_s, "loop lag", LoopLag(interval_s, observe, time.monotonic).measure)
    async with asyncio.timeout(10):
        await first.wait()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        await late.wait()
    await lifecycle.stop()
    assert lifecycle.errors == 0
