"""Segments in a small world: opposite ones are told apart, like ones lose nothing, seldom an alarm.

The world: log cost `y = level(t) + level of the segment + delta + N(0, 0.3)`, one request a second, segments
drawn at random. Snapshot and plan are made anew every 10 requests, as the proxy does. Seeds are fixed;
each tolerance says what it allows for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.checks import example_arms
from policies.estimators.increments import effect_fields
from policies.proposal import draw
from policies.thompson import ThompsonPolicy
from policies.types import ClassId
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.selection.plans import Plan, make_plan, plan_steps
from router.types import POOLED, SegmentId

ARMS = example_arms(3)
CHAT = ClassId("chat")
NOISE_SD = 0.3
REFRESH = 10
START = 1_000_000
"""First block."""
FAR = np.inf


@dataclass
class World:
    """Requests of one class from several segments, and what is made of them."""

    seed: int
    effects: Mapping[str, Sequence[float]]
    """Of the arms, by segment."""
    told: bool = True
    """Whether segments are counted."""
    rng: np.random.Generator = field(init=False)
    blocks: dict[int, Cells] = field(default_factory=dict)
    pulls: list[tuple[str, int]] = field(default_factory=list)
    """Segment and arm of each request."""
    snapshot: Snapshot | None = None

    def __post_init__(self) -> None:
        """Seeds the world."""
        self.rng = np.random.default_rng(self.seed)
        self.builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1)
        self.levels = dict(
            zip(self.effects, self.rng.normal(0.0, 0.5, len(self.effects)), strict=True)
        )

    def run(self, requests: int) -> World:
        """Serves requests, one a second."""
        policy = ThompsonPolicy()
        plan = make_plan(policy, {}, ARMS, version=0, rng=self.rng)
        names = list(self.effects)
        for second in range(requests):
            if second % REFRESH == 0:
                plan = self.plan(policy, second)
            segment = names[self.rng.integers(len(names))]
            part = SegmentId(segment) if self.told else POOLED
            arm = draw(plan.proposal(CHAT, part).probabilities, self.rng.random())
            self.pulls.append((segment, arm))
            self.count(second, arm, segment, part)
        return self

    def count(self, second: int, arm: int, segment: str, part: SegmentId) -> None:
        """Adds what the request was found to cost."""
        level = 0.3 * np.sin(second / 100.0) + self.levels[segment]
        y = level + self.effects[segment][arm] + self.rng.normal(0.0, NOISE_SD)
        millionths = {"y.s.s": round(y * 1e6), "y.s.q": round(y * y * 1e6)}
        sums = {"n": 1, "status.ok": 1, "y.s.n": 1, **millionths}
        cells = self.blocks.setdefault(START + second // BLOCK_S, {})
        merge_cells(cells, {(ARMS[arm].arm_id, CHAT, POOLED): sums})
        if part:
            merge_cells(cells, {(ARMS[arm].arm_id, CHAT, part): effect_fields(sums)})

    def plan(self, policy: ThompsonPolicy, second: int) -> Plan:
        """What is proposed after so many seconds."""
        newest = START + second // BLOCK_S
        complete = frozenset(block for block in self.blocks if block < newest)
        past = Past(self.blocks, newest, complete)
        self.snapshot = self.builder.build(past, START * BLOCK_S + float(second))
        views = list(self.snapshot.views())
        if not views:
            return make_plan(policy, {}, ARMS, version=1, rng=self.rng)
        *_, plan = plan_steps(policy, views, ARMS, version=1, rng=self.rng)
        assert plan is not None
        return plan

    def share(self, segment: str, arm: int, since: int) -> float:
        """Share of a segment's later requests that went to an arm."""
        pulls = [pulled for of, pulled in self.pulls[since:] if of == segment]
        return pulls.count(arm) / len(pulls)

    def regret(self, since: int = 0) -> float:
        """Mean excess of log cost over the segment's best arm."""
        lost = [self.effects[of][arm] - min(self.effects[of]) for of, arm in self.pulls[since:]]
        return float(np.mean(lost))


