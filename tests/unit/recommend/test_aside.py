"""Recommendations reckoned in another process."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
import pytest

from router.recommend.aside import FRESH_S, NoRecommendationError, Recommender
from router.recommend.render import recommend
from tests.support.clock import ManualClock
from tests.support.measured_state import cell, pool, route


class States:
    """Tells a state, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> dict[str, Any]:
        """A fleet of which something is known."""
        self.asked += 1
        pools = [pool("plain", "none", None, baseline=True), pool("draft", "eagle3", 3)]
        made = route(pools, chat={"plain": cell(), "draft": cell(2.0)})
        return {"time": float(self.asked), "window_s": 60, "routes": [made]}


async def test_it_is_what_the_command_says_and_kept_for_a_while() -> None:
    """The same figures; nobody reckons twice within a minute, unless asked to."""
    states, clock = States(), ManualClock(100.0)
    recommender = Recommender(states, clock)
    first = await recommender.answer()
    expected = recommend(await States()())
    assert first == orjson.loads(orjson.dumps(expected))
    clock.advance(FRESH_S - 1.0)
    assert await recommender.answer() is first
    clock.advance(2.0)
    assert (await recommender.answer())["time"] == 2.0
    clock.advance(1.0)
    assert (await recommender.answer(anew=True))["time"] == 3.0


async def test_who_asks_together_is_answered_together() -> None:
    """One process at a time, and one for all who wait."""
    states = States()
    recommender = Recommender(states, ManualClock(100.0))
    answers = await asyncio.gather(*(recommender.answer() for _ in range(4)))
    assert [answer["time"] for answer in answers] == [1.0] * 4
    assert states.asked == 1


async def test_a_process_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next question tries again."""
    recommender = Recommender(States(), ManualClock(100.0))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/false")
        with pytest.raises(NoRecommendationError, match="ended with 1"):
            await recommender.answer()
    assert (await recommender.answer())["routes"][0]["model"] == "m"
