"""Background work stops for requests, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from router import breath

ROUNDS = 6
"""That a request needs."""


def ticking(monkeypatch: pytest.MonkeyPatch, ticks: Iterator[float]) -> None:
    """Every look at the clock shows the next of these."""
    monkeypatch.setattr(breath, "monotonic", ticks.__next__)


def request(done: Callable[[], None]) -> None:
    """Something that takes its rounds of the loop."""
    loop = asyncio.get_running_loop()

    def round_(left: int) -> None:
        if left:
            loop.call_soon(round_, left - 1)
        else:
            done()

    loop.call_soon(round_, ROUNDS)


async def test_a_request_is_through_before_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with a step between each two of its rounds."""
    ticking(monkeypatch, count(1.0, 0.002))
    through: list[bool] = []
    request(lambda: through.append(True))
    await breath.breathe()
    assert through


async def test_work_that_is_alone_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a start a large store is read without a break."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    ticking(monkeypatch, iter((1.0, 1.00001, 1.00002)))
    await breath.breathe()
    assert slept == [0]


async def test_small_steps_are_taken_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A break after each would make work of many small ones last for ever."""
    ticking(monkeypatch, iter((1.0, 1.0, 1.0, 1.0001, 1.0002, 1.0003)))
    through: list[bool] = []
    await breath.breathe()
    asyncio.get_running_loop().call_soon(lambda: through.append(True))
    for _ in range(3):
        await breath.breathe()
    assert not through
