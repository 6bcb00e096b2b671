"""The clock of simulated engines."""

from __future__ import annotations

import asyncio

import pytest

from router.simfleet.pace import RealPace
from tests.support.clock import ManualClock


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was asked of the loop instead of being waited for."""
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(round(seconds, 6))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return asked


async def test_speed_shortens_the_pauses(slept: list[float]) -> None:
    """A simulated second takes `1 / speed` of a real one."""
    pace = RealPace(4.0, ManualClock())
    await pace.pause(2.0)
    await pace.wait(2.0)
    assert slept == [0.5, 2.0]


async def test_work_between_steps_adds_nothing(slept: list[float]) -> None:
    """Steps end when they should: what the loop does meanwhile is taken off the next pause."""
    clock = ManualClock()
    pace = RealPace(1.0, clock)
    await pace.pause(0.1)
    clock.advance(0.1 + 0.02)
    await pace.pause(0.1)
    assert slept == [0.1, 0.08]


async def test_after_a_break_nothing_is_made_up_for(slept: list[float]) -> None:
    """An engine that had nothing to do does not hurry afterwards."""
    clock = ManualClock()
    pace = RealPace(1.0, clock)
    await pace.pause(0.1)
    clock.advance(60.0)
    await pace.pause(0.1)
    assert slept == [0.1, 0.1]
