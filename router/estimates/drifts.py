"""Which cells have changed, and how much of the past of each still counts. Pure.

The detector is given: it looks at one series of blocks and says when it changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from policies.estimators.effects import ArmEffects
from policies.estimators.series import BlockSum, cost_series, steps_series, together
from policies.types import Arm, ArmId, ClassId, Source
from router.estimates.blocks import Block
from router.estimates.events import DRIFT, EVERY, Change, Event
from router.estimates.layout import BLOCK_S
from router.estimates.parts import Grouped
from router.types import POOLED

KEPT = 60
"""Blocks that the detector is asked about: two hours. Judgement: how much a cell varies, and how
slowly, an hour hardly tells."""

_NEAR = 3
"""Blocks that one change may be placed apart by."""

Figure = tuple[ClassId, ArmId, str]
"""What a series is of: `tau` or `cost` of a cell."""


class Shift(Protocol):
    """Where a series changed."""

    @property
    def block(self) -> int:
        """First block after the change."""

    @property
    def before(self) -> float:
        """Mean before."""

    @property
    def after(self) -> float:
        """Mean from then on."""


class Detector(Protocol):
    """Looks at one series."""

    def __call__(self, series: Sequence[BlockSum]) -> Shift | None:
        """The change that counts, or None."""


def never(series: Sequence[BlockSum]) -> Shift | None:
    """A detector that finds nothing."""
    del series
    return None


@dataclass(frozen=True, slots=True)
class CellSeries:
    """One cell, block by block.

    Attributes:
        steps: Steps per token, the inverse of tau.
        cost: Log cost less the baseline's at the same time; empty for the baseline.
    """

    steps: tuple[BlockSum, ...]
    cost: tuple[BlockSum, ...]


def series_of(
    blocks: Mapping[int, Block], class_id: ClassId, arm: Arm, source: Source | None
) -> tuple[BlockSum, ...]:
    """Steps per token of a cell by one source; it must be one, since sources differ a little."""
    key = (arm.arm_id, class_id)
    if source is None:
        return ()
    return steps_series(
        (number, block.cells[key].steps(source))
        for number, block in blocks.items()
        if key in block.cells
    )


def costs_of(
    grouped: Grouped, numbers: Sequence[int], effects: ArmEffects, arm: int
) -> tuple[BlockSum, ...]:
    """Log cost of a cell against the baseline's, by the number of the block."""
    if arm == effects.baseline:
        return ()
    known = np.array([*numbers, -1], dtype=np.int64)
    return cost_series(
        grouped.sums, known[grouped.block], effects.noise, arm=arm, baseline=effects.baseline
    )


class Drifts:
    """Changes of the cells of a route."""

    def __init__(self, arms: Sequence[Arm], detect: Detector) -> None:
        self._arms = arms
        self._detect = detect
        self._since: dict[tuple[ClassId, ArmId], int] = {}
        self._asked: dict[Figure, int] = {}
        self._kept: dict[Figure, dict[int, BlockSum]] = {}

    def look(
        self,
        class_id: ClassId,
        series: Mapping[ArmId, CellSeries],
        *,
        complete: int,
        wall: float,
    ) -> Iterator[Event]:
        """Looks at the cells of a class; what changed is an event and shortens their memory.

        The detector is asked once for each new block, about the blocks since the last change; of
        those that have left the window, too, for as long as `KEPT` says.

        Args:
            class_id: The class.
            series: Its cells.
            complete: The newest block that will not change any more.
            wall: The moment.
        """
        for arm_id, of in series.items():
            since = self.first(class_id, arm_id)
            for figure, known in (("tau", of.steps), ("cost", of.cost)):
                key = (class_id, arm_id, figure)
                blocks = self._blocks(key, known, since, complete)
                if self._is_new(blocks, key):
                    shift = self._detect(blocks)
                    if shift is not None:
                        yield self._changed(class_id, arm_id, figure, shift, wall)

    def look_together(
        self,
        classes: Collection[ClassId],
        *,
        complete: int,
        wall: float,
    ) -> Iterator[Event]:
        """Looks at each arm over all its classes, which tells sooner that all of it has changed.

        It must show whichever class is left out, or it is the business of that class.

        Args:
            classes: Those that have been looked at.
            complete: The newest block that will not change any more.
            wall: The moment.
        """
        for arm in self._arms:
            arm_id = arm.arm_id
            for figure in ("tau", "cost"):
                those = [
                    self._between((of, arm_id, figure), self.first(of, arm_id), complete)
                    for of in classes
                ]
                there = [of for of in those if of]
                blocks = together(there)
                if len(there) > 1 and self._is_new(blocks, (EVERY, arm_id, figure)):
                    shift = self._detect(blocks)
                    if shift is not None and self._shown_by_all(there, shift):
                        yield self._changed(EVERY, arm_id, figure, shift, wall)

    def first(self, class_id: ClassId, arm_id: ArmId) -> int:
        """First block that tells of a cell as it is now; 0 where no change of it is known."""
        return max(self._since.get((of, arm_id), 0) for of in (class_id, EVERY))

    def told(self, class_id: ClassId, numbers: Sequence[int]) -> NDArray[np.bool_]:
        """Whether a block tells of an arm as it is now, shape (blocks, arms)."""
        first = [self.first(class_id, arm.arm_id) for arm in self._arms]
        return np.asarray(numbers, dtype=np.int64)[:, None] >= np.array(first)

    def forget(self, newest: int) -> None:
        """Forgets what is older than `KEPT` blocks, counted from the newest."""
        oldest = newest - KEPT
        self._asked = {key: block for key, block in self._asked.items() if block >= oldest}
        self._since = {key: since for key, since in self._since.items() if since > oldest}
        kept = {
            key: {number: of for number, of in blocks.items() if number >= oldest}
            for key, blocks in self._kept.items()
        }
        self._kept = {key: blocks for key, blocks in kept.items() if blocks}

    def _blocks(
        self, key: Figure, known: Sequence[BlockSum], first: int, last: int
    ) -> list[BlockSum]:
        kept = self._kept.setdefault(key, {})
        kept |= {of.block: of for of in known if of.block <= last}
        return self._between(key, first, last)

    def _between(self, key: Figure, first: int, last: int) -> list[BlockSum]:
        kept = self._kept.get(key, {})
        return [kept[block] for block in sorted(kept) if first <= block <= last]

    def _is_new(self, blocks: Sequence[BlockSum], key: Figure) -> bool:
        if not blocks or self._asked.get(key) == blocks[-1].block:
            return False
        self._asked[key] = blocks[-1].block
        return True

    def _shown_by_all(self, series: Sequence[Sequence[BlockSum]], shift: Shift) -> bool:
        for left_out in range(len(series)):
            found = self._detect(together([*series[:left_out], *series[left_out + 1 :]]))
            if found is None or abs(found.block - shift.block) > _NEAR:
                return False
            if (found.after - found.before) * (shift.after - shift.before) < 0.0:
                return False
        return True

    def _changed(
        self, class_id: ClassId, arm_id: ArmId, figure: str, shift: Shift, wall: float
    ) -> Event:
        key = (class_id, arm_id)
        self._since[key] = max(shift.block, self._since.get(key, 0))
        before, after = shift.before, shift.after
        if figure == "tau":
            before, after = 1.0 / before, 1.0 / after
        change = Change(figure, shift.block * BLOCK_S, before, after)
        return Event(wall, DRIFT, class_id, POOLED, arm_id, change=change)
