"""What was saved since midnight where applications go to pools in shares of their own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from policies.cost import typical_tokens
from policies.estimators.increments import with_effects
from policies.estimators.savings import Saved
from router.estimates.day import DAY_S, MAX_TOLD, Day
from router.estimates.layout import BLOCK_S
from router.estimates.learned import Learned
from router.estimates.reader import Reader
from router.estimates.writer import Writer
from router.stores.memory import MemoryStore
from router.types import POOLED, SegmentId
from tests.support.applications import APART, HEAVY, LIGHT, NOTHING, TOKENS, Answer, answers
from tests.support.builders import ARMS, CHAT, FAST
from tests.support.clock import ManualClock

WINDOW_S = 3600
MIDNIGHT = 1_800_000_000.0 // DAY_S * DAY_S
OPPOSITE = {HEAVY: 0.3, LIGHT: -0.3}
TOGETHER = {HEAVY: 0.5, LIGHT: 0.5}


class World:
    """A writer and a reader of one route, which two applications use from nine o'clock on."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock(MIDNIGHT + 9 * 3600.0 + 1.0)
        store = MemoryStore(self.clock)
        self.writer = Writer(store, self.clock, prefix="p", ttl_s=7200)
        self.reader = Reader(store, self.writer, prefix="p", model="m", window_s=WINDOW_S)
        self.day = Day(ARMS, self.reader, WINDOW_S)
        self.rng = np.random.default_rng(seed)
        self.saved_s = 0.0
        self.took_s = 0.0
        self.fast = 0

    def learn(self, of: Answer, part: SegmentId) -> None:
        """What a proxy adds for an answer."""
        sums, effects = with_effects(of.trial, typical_tokens(CHAT))
        self.writer.add(Learned("m", of.arm, CHAT, sums, part, effects))
        if of.arm == FAST:
            assert of.trial.e2e_s is not None
            self.saved_s += of.saved_s
            self.took_s += of.trial.e2e_s
            self.fast += 1

    async def serve(
        self,
        blocks: int,
        gain: Mapping[SegmentId, float] = NOTHING,
        shares: Mapping[SegmentId, float] = APART,
        *,
        tokens: Mapping[SegmentId, int] = TOKENS,
        ending: str = "",
        look: bool = True,
    ) -> None:
        """Blocks of both; a proxy that looks does so in each."""
        for _ in range(blocks):
            for of in answers(self.rng, gain, shares, tokens, requests=40):
                self.learn(of, SegmentId(of.part + ending))
            await self.writer.flush()
            if look:
                await self.saved()
            self.clock.advance(BLOCK_S)

    async def saved(self, day: Day | None = None) -> Saved | None:
        """What is known now."""
        await self.reader.refresh()
        return (await (day or self.day).look(self.clock.wall())).saved

    @property
    def gain(self) -> float:
        """What is true."""
        return self.saved_s / (self.saved_s + self.took_s)


@pytest.mark.parametrize("seed", range(6))
async def test_the_slow_application_on_one_pool_is_no_loss(seed: int) -> None:
    """Nothing differs between the pools."""
    world = World(seed)
    await world.serve(40)
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.gain.low < 0.0 < found.gain.high
    assert abs(found.gain.value) < 0.06
    assert (found.answers, found.not_compared) == (world.fast, 0)


@pytest.mark.parametrize(
    ("gain", "shares"),
    [
        (OPPOSITE, {HEAVY: 0.9, LIGHT: 0.1}),
        ({HEAVY: -0.3, LIGHT: 0.3}, {HEAVY: 0.1, LIGHT: 0.9}),
        ({HEAVY: 0.2, LIGHT: 0.2}, APART),
    ],
)
async def test_the_saving_is_that_of_the_answers_a_pool_gave(
    gain: Mapping[SegmentId, float], shares: Mapping[SegmentId, float]
) -> None:
    """Each application where it does best: what it does elsewhere is nobody's saving."""
    world = World()
    await world.serve(40, gain, shares)
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.seconds is not None
    assert found.gain.low < world.gain < found.gain.high
    assert found.gain.value == pytest.approx(world.gain, abs=0.03)
    assert found.seconds.low < world.saved_s < found.seconds.high


async def test_long_answers_weigh_by_their_time() -> None:
    """Costs are of a usual answer; those of one application are ten times as long."""
    world = World()
    await world.serve(40, OPPOSITE, TOGETHER, tokens={HEAVY: 400, LIGHT: 40})
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.gain.value == pytest.approx(world.gain, abs=0.03)
    assert found.gain.value > 0.2


@pytest.mark.parametrize("ending", ["", "+"])
async def test_copy_bands_are_parts_too(ending: str) -> None:
    """Of an application that is told apart, and of all the others together."""
    world = World()
    await world.serve(35, ending=ending)
    for part in (HEAVY, LIGHT):
        for of in answers(world.rng, requests=10):
            world.learn(of, SegmentId(part + "+"))
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.gain.low < 0.0 < found.gain.high
    assert abs(found.gain.value) < 0.08


async def test_hours_that_are_over_are_kept_as_sums() -> None:
    """A day takes no more memory than its applications and an hour of blocks; nothing is lost."""
    world = World()
    await world.serve(100, OPPOSITE)
    assert len(world.day._blocks) <= 31
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.answers == world.fast
    assert found.gain.low < world.gain < found.gain.high
    assert found.time_s == pytest.approx(world.took_s, rel=1e-6)


async def test_an_hour_does_not_tell_applications_apart() -> None:
    """Who began later compares what it knows by blocks; the answers before are counted as such."""
    world = World()
    await world.serve(60, look=False)
    before = world.fast
    late = Day(ARMS, world.reader, WINDOW_S)
    assert await world.saved(late) is None
    await world.serve(30, look=False)
    found = await world.saved(late)
    assert found is not None
    assert found.gain is not None
    assert found.gain.low < 0.0 < found.gain.high
    assert (found.answers, found.not_compared) == (world.fast - before, before)


async def test_hours_of_a_class_without_applications_are_compared() -> None:
    """Nothing is told apart in it, as far as the blocks tell."""
    world = World()
    for _ in range(90):
        for of in answers(world.rng, {HEAVY: 0.3, LIGHT: 0.3}, TOGETHER, requests=10):
            world.learn(of, POOLED)
        await world.writer.flush()
        world.clock.advance(BLOCK_S)
    found = await world.saved(Day(ARMS, world.reader, WINDOW_S))
    assert found is not None
    assert found.gain is not None
    assert (found.answers, found.not_compared) == (world.fast, 0)
    assert found.gain.low < world.gain < found.gain.high


async def test_after_midnight_applications_are_still_told_apart() -> None:
    """From the first blocks of the day on, as policies go on doing."""
    world = World(3)
    world.clock.advance(14 * 3600.0)
    await world.serve(30)
    await world.serve(3)
    assert world.day._told == {CHAT: {HEAVY, LIGHT}}
    found = await world.saved()
    assert found is not None
    assert found.gain is not None
    assert found.gain.low < 0.0 < found.gain.high


async def test_no_number_of_applications_is_told_apart() -> None:
    """Those beyond the bound are the rest of their class."""
    world = World()
    for round_ in range(6):
        for number in range(60):
            for of in answers(world.rng, shares=TOGETHER, requests=25):
                world.learn(of, SegmentId(f"a{round_}-{number}"))
        await world.writer.flush()
        await world.saved()
        world.clock.advance(1800.0)
    found = await world.saved()
    assert len(world.day._told[CHAT]) == MAX_TOLD
    assert found is not None
    assert found.answers + found.not_compared == world.fast
