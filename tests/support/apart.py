"""Waits for work that nobody waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from router.fleet.apart import Apart


async def over(apart: Apart[Any]) -> None:
    """Returns once everything that began there has ended."""
    while apart.busy:  # noqa: ASYNC110 - it ends by itself, within a few rounds of the loop
        await asyncio.sleep(0)


async def a_moment() -> None:
    """Lets everything that waits for nothing come to its end."""
    for _ in range(20):
        await asyncio.sleep(0)
