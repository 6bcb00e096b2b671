"""Thompson sampling in a small world: finds the best arm, follows a change, and intervals cover.

The world: log cost `y = level(t) + delta_a + N(0, 0.3)`, the noise that `policies.estimators.effects`
expects, `level` drifting by a slow wave and a random walk so that only concurrent comparison works. Requests arrive one per second; the view is rebuilt every 10 requests from blocks
of 30 seconds, as a snapshot would be. Seeds are fixed, so every figure below is reproducible; each
tolerance says what it allows for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from policies.checks import example_arms
from policies.estimators.cells import CellSums, LogCostSums, arm_view
from policies.estimators.effects import arm_effects
from policies.estimators.verdict import fixed_sample_gain
from policies.estimators.window import exponential_weight
from policies.proposal import draw
from policies.thompson import ThompsonPolicy
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(4)
CHAT = ClassId("chat")
NOISE_SD = 0.3
BLOCK = 30
REFRESH = 10
EFFECTS = (0.0, 0.1, -0.5, -0.15)
"""Arm 2 saves 39 % of the time, arm 3 14 %, arm 1 costs 11 % more."""


@dataclass
class World:
    """Requests of one class, one per second, and the blocks they were counted in."""

    seed: int
    half_life_s: float = float("inf")
    rng: np.random.Generator = field(init=False)
    level: float = 0.0
    sums: list[FloatArray] = field(default_factory=list)
    """Per block: n, sum and sum of squares by arm, shape (3, arms)."""

    def __post_init__(self) -> None:
        """Seed the world."""
        self.rng = np.random.default_rng(self.seed)

    def serve(self, second: int, arm: int, effects: Sequence[float]) -> None:
        """Serve one request on an arm and count it."""
        self.level += self.rng.normal(0.0, 0.02)
        wave = 0.3 * np.sin(second / 100.0)
        y = self.level + wave + effects[arm] + self.rng.normal(0.0, NOISE_SD)
        if second // BLOCK == len(self.sums):
            self.sums.append(np.zeros((3, len(effects))))
        self.sums[-1][:, arm] += (1.0, y, y * y)

    def view(self, now: int) -> ArmView:
        """What a snapshot taken now would show."""
        blocks = []
        for index, sums in enumerate(self.sums):
            weight = exponential_weight(now - (index + 1) * BLOCK, self.half_life_s)
            cells = {ARMS[arm].arm_id: cell_of(*sums[:, arm]) for arm in range(len(ARMS))}
            blocks.append((weight, cells))
        return arm_view(CHAT, ARMS, blocks)


def cell_of(n: float, s: float, q: float) -> CellSums:
    """A cell of n streamed requests that ended well."""
    cost = {"s": LogCostSums(int(n), round(s * 1e6), round(q * 1e6))} if n else {}
    return CellSums(plain={"n": int(n), "status.ok": int(n)}, log_cost=cost)


def pulls_of(world: World, phases: Sequence[tuple[int, Sequence[float]]]) -> list[int]:
    """Run Thompson sampling through phases of (seconds, effects); answer the arm of each request."""
    policy, pulls = ThompsonPolicy(), list[int]()
    p = np.full(len(ARMS), 0.25)
    for seconds, effects in phases:
        for _ in range(seconds):
            now = len(pulls)
            if now % REFRESH == 0:
                p = policy.propose(world.view(now), world.rng).probabilities
            pulls.append(draw(p, world.rng.random()))
            world.serve(now, pulls[-1], effects)
    return pulls


def share_of(arm: int, pulls: Sequence[int]) -> float:
    """Share of the pulls that went to the arm."""
    return pulls.count(arm) / len(pulls)


def test_thompson_finds_the_best_of_four_arms() -> None:
    """After 400 requests the best arm gets at least 80 % of the next 200, on average over 20 seeds.

    The ceiling is 94 % (three floors of 2 %). The difference to the next arm is 1.2 noise sds, so
    400 requests leave little doubt; what the 14 points allow for is seeds that began unluckily.
    """
    shares = [share_of(2, pulls_of(World(seed), [(600, EFFECTS)])[400:]) for seed in range(20)]
    assert np.mean(shares) >= 0.8
    assert np.quantile(shares, 0.1) >= 0.6


def test_thompson_follows_when_the_best_arm_changes() -> None:
    """With a half-life of 150 s, 400 s after arms 1 and 2 change places the new best leads.

    Discounting keeps 16 % of the old evidence and the noise of about 400 requests, so the share is
    lower than in a still world: at least 70 % of the last 200 on average over 20 seeds.
    """
    after = (0.0, -0.5, 0.1, -0.15)
    shares = []
    for seed in range(20):
        pulls = pulls_of(World(seed, half_life_s=150.0), [(500, EFFECTS), (600, after)])
        shares.append(share_of(1, pulls[-200:]))
    assert np.mean(shares) >= 0.7


def test_thompson_in_a_dominated_world_keeps_to_the_baseline() -> None:
    """Where plain decoding is best everywhere, it gets at least 80 % after 400 requests."""
    worse = (0.0, 0.3, 0.4, 0.35)
    shares = [share_of(0, pulls_of(World(seed), [(600, worse)])[400:]) for seed in range(20)]
    assert np.mean(shares) >= 0.8


def covered(view: ArmView, effects: Sequence[float]) -> list[bool]:
    """Whether each arm's 95 % interval, at one look, contains the truth: checks the model."""
    estimated = arm_effects(view)
    hits = []
    for arm in range(1, len(ARMS)):
        gain = fixed_sample_gain(estimated, arm)
        assert gain is not None
        hits.append(gain.low <= 1.0 - np.exp(effects[arm]) <= gain.high)
    return hits


