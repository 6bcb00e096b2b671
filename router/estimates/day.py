"""What a route's pools have saved since the day began, by UTC: hours folded to one figure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimators import histogram
from policies.estimators.cells import CellSums, arm_view
from policies.estimators.effects import arm_effects
from policies.estimators.increments import WHOLE
from policies.estimators.savings import ClassTimes, Saved, saved
from policies.types import Arm, ArmId, ClassId
from router.estimates.history import History
from router.estimates.layout import COMMON, Cells
from router.types import POOLED

DAY_S = 86_400

_TIMES = ("e2e", *WHOLE.values())
"""Families of histograms of whole durations: of streams and of whole answers."""

Hour = Mapping[ClassId, Mapping[ArmId, CellSums]]


@dataclass(frozen=True, slots=True)
class Today:
    """One route since the day began.

    Attributes:
        since: Seconds since the epoch.
        saved: None where no answer has a concurrent control.
    """

    since: float
    saved: Saved | None


class Day:
    """Keeps the hours of the day folded.

    Args:
        arms: Of the route.
        history: Where hours are read.
    """

    def __init__(self, arms: Sequence[Arm], history: History) -> None:
        self._arms = tuple(arms)
        self._history = history
        self._folded: dict[int, tuple[Cells, Hour]] = {}

    async def look(self, now: float) -> Today:
        """Folds what is new, in pieces.

        Args:
            now: Seconds since the epoch.

        Raises:
            StoreError: The store did not answer.
        """
        since = now // DAY_S * DAY_S
        hours = await self._history.read_hours(since)
        folded: dict[int, tuple[Cells, Hour]] = {}
        for number, cells in hours.items():
            kept = self._folded.get(number)
            if kept is None or kept[0] is not cells:
                kept = (cells, await self._fold(cells))
            folded[number] = kept
        self._folded = folded
        classes = []
        for times in day_times([hour for _, hour in folded.values()], self._arms):
            classes.append(times)
            await asyncio.sleep(0)
        return Today(since, saved(classes))

    async def _fold(self, cells: Cells) -> Hour:
        wanted = {arm.arm_id for arm in self._arms}
        found: dict[ClassId, dict[ArmId, CellSums]] = {}
        for (arm_id, class_id, part), fields in cells.items():
            if arm_id in wanted and class_id != COMMON and part == POOLED:
                found.setdefault(class_id, {})[arm_id] = CellSums.of(fields)
                await asyncio.sleep(0)
        return found


def day_times(hours: Sequence[Hour], arms: Sequence[Arm]) -> Iterator[ClassTimes]:
    """Each class with its effects, hour by hour against the baseline, and its times. Pure.

    Args:
        hours: Sums by class and arm.
        arms: Of the route.
    """
    for class_id in sorted({class_id for hour in hours for class_id in hour}):
        mine = [hour[class_id] for hour in hours if class_id in hour]
        effects = arm_effects(arm_view(class_id, arms, [(1.0, cells) for cells in mine]))
        sums = np.zeros((3, len(arms)))
        for index, arm in enumerate(arms):
            there = [cells[arm.arm_id] for cells in mine if arm.arm_id in cells]
            sums[:, index] = np.sum([_times(cell) for cell in there], axis=0) if there else 0.0
        yield ClassTimes(effects, *sums)


def _times(cell: CellSums) -> tuple[float, float, float]:
    """Time of a cell's answers, their number, and their tokens; NaN where not all of them told."""
    families = [cell.histogram(name) for name in _TIMES]
    answers = sum(map(histogram.total, families))
    told = cell.plain.get("tokens.n", 0)
    # Answers that a client held up told their tokens, and have no duration.
    tokens = cell.plain.get("tokens", 0) / told * answers if told >= answers and told else np.nan
    return sum(map(histogram.summed, families)), float(answers), tokens if answers else 0.0
