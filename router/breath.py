"""Lets requests have their turn between two steps of background work.

A request needs half a dozen rounds of the event loop from its first byte to its last. Work that
lets a single round pass between its steps puts one of them between each two of these.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from time import monotonic

STEP_S = 0.0005
"""Work goes on without a break for so long at least, so that small steps need not be counted."""
PAUSE_S = 0.001
"""What requests get then, if there are any; timers of uvloop are no finer."""
_ALONE_S = 0.00005
"""A round of the loop takes no longer where there is nobody else."""

_since: ContextVar[float] = ContextVar("specroute_breath", default=0.0)
"""When the work of this task went on after its last break; monotonic."""


async def breathe() -> None:
    """Returns at once, or after a break that is the longer the busier the loop is.

    To be called between any two steps, however small.
    """
    began = monotonic()
    if began - _since.get() < STEP_S:
        return
    await asyncio.sleep(0)
    if monotonic() - began > _ALONE_S:
        await asyncio.sleep(PAUSE_S)
    _since.set(monotonic())