OPPOSITE = {"a": (0.0, -0.5, 0.3), "b": (0.0, 0.3, -0.5)}
ALIKE = {f"s{i:02}": (0.0, -0.5, 0.3) for i in range(30)}


def test_segments_with_opposite_best_arms_each_get_theirs() -> None:
    """After 600 requests the best arm of each gets at least 75 % of its next 300, over 8 seeds.

    The ceiling is 96 % (two floors of 2 %); 8 seeds gave 96 % for both. Without segments no share of
    one arm can be right for both: what one gains the other loses, so their mean stays near 50 %.
    """
    told = [World(seed, OPPOSITE).run(900) for seed in range(8)]
    for segment, arm in (("a", 1), ("b", 2)):
        shares = [world.share(segment, arm, 600) for world in told]
        assert np.mean(shares) >= 0.75
        assert min(shares) >= 0.6
    pooled = [World(seed, OPPOSITE, told=False).run(900) for seed in range(8)]
    shares = [(of.share("a", 1, 600) + of.share("b", 2, 600)) / 2 for of in pooled]
    assert np.mean(shares) <= 0.55
    assert np.mean([of.regret() for of in told]) < np.mean([of.regret() for of in pooled]) / 4


def test_opposite_segments_are_events() -> None:
    """In each of 8 worlds, by 900 requests, and with the right sign."""
    for seed in range(8):
        snapshot = World(seed, OPPOSITE).run(900).snapshot
        assert snapshot is not None
        assert snapshot.events
        for event in snapshot.events:
            faster = (event.part == "a") == (event.arm_id == ARMS[1].arm_id)
            assert event.difference is not None
            assert (event.difference.value < 0.0) is faster


def test_thirty_like_segments_lose_nothing_against_none() -> None:
    """Cost over the best arm in 1,200 requests differs by at most 1 % of the time, over 8 seeds.

    24 seeds gave 4.41 % with segments and 4.40 % without, the difference 0.01 ± 0.07 points; each
    segment had 40 requests. Two standard errors of 8 seeds are 0.25 points.
    """
    told = [World(seed, ALIKE).run(1200).regret() for seed in range(8)]
    pooled = [World(seed, ALIKE, told=False).run(1200).regret() for seed in range(8)]
    assert np.mean(told) - np.mean(pooled) <= 0.01


def test_like_segments_are_hardly_ever_an_event() -> None:
    """At most 1 of 12 worlds of six segments, looked at 150 times, had one; 60 seeds gave none.

    The level is 5 % for all looks, pairs and arms together, and beyond a margin.
    """
    found = 0
    for seed in range(12):
        snapshot = World(seed, dict(list(ALIKE.items())[:6])).run(1500).snapshot
        assert snapshot is not None
        found += bool(snapshot.events)
    assert found <= 1


def test_copy_bands_with_opposite_best_arms_are_split() -> None:
    """The class is one until it is known to be two; then each band gets its own best arm.

    At least 75 % of the last 300 of 1,200 requests, in each of 6 worlds.
    """
    bands = {"": (0.0, -0.5, 0.3), "+": (0.0, 0.3, -0.5)}
    for seed in range(6):
        world = World(seed, bands).run(1200)
        assert world.snapshot is not None
        assert world.snapshot.classes[CHAT].split
        assert world.share("", 1, 900) >= 0.75
        assert world.share("+", 2, 900) >= 0.75


def test_copy_bands_that_are_alike_are_not_split() -> None:
    """In none of 8 worlds; the level is 5 %, and beyond a margin."""
    bands = {"": (0.0, -0.5, 0.3), "+": (0.0, -0.5, 0.3)}
    for seed in range(8):
        snapshot = World(seed, bands).run(1200).snapshot
        assert snapshot is not None
        assert not snapshot.classes[CHAT].split
