"""Whether servers are better spent on several methods or on one, and which to move. No I/O.

The number of requests in the fleet is taken to stay as it is. A class is served by one pool; a
request stays for its tokens times the time per token there, so the requests at a pool are the
fleet's, split by how long its classes stay, and the load of a server follows. What is minimised is
the mean time per token over the tokens of all classes. Waiting before the first token is left out,
and so is what a split costs by chance: arrivals that come in bunches to one pool while another
idles. Both speak for fewer pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.recommend import DRAWS, LEAST_REQUESTS, MARGIN, Bounds, Drawn, Pool, saved
from policies.types import ArmId, ClassId, FloatArray

_SETTLE: Final = 25
"""Rounds in which loads and times settle on each other."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which pool serves which class.

    Attributes:
        classes: Pool by class.
        per_token_s: Mean time per token, in seconds.
        outside: Some server's load is one that was not seen.
    """

    classes: Mapping[ClassId, ArmId]
    per_token_s: float
    outside: bool


@dataclass(frozen=True, slots=True)
class Change:
    """Another use of the same servers.

    Attributes:
        what: In words.
        gain: Share of the time per token that it saves.
        shown: The gain is beyond doubt and worth it.
        outside: Some server's load is one that was not seen.
    """

    what: str
    gain: Bounds
    shown: bool
    outside: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make of a fleet.

    Attributes:
        split: The best split of classes over the pools as they are; None where that is not known.
        single: The same servers all on one method, by pool: what that saves against the split.
        moves: One server from a pool to another, and pools whose servers all go to another; best
            first.
        additions: What one more server would save, by the pool it came to; best first.
        lacking: What is not known.
    """

    split: Split | None = None
    single: Mapping[ArmId, Change] | None = None
    moves: tuple[Change, ...] = ()
    additions: tuple[Change, ...] = ()
    lacking: tuple[str, ...] = ()


def plan(pools: Sequence[Pool], mix: Mapping[ClassId, float], *, seed: int = 0) -> Plan:
    """Compare the fleet with other uses of its servers.

    Args:
        pools: As they were measured.
        mix: Tokens by class.
        seed: Of the draws.
    """
    usable = [pool for pool in pools if pool.points and pool.replicas > 0]
    lacking = [
        f"{pool.pool}: the time of its steps was not measured with an interval"
        for pool in pools
        if not pool.points
    ]
    classes = sorted(
        class_id
        for class_id, tokens in mix.items()
        if tokens > 0.0 and any(_serves(pool, class_id) for pool in usable)
    )
    if len(usable) < 2 or not classes:  # noqa: PLR2004 - one pool cannot be split
        return Plan(lacking=(*lacking, "fewer than two pools are known well enough to compare"))
    fleet = _Fleet(usable, {class_id: mix[class_id] for class_id in classes}, seed)
    now = tuple(pool.replicas for pool in usable)
    split, cost = fleet.best(now)
    single = {}
    for index, pool in enumerate(usable):
        missing = [class_id for class_id in classes if not _serves(pool, class_id)]
        if missing:
            lacking.append(f"{pool.pool}: too little of {', '.join(missing)} to know it alone")
            continue
        all_there = tuple(sum(now) if other == index else 0 for other in range(len(usable)))
        alone, cost_alone = fleet.best(all_there)
        single[pool.pool] = _change(f"all servers on {pool.pool}", cost_alone, cost, alone)
    additions = fleet.additions(now, cost)
    return Plan(split, single, fleet.moves(now, cost), additions, tuple(lacking))


def _serves(pool: Pool, class_id: ClassId) -> bool:
    known = pool.classes.get(class_id)
    return not pool.k or (known is not None and known.requests >= LEAST_REQUESTS)


def _change(what: str, cost: FloatArray, against: FloatArray, split: Split) -> Change:
    gain = saved(cost, against)
    return Change(what, gain, gain.low > 0.0 and gain.value >= MARGIN, split.outside)


