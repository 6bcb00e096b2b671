"""What was saved since midnight, out of hours of the store."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.increments import increments
from policies.types import Arm, ArmId, ClassId, Status, Trial
from router.account import Accountant
from router.admin.account import account_json
from router.estimates.day import DAY_S, Day
from router.estimates.learned import Learned
from router.estimates.reader import Reader
from router.estimates.writer import Writer
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.support.faulty_store import Fault, FaultyStore

PLAIN, FAST = ArmId("plain"), ArmId("fast")
CHAT = ClassId("chat")
ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3))
MIDNIGHT = 1_800_000_000.0 // DAY_S * DAY_S
TOKENS = 101
GAIN = 0.4


class World:
    """A writer and a reader of one route over one store."""

    def __init__(self) -> None:
        self.clock = ManualClock(MIDNIGHT + 3600.0)
        self.store = FaultyStore(MemoryStore(self.clock))
        self.writer = Writer(self.store, self.clock, prefix="p", ttl_s=7200)
        self.reader = Reader(self.store, self.writer, prefix="p", model="m", window_s=7200)
        self.day = Day(ARMS, self.reader.history)
        self.rng = np.random.default_rng(4)

    async def serve(self, arm: ArmId, requests: int, *, told: bool = True) -> None:
        """Streams of 101 tokens that end now."""
        for _ in range(requests):
            tpot_s = 0.02 * math.exp(self.rng.normal(0.0, 0.1)) * (1 if arm == PLAIN else 1 - GAIN)
            trial = Trial(
                CHAT,
                arm,
                Status.OK,
                streamed=True,
                propensity=0.5,
                ttft_s=tpot_s,
                tpot_s=tpot_s,
                e2e_s=TOKENS * tpot_s,
                tokens=TOKENS if told else None,
            )
            self.writer.add(Learned("m", arm, CHAT, increments(trial, 300)))
        await self.writer.flush()


async def test_seconds_are_those_that_the_baseline_would_have_taken_more() -> None:
    """Of 400 answers of two seconds each, of which four tenths were saved."""
    world = World()
    await world.serve(PLAIN, 400)
    await world.serve(FAST, 400)
    today = await world.day.look(world.clock.wall())
    assert today.since == MIDNIGHT
    assert today.saved is not None
    assert today.saved.seconds is not None
    spent = 400 * TOKENS * 0.02
    # Times are summed in buckets of 4 %, and the mean of the noise is e^0.005.
    assert today.saved.seconds.value == pytest.approx(GAIN * spent, rel=0.04)
    assert today.saved.seconds.low < GAIN * spent < today.saved.seconds.high
    assert today.saved.tokens_per_s is not None
    assert today.saved.tokens_per_s.value == pytest.approx(50.0 / (1 - GAIN) - 50.0, rel=0.05)
    assert (today.saved.answers, today.saved.not_compared) == (400, 0)


async def test_without_a_concurrent_baseline_nothing_is_claimed() -> None:
    """A baseline of another hour is none; nor is anything claimed of no traffic."""
    world = World()
    assert (await world.day.look(world.clock.wall())).saved is None
    await world.serve(PLAIN, 400)
    world.clock.advance(3600.0)
    await world.serve(FAST, 400)
    assert (await world.day.look(world.clock.wall())).saved is None


async def test_a_day_ends_at_midnight_by_utc() -> None:
    """The hours before it count no more, and nothing of them is kept."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 50)
    world.clock.advance(DAY_S)
    await world.serve(PLAIN, 30)
    await world.serve(FAST, 20)
    today = await world.day.look(world.clock.wall())
    assert today.since == MIDNIGHT + DAY_S
    assert today.saved is not None
    assert today.saved.answers == 20


async def test_speed_needs_the_tokens_of_all_answers() -> None:
    """Where some told none it is not known."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 49)
    await world.serve(FAST, 1, told=False)
    today = await world.day.look(world.clock.wall())
    assert today.saved is not None
    assert (today.saved.answers, today.saved.tokens_per_s) == (50, None)


async def test_an_account_without_a_store_knows_nothing() -> None:
    """Rather than what was true once; it comes back with the store."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 50)
    accountant = Accountant(ARMS, world.reader, world.writer.slots)
    assert account_json(accountant.account) == {"saved_today": None, "holdout": None}
    world.store.fault = Fault.BEFORE
    await accountant.look()
    assert account_json(accountant.account) == {"saved_today": None, "holdout": None}
    world.store.fault = None
    await accountant.look()
    told = account_json(accountant.account)
    assert told["saved_today"]["answers"] == 50
    assert told["holdout"] == {"month": "2027-01", "held_out": 0, "others": 0, "gain": None}
