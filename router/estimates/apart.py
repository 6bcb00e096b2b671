"""Gains of the parts of a class, and what parts differ by. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.estimators.effects import shared_of
from policies.estimators.pooling import Difference, Groups, differences, groups_of, joined, rest_of
from policies.estimators.shared import NOTHING_SHARED, Shared
from policies.types import Arm, ArmId, ArmView
from router.estimates.judged import ALPHA
from router.estimates.layout import COPYING
from router.estimates.parts import Grouped
from router.estimates.segments import Found, PartSnapshot, grouping
from router.types import POOLED, SegmentId


class Apart:
    """Tells the parts of classes of one route apart.

    Args:
        arms: Of the route.
    """

    def __init__(self, arms: tuple[Arm, ...]) -> None:
        self._arms = arms
        self._baseline = next(index for index, arm in enumerate(arms) if arm.baseline)

    def parts(
        self,
        keys: Sequence[SegmentId],
        grouped: Grouped,
        views: Sequence[ArmView],
        moments: Grouped,
        shared: Shared,
        *,
        level: float,
    ) -> dict[SegmentId, PartSnapshot]:
        """The parts of a class.

        Args:
            keys: Their names; `POOLED` is the rest.
            grouped: Their sums.
            views: What a policy sees of each.
            moments: Their sums by lean as well, for gains.
            shared: What answers of a block share.
            level: Of the intervals of what parts differ by.
        """
        groups = self._groups(grouped)
        apart = differences(groups, rest_of(groups), level)
        own = self._summaries(self._groups(moments, shared), apart, views)
        return {key: part for key, part in zip(keys, own, strict=True) if key}

    def bands(
        self, found: Found, level: float
    ) -> tuple[dict[str, PartSnapshot], dict[ArmId, Difference]]:
        """Measures answers that copy apart from the others, and what they differ by, by arm."""
        keys = [POOLED, *found.keys(split=True)]
        group = grouping(keys, split=True)
        grouped = found.gathered.grouped(keys, group)
        moments = found.gathered.grouped(keys, group, by_moment=True)
        groups = self._groups(grouped)
        sides = [
            [i for i, key in enumerate(keys) if key.endswith(COPYING) is copying]
            for copying in (True, False)
        ]
        shared = shared_of(moments.sums, self._baseline, moments.block)
        both = self._joined(moments, sides, shared)
        apart = differences(joined(groups, sides[:1]), joined(groups, sides[1:]), level)[0]
        bands = dict(
            zip(
                ("copying", "free"),
                self._summaries(both, [apart, [None] * len(apart)], [None, None]),
                strict=True,
            )
        )
        known = {
            arm.arm_id: difference
            for arm, difference in zip(self._arms, apart, strict=True)
            if difference is not None
        }
        return bands, known

    def _groups(self, grouped: Grouped, shared: Shared = NOTHING_SHARED) -> Groups:
        """Args: `shared` is for gains; between groups served at the same time it cancels."""
        return groups_of(
            grouped.sums, grouped.starts, self._baseline, blocks=grouped.block, shared=shared
        )

    def _joined(self, grouped: Grouped, sides: Sequence[Sequence[int]], shared: Shared) -> Groups:
        """Groups put together by side: what a block's answers share, all of a side do."""
        ends = (*grouped.starts[1:], len(grouped.sums))
        spans = [
            [np.arange(grouped.starts[group], ends[group]) for group in side] for side in sides
        ]
        if not all(spans):
            return joined(self._groups(grouped, shared), sides)
        rows = [np.concatenate(side) for side in spans]
        starts = np.cumsum([0, *map(len, rows[:-1])]).tolist()
        order = np.concatenate(rows)
        return groups_of(
            grouped.sums[order],
            starts,
            self._baseline,
            blocks=grouped.block[order],
            shared=shared,
        )

    def _summaries(
        self,
        groups: Groups,
        apart: Sequence[Sequence[Difference | None]],
        views: Sequence[ArmView | None],
    ) -> list[PartSnapshot]:
        named = [arm.arm_id for arm in self._arms]
        own = differences(groups, None, 1.0 - ALPHA)
        return [
            PartSnapshot(
                n=int(groups.n[group].sum()),
                gains={
                    arm_id: effect.as_gain() if effect else None
                    for arm_id, effect in zip(named, own[group], strict=True)
                },
                differs={
                    arm_id: difference
                    for arm_id, difference in zip(named, apart[group], strict=True)
                    if difference is not None
                },
                view=view,
            )
            for group, view in enumerate(views)
        ]
