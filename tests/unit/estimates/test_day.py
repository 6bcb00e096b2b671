"""What was saved since midnight, out of hours of the store."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.increments import increments
from policies.types import Arm, ArmId, ClassId, Status, Trial
from router.account import Accountant
from router.admin.account import account_json
from router.estimates.day import DAY_S, Day, Today
from router.estimates.layout import BLOCK_S
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
WINDOW_S = 3600
GAIN = 0.4


class World:
    """A writer and a reader of one route over one store."""

    def __init__(self) -> None:
        self.clock = ManualClock(MIDNIGHT + 4 * 3600.0)
        self.store = FaultyStore(MemoryStore(self.clock))
        self.writer = Writer(self.store, self.clock, prefix="p", ttl_s=7200)
        self.reader = Reader(self.store, self.writer, prefix="p", model="m", window_s=WINDOW_S)
        self.day = Day(ARMS, self.reader, WINDOW_S)
        self.rng = np.random.default_rng(4)
        self.slowness = 1.0

    async def serve(
        self, arm: ArmId, requests: int, *, told: bool = True, gain: float = GAIN
    ) -> None:
        """Streams of 101 tokens that end now."""
        for _ in range(requests):
            tpot_s = 0.02 * self.slowness * math.exp(self.rng.normal(0.0, 0.1))
            tpot_s *= 1.0 if arm == PLAIN else 1.0 - gain
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

    async def look(self) -> Today:
        """At what is known now."""
        await self.reader.refresh()
        return await self.day.look(self.clock.wall())


async def test_seconds_are_those_that_the_baseline_would_have_taken_more() -> None:
    """Of 400 answers of two seconds each, of which four tenths were saved."""
    world = World()
    await world.serve(PLAIN, 400)
    await world.serve(FAST, 400)
    today = await world.look()
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
    """A baseline of other minutes is none; nor is anything claimed of no traffic."""
    world = World()
    assert (await world.look()).saved is None
    await world.serve(PLAIN, 400)
    world.clock.advance(BLOCK_S)
    await world.serve(FAST, 400)
    assert (await world.look()).saved is None


async def test_who_is_busy_when_is_no_gain() -> None:
    """A pool that is drawn when all are quick, and the baseline when all are slow, saves nothing."""
    world = World()
    for quick in (True, False) * 10:
        world.slowness = 1.0 if quick else 2.0
        await world.serve(FAST, 40 if quick else 4, gain=0.0)
        await world.serve(PLAIN, 4 if quick else 40)
        world.clock.advance(BLOCK_S)
    saved = (await world.look()).saved
    assert saved is not None
    assert saved.gain is not None
    assert saved.gain.low < 0.0 < saved.gain.high
    assert abs(saved.gain.value) < 0.05


async def test_blocks_stay_known_after_the_window_has_passed() -> None:
    """And a process that begins later knows them by the hour, if it sees the class at all."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 50)
    for _ in range(20):
        world.clock.advance(WINDOW_S / 4)
        await world.look()
    today = await world.look()
    assert not any(world.reader.past().blocks.values())
    assert today.saved is not None
    assert today.saved.answers == 50
    late = Day(ARMS, world.reader, WINDOW_S)
    assert (await late.look(world.clock.wall())).saved is None
    await world.serve(PLAIN, 9)
    await world.serve(FAST, 9)
    today, late = await world.look(), Day(ARMS, world.reader, WINDOW_S)
    by_hours = (await late.look(world.clock.wall())).saved
    assert by_hours is not None
    assert by_hours.seconds is not None
    assert today.saved is not None
    assert today.saved.seconds is not None
    assert (by_hours.answers, by_hours.not_compared) == (today.saved.answers, 0) == (59, 0)
    assert by_hours.seconds.value == pytest.approx(today.saved.seconds.value, rel=0.03)


async def test_what_was_never_seen_as_blocks_counts_by_the_hour() -> None:
    """Once, whatever a process has seen: half of an hour never counts twice."""
    world = World()
    for _ in range(6):
        await world.serve(PLAIN, 10)
        await world.serve(FAST, 10)
        world.clock.advance(1800.0)
    first = (await world.look()).saved
    world.clock.advance(3 * WINDOW_S)
    await world.serve(PLAIN, 10)
    await world.serve(FAST, 10)
    later = (await world.look()).saved
    assert first is not None
    assert later is not None
    assert (first.answers, later.answers) == (60, 70)


async def test_a_day_ends_at_midnight_by_utc() -> None:
    """The hours before it count no more, and nothing of them is kept."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 50)
    world.clock.advance(DAY_S)
    await world.serve(PLAIN, 30)
    await world.serve(FAST, 20)
    today = await world.look()
    assert today.since == MIDNIGHT + DAY_S
    assert today.saved is not None
    assert today.saved.answers == 20


async def test_speed_needs_the_tokens_of_all_answers() -> None:
    """Where some told none it is not known."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 49)
    await world.serve(FAST, 1, told=False)
    today = await world.look()
    assert today.saved is not None
    assert (today.saved.answers, today.saved.tokens_per_s) == (50, None)


async def test_an_account_without_a_store_knows_nothing() -> None:
    """Rather than what was true once; it comes back with the store."""
    world = World()
    await world.serve(PLAIN, 50)
    await world.serve(FAST, 50)
    accountant = Accountant(ARMS, world.reader, world.writer.slots, WINDOW_S)
    assert account_json(accountant.account) == {"saved_today": None, "holdout": None}
    world.store.fault = Fault.BEFORE
    await accountant.look()
    assert account_json(accountant.account) == {"saved_today": None, "holdout": None}
    world.store.fault = None
    await world.reader.refresh()
    await accountant.look()
    told = account_json(accountant.account)
    assert told["saved_today"]["answers"] == 50
    nobody = {"held_out": 0, "others": 0, "gain": None, "compared": 0.0}
    assert told["holdout"] == {"month": "2027-01", **nobody}