def uniform_view(rng: np.random.Generator, *, strata: int, per_stratum: int, sd: float) -> ArmView:
    """Requests dealt to the four arms by chance, in strata with levels of their own."""
    sums = np.zeros((3, strata, len(ARMS)))
    arm = rng.integers(0, len(ARMS), (strata, per_stratum))
    y = rng.normal(0.0, 1.0, (strata, 1)) + np.array(EFFECTS)[arm]
    y += rng.normal(0.0, sd, arm.shape)
    for column in range(len(ARMS)):
        mine = arm == column
        sums[:, :, column] = mine.sum(1), (y * mine).sum(1), (y * y * mine).sum(1)
    none = np.zeros(len(ARMS))
    return ArmView(CHAT, ARMS, sums[0], sums[1], sums[2], none, none)


@pytest.mark.parametrize("sd", [0.15, 0.3, 0.6])
@pytest.mark.parametrize(("strata", "per_stratum"), [(4, 20), (20, 12), (2, 200)])
def test_gain_intervals_cover_under_uniform_allocation(
    sd: float, strata: int, per_stratum: int
) -> None:
    """95 % intervals contain the truth in 93 to 97 % of cases, give or take Monte-Carlo error.

    400 seeds times 3 arms. The arms share a baseline, so the hits of a seed are dependent: the
    standard error lies between 0.6 (independent) and 1.1 points (one arm). Two of the larger,
    2.2 points, are allowed around the band.
    """
    hits = [
        hit
        for seed in range(400)
        for hit in covered(
            uniform_view(
                np.random.default_rng(seed), strata=strata, per_stratum=per_stratum, sd=sd
            ),
            EFFECTS,
        )
    ]
    assert 0.93 - 0.022 <= np.mean(hits) <= 0.97 + 0.022


def test_gain_intervals_under_thompsons_own_allocation() -> None:
    """Adaptive allocation does not break the intervals: at least 90 % cover.

    An arm that looked bad by chance is hardly tried again, so its estimate stays bad and coverage
    may fall below the level. 400 seeds gave 96.7 % (drift inside a block is counted as noise and
    widens the intervals); 100 seeds have a standard error of about 2 points, and the loose limit
    leaves three of them below 95 %.
    """
    hits: list[bool] = []
    for seed in range(100):
        world = World(seed)
        pulls_of(world, [(300, EFFECTS)])
        hits += covered(world.view(300), EFFECTS)
    assert np.mean(hits) >= 0.90
