"""How arms of a class compare with its concurrent baseline: gains, tails and ends. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.estimators.effects import ArmEffects, arm_effects, shared_of
from policies.estimators.ended import ABANDONED_MARGIN, LEAST_MET, excess
from policies.estimators.pooling import differences, groups_of
from policies.estimators.verdict import (
    FAILURE_MARGIN,
    UNMET_MARGIN,
    Ended,
    Gain,
    fails_more,
    fixed_sample_gain,
    gain_of,
    verdict,
)
from policies.types import Arm, ArmView, ClassId, FloatArray, Status
from router.estimates.durations import Durations
from router.estimates.parts import LOAD, Grouped, gathered
from router.estimates.summary import Comparison, tails
from router.estimates.window import NOTHING, Window
from router.types import POOLED, SegmentId

ALPHA = 0.05
"""Of what is said about an arm."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A class's effects against the concurrent baseline, and the observations behind them."""

    told: NDArray[np.bool_]
    """Whether a block tells of an arm as it is now, shape (blocks, arms)."""
    effects: ArmEffects
    n: FloatArray
    by_load: Mapping[int, Sequence[Gain | None]]
    worse: Worse


@dataclass(frozen=True, slots=True)
class Worse:
    """By arm, whether its requests surely end worse than the baseline's.

    Attributes:
        failing: They fail more often.
        abandoned: Their answers are abandoned more often.
    """

    failing: Sequence[bool]
    abandoned: Sequence[bool]


class Judge:
    """Judges the arms of one route.

    Args:
        arms: They, one of them the baseline.
        tail_limit: How many times the baseline's tail an arm's may be.
    """

    def __init__(self, arms: tuple[Arm, ...], tail_limit: float) -> None:
        self._arms = arms
        self._tail_limit = tail_limit
        self._baseline = next(index for index, arm in enumerate(arms) if arm.baseline)

    def effects(self, class_id: ClassId, grouped: Grouped) -> ArmEffects:
        """Effects of arms on log cost, over all blocks alike."""
        n, total, total_sq = (grouped.sums[:, figure] for figure in range(3))
        nothing = np.zeros(len(self._arms))
        view = ArmView(class_id, self._arms, n, total, total_sq, nothing, nothing)
        return arm_effects(view, blocks=grouped.block)

    def judged(
        self,
        class_id: ClassId,
        grouped: Grouped,
        effects: ArmEffects,
        window: Window,
        told: NDArray[np.bool_],
    ) -> Generator[None, None, Judged]:
        """What `compare` looks at, in pieces as `SnapshotBuilder.steps` gives them.

        Args:
            class_id: The class.
            grouped: Its sums, of blocks that tell of an arm as it is now.
            effects: Its effects, as people are shown them.
            window: Where they come from.
            told: Whether a block tells of an arm, shape (blocks, arms).
        """
        by_load = yield from self._by_load(class_id, window, told)
        worse = self._worse(class_id, grouped, window, told)
        return Judged(told, effects, grouped.sums[:, 0].sum(axis=0), by_load, worse)

    def compare(
        self, index: int, durations: Durations, judged: Judged, *, alike: bool, sent: bool
    ) -> Comparison:
        """Compares an arm with the baseline.

        Args:
            index: The arm's.
            durations: Of the class.
            judged: The same.
            alike: Whether both answer the same mix of parts.
            sent: Whether so many requests could have gone nowhere else that tails are theirs.
        """
        effects = judged.effects
        gain = gain_of(effects, index)
        against = tails(durations, index, self._baseline)
        found = verdict(
            gain,
            n_arm=float(judged.n[index]),
            n_baseline=float(judged.n[effects.baseline]),
            tails=tuple(against.values()) if alike and not sent else (),
            failing=judged.worse.failing[index],
            abandoned=judged.worse.abandoned[index],
            limit=self._tail_limit,
        )
        once = fixed_sample_gain(effects, index)
        # Sums by load are not told apart by part.
        by_load = {band: of[index] if alike else None for band, of in judged.by_load.items()}
        more = judged.worse.abandoned[index]
        return Comparison(gain, once, by_load, against, alike and not sent, found, more)

    def _worse(
        self, class_id: ClassId, grouped: Grouped, window: Window, told: NDArray[np.bool_]
    ) -> Worse:
        """Which arms end worse than the baseline does at the same time, in the same parts."""
        ended = grouped.by_block(grouped.ended, len(told)).reshape(-1, 3, len(self._arms))
        served, failed, abandoned = ended.swapaxes(0, 1)
        fails = excess(failed, served + failed, self._baseline)
        failing = fails.above(FAILURE_MARGIN)
        # What the baseline did at other times bears on an arm that it did not meet.
        plain = _ended(window.totals.get((self._arms[self._baseline].arm_id, class_id), NOTHING))
        for index in np.flatnonzero(fails.met < LEAST_MET).tolist():
            cell = window.cell((self._arms[index].arm_id, class_id), told[:, index])
            failing[index] = fails_more(_ended(cell), plain, UNMET_MARGIN)
        left = excess(abandoned, served + failed + abandoned, self._baseline)
        return Worse(failing.tolist(), left.above(ABANDONED_MARGIN).tolist())

    def _by_load(
        self, class_id: ClassId, window: Window, told: NDArray[np.bool_]
    ) -> Generator[None, None, dict[int, list[Gain | None]]]:
        """Gains of the arms in each load band that was met, from its own data alone."""
        strata = gathered(
            [block.loads.get(class_id) for block in window.blocks.values()], self._arms
        )
        keys = [POOLED, *sorted(name for name in strata.names if _band(name) is not None)]
        yield
        if len(keys) == 1:
            return {}
        grouped = strata.grouped(
            keys, lambda part: part if part in keys else POOLED, by_moment=True
        ).only(told)
        yield
        found = {}
        # What answers of a block share is asked of each band: their effects are not the same.
        for group, key in enumerate(keys):
            band = _band(key)
            if band is not None:
                found[band] = self._gains(grouped, group)
                yield
        return found

    def _gains(self, grouped: Grouped, group: int) -> list[Gain | None]:
        rows = slice(grouped.starts[group], (*grouped.starts, len(grouped.sums))[group + 1])
        sums, blocks = grouped.sums[rows], grouped.block[rows]
        shared = shared_of(sums, self._baseline, blocks)
        groups = groups_of(sums, [0], self._baseline, blocks=blocks, shared=shared)
        [effects] = differences(groups, None, 1.0 - ALPHA)
        return [effect.as_gain() if effect else None for effect in effects]


def _ended(cell: CellSums) -> Ended:
    return Ended(cell.count(Status.OK), cell.count(Status.FAILED))


def _band(part: SegmentId) -> int | None:
    band = part.removeprefix(LOAD)
    return int(band) if part.startswith(LOAD) and band.isdecimal() and band.isascii() else None
