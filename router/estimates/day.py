"""What a route's pools have saved since the day began, by UTC: its blocks folded to one figure.

A block of two minutes is what counts as the same time. Those that are over are folded once and kept
as a few sums. What a process has not seen as blocks, because it began later in the day than the
window reaches back, is known to it by the hour only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimators import histogram
from policies.estimators.cells import CellSums, arm_view
from policies.estimators.effects import arm_effects
from policies.estimators.increments import WHOLE
from policies.estimators.savings import ClassTimes, Saved, saved
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray
from router.breath import breathe
from router.estimates.layout import BLOCK_S, COMMON, Cells
from router.estimates.reader import Past, Reader
from router.types import POOLED

DAY_S = 86_400
_HOUR_S = 3600

_TIMES = ("e2e", *WHOLE.values())
"""Families of histograms of whole durations: of streams and of whole answers."""


@dataclass(frozen=True, slots=True)
class Today:
    """One route since the day began.

    Attributes:
        since: Seconds since the epoch.
        saved: None where no answer has a concurrent control.
    """

    since: float
    saved: Saved | None


@dataclass(frozen=True, slots=True)
class ClassSums:
    """One class in one stretch of time.

    Attributes:
        costs: Number, sum and sum of squares of log costs, shape (3, strata, arms).
        times: Time of answers in seconds, their number, their tokens (NaN where not all of them
            told), shape (3, arms).
    """

    costs: FloatArray
    times: FloatArray


Stretch = Mapping[ClassId, ClassSums]


class Day:
    """Keeps the blocks of the day folded.

    Args:
        arms: Of the route.
        reader: Knows the window, and reads hours.
        window_s: How far back the window reaches.
    """

    def __init__(self, arms: Sequence[Arm], reader: Reader, window_s: int) -> None:
        self._arms = tuple(arms)
        self._reader = reader
        self._window_s = window_s
        self._blocks: dict[int, Stretch] = {}
        self._hours: dict[int, tuple[Cells, Stretch]] = {}
        self._first: int | None = None
        self._newest = 0
        """The last block that was seen."""

    async def look(self, now: float) -> Today:
        """Folds what is new, in pieces.

        Args:
            now: Seconds since the epoch.

        Raises:
            StoreError: The store did not answer.
        """
        since, past = now // DAY_S * DAY_S, self._reader.past()
        from_hour = math.ceil(self._known_from(now, past.newest_block) * BLOCK_S / _HOUR_S)
        begins = max(since, from_hour * _HOUR_S)
        hours = await self._fold_hours(since, from_hour) if since < begins else []
        growing = await self._fold_blocks(past, begins)
        classes = []
        for times in class_times([*hours, *self._blocks.values(), *growing], self._arms):
            classes.append(times)
            await breathe()
        return Today(since, saved(classes))

    def _known_from(self, now: float, newest: int) -> int:
        """The first block that is known from its beginning, and all from it on."""
        whole = int((now - self._window_s) // BLOCK_S) + 1
        if self._first is None or self._newest < whole - 1:
            self._first, self._blocks = whole, {}  # what lies between was never seen
        self._newest = newest
        return self._first

    async def _fold_blocks(self, past: Past, begins: float) -> list[Stretch]:
        """Keeps those that are over; gives those that still grow."""
        first = math.ceil(begins / BLOCK_S)
        self._blocks = {index: of for index, of in self._blocks.items() if index >= first}
        growing: list[Stretch] = []
        for index, cells in past.blocks.items():
            if index < first or index in self._blocks:
                continue
            folded = await self._fold(cells)
            if index in past.complete:
                self._blocks[index] = folded
            else:
                growing.append(folded)
        return growing

    async def _fold_hours(self, since: float, from_hour: int) -> list[Stretch]:
        """Hours of the day that are not known by blocks."""
        hours = await self._reader.history.read_hours(since, from_hour * _HOUR_S)
        folded: dict[int, tuple[Cells, Stretch]] = {}
        for number, cells in hours.items():
            kept = self._hours.get(number)
            same = kept is not None and kept[0] is cells
            folded[number] = kept if kept and same else (cells, await self._fold(cells))
        self._hours = folded
        return [of for _, of in folded.values()]

    async def _fold(self, cells: Cells) -> Stretch:
        wanted = {arm.arm_id for arm in self._arms}
        found: dict[ClassId, dict[ArmId, CellSums]] = {}
        for (arm_id, class_id, part), fields in cells.items():
            if arm_id in wanted and class_id != COMMON and part == POOLED:
                found.setdefault(class_id, {})[arm_id] = CellSums.of(fields)
                await breathe()
        made: dict[ClassId, ClassSums] = {}
        for class_id, of in found.items():
            made[class_id] = self._sums(class_id, of)
            await breathe()
        return made

    def _sums(self, class_id: ClassId, cells: Mapping[ArmId, CellSums]) -> ClassSums:
        view = arm_view(class_id, self._arms, [(1.0, cells)])
        times = np.zeros((3, len(self._arms)))
        for index, arm in enumerate(self._arms):
            if arm.arm_id in cells:
                times[:, index] = _times(cells[arm.arm_id])
        return ClassSums(np.stack([view.n, view.total, view.total_sq]), times)


def class_times(stretches: Sequence[Stretch], arms: tuple[Arm, ...]) -> Iterator[ClassTimes]:
    """Each class with its effects, stretch by stretch against the baseline, and its times. Pure.

    Args:
        stretches: Sums by class.
        arms: Of the route.
    """
    nothing = np.zeros(len(arms))
    for class_id in sorted({class_id for of in stretches for class_id in of}):
        mine = [of[class_id] for of in stretches if class_id in of]
        n, total, total_sq = np.concatenate([of.costs for of in mine], axis=1)
        view = ArmView(class_id, arms, n, total, total_sq, nothing, nothing)
        yield ClassTimes(arm_effects(view), *np.sum([of.times for of in mine], axis=0))


def _times(cell: CellSums) -> tuple[float, float, float]:
    """Time of a cell's answers, their number, and their tokens; NaN where not all of them told."""
    families = [cell.histogram(name) for name in _TIMES]
    answers = sum(map(histogram.total, families))
    told = cell.plain.get("tokens.n", 0)
    # Answers that a client held up told their tokens, and have no duration.
    tokens = cell.plain.get("tokens", 0) / told * answers if told >= answers and told else np.nan
    return sum(map(histogram.summed, families)), float(answers), tokens if answers else 0.0