class _Fleet:
    """The pools and the traffic, drawn within what is known."""

    def __init__(self, pools: Sequence[Pool], mix: Mapping[ClassId, float], seed: int) -> None:
        self._pools = pools
        total = sum(mix.values())
        self._mix = {class_id: tokens / total for class_id, tokens in mix.items()}
        self._requests = max(sum(pool.load * pool.replicas for pool in pools), 1.0)
        self._drawn = [Drawn(pool, seed + index) for index, pool in enumerate(pools)]
        self._steps = {
            (class_id, index): 1.0 / drawn.tau(class_id, drawn.pool.k)
            if drawn.pool.k
            else np.ones(DRAWS)
            for index, drawn in enumerate(self._drawn)
            for class_id in mix
            if _serves(drawn.pool, class_id)
        }
        """Steps per token."""

    def best(self, replicas: tuple[int, ...]) -> tuple[Split, FloatArray]:
        """The best assignment of classes, and its mean time per token in every draw."""
        there = [index for index, many in enumerate(replicas) if many]
        choice = {
            class_id: min(
                (index for index in there if (class_id, index) in self._steps),
                key=lambda index: self._alone(class_id, index, replicas),
            )
            for class_id in self._mix
        }
        found = self._measured(choice, replicas)
        for _ in range(4):
            before = dict(choice)
            for class_id in self._mix:
                for index in there:
                    if (class_id, index) in self._steps:
                        other = choice | {class_id: index}
                        cost = self._measured(other, replicas)
                        if cost < found:
                            choice, found = other, cost
            if choice == before:
                break
        drawn, loads = self._cost(choice, replicas)
        outside = any(not self._drawn[index].sees(max(load, 1.0)) for index, load in loads.items())
        named = {class_id: self._pools[index].pool for class_id, index in choice.items()}
        return Split(named, float(drawn[0]), outside), drawn

    def _begin(self, work: Mapping[int, object], replicas: tuple[int, ...]) -> float:
        """Load of a server to begin with: even over the pools that serve."""
        return max(self._requests / sum(replicas[index] for index in work), 1.0)

    def _measured(self, choice: Mapping[ClassId, int], replicas: tuple[int, ...]) -> float:
        """Mean time per token by what was measured, without draws."""
        work: dict[int, float] = {}
        for class_id, index in choice.items():
            mine = self._mix[class_id] * float(self._steps[class_id, index][0])
            work[index] = work.get(index, 0.0) + mine
        load = {index: self._begin(work, replicas) for index in work}
        stay: dict[int, float] = {}
        for _ in range(_SETTLE if len(work) > 1 else 1):
            stay = {
                index: steps * self._drawn[index].measured_step(load[index])
                for index, steps in work.items()
            }
            whole = sum(stay.values())
            for index, mine in stay.items():
                aim = max(self._requests * mine / whole / replicas[index], 1.0)
                load[index] = 0.5 * (load[index] + aim)
        return sum(stay.values())

    def _alone(self, class_id: ClassId, index: int, replicas: tuple[int, ...]) -> float:
        load = self._requests / sum(replicas)
        return self._drawn[index].measured_step(load) * float(self._steps[class_id, index][0])

    def _cost(
        self, choice: Mapping[ClassId, int], replicas: tuple[int, ...]
    ) -> tuple[FloatArray, dict[int, float]]:
        """Mean time per token, and the load of a server of each pool that serves."""
        work: dict[int, FloatArray] = {}
        for class_id, index in choice.items():
            mine = self._mix[class_id] * self._steps[class_id, index]
            work[index] = work.get(index, np.zeros(DRAWS)) + mine
        load = {index: np.full(DRAWS, self._begin(work, replicas)) for index in work}
        stay: dict[int, FloatArray] = {}
        for _ in range(_SETTLE if len(work) > 1 else 1):
            stay = {
                index: steps * self._drawn[index].step(load[index]) for index, steps in work.items()
            }
            whole = sum(stay.values(), np.zeros(DRAWS))
            for index, mine in stay.items():
                aim = np.maximum(self._requests * mine / whole / replicas[index], 1.0)
                load[index] = 0.5 * (load[index] + aim)
        total = sum(stay.values(), np.zeros(DRAWS))
        return total, {index: float(of[0]) for index, of in load.items()}

    def moves(self, now: tuple[int, ...], cost: FloatArray) -> tuple[Change, ...]:
        """Servers that could be moved; the baseline keeps one, or nothing can be compared."""
        found = []
        for source, pool in enumerate(self._pools):
            keep = 1 if pool.baseline else 0
            spare = now[source] - keep
            if spare < 1:
                continue
            for target, other in enumerate(self._pools):
                if target == source:
                    continue
                for many in sorted({1, spare}):
                    there = list(now)
                    there[source] -= many
                    there[target] += many
                    if not self._can_serve(there):
                        continue
                    split, after = self.best(tuple(there))
                    what = (
                        f"retire {pool.pool}: its {many} to {other.pool}"
                        if many == now[source]
                        else f"{many} of {pool.pool} to {other.pool}"
                    )
                    found.append(_change(what, after, cost, split))
        return tuple(sorted(found, key=lambda change: -change.gain.value))

    def additions(self, now: tuple[int, ...], cost: FloatArray) -> tuple[Change, ...]:
        """One more server, in each pool."""
        found = []
        for target, pool in enumerate(self._pools):
            there = tuple(many + (index == target) for index, many in enumerate(now))
            split, after = self.best(there)
            found.append(_change(f"one more server in {pool.pool}", after, cost, split))
        return tuple(sorted(found, key=lambda change: -change.gain.value))

    def _can_serve(self, replicas: Sequence[int]) -> bool:
        return all(
            any(many and (class_id, index) in self._steps for index, many in enumerate(replicas))
            for class_id in self._mix
        )
