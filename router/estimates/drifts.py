"""Which cells have changed, and how much of the past of each still counts. Pure.

The detector is given: it looks at one series of blocks and says when it changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policies.estimators.effects import ArmEffects
from policies.estimators.series import BlockSum, cost_series, tau_series
from policies.types import Arm, ArmId, ClassId, FloatArray, Source
from router.estimates.blocks import Block
from router.estimates.events import DRIFT, Change, Event
from router.estimates.layout import BLOCK_S
from router.estimates.parts import Grouped
from router.types import POOLED


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
        tau: Tokens per step.
        cost: Log cost less the baseline's at the same time; empty for the baseline.
    """

    tau: tuple[BlockSum, ...]
    cost: tuple[BlockSum, ...]


def series_of(
    blocks: Mapping[int, Block], class_id: ClassId, arm: Arm, source: Source | None
) -> tuple[BlockSum, ...]:
    """Tokens per step of a cell by one source; it must be one, since sources differ a little."""
    key = (arm.arm_id, class_id)
    if source is None:
        return ()
    return tau_series(
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
        self._asked: dict[tuple[ClassId, ArmId, str], int] = {}

    def look(
        self,
        class_id: ClassId,
        series: Mapping[ArmId, CellSeries],
        *,
        complete: int,
        wall: float,
    ) -> Iterator[Event]:
        """Looks at the cells of a class; what changed is an event and shortens their memory.

        The detector is asked once for each new block, about the blocks since the last change.

        Args:
            class_id: The class.
            series: Its cells.
            complete: The newest block that will not change any more.
            wall: The moment.
        """
        for arm_id, of in series.items():
            key = (class_id, arm_id)
            since = self._since.get(key, 0)
            for figure, known in (("tau", of.tau), ("cost", of.cost)):
                blocks = [one for one in known if since <= one.block <= complete]
                if not blocks or self._asked.get((*key, figure)) == blocks[-1].block:
                    continue
                self._asked[*key, figure] = blocks[-1].block
                shift = self._detect(blocks)
                if shift is None:
                    continue
                self._since[key] = max(shift.block, self._since.get(key, shift.block))
                change = Change(figure, shift.block * BLOCK_S, shift.before, shift.after)
                yield Event(wall, DRIFT, class_id, POOLED, arm_id, change=change)

    def weights(self, class_id: ClassId, numbers: Sequence[int], weights: FloatArray) -> FloatArray:
        """Weights of blocks by arm, shape (blocks, arms): 0 for what came before a change."""
        made = np.repeat(weights[:, None], len(self._arms), axis=1)
        for column, arm in enumerate(self._arms):
            since = self._since.get((class_id, arm.arm_id))
            if since is not None:
                made[np.asarray(numbers) < since, column] = 0.0
        return made

    def forget(self, oldest: int) -> None:
        """Forgets changes and looks before the oldest block that is known."""
        self._asked = {key: block for key, block in self._asked.items() if block >= oldest}
        self._since = {key: since for key, since in self._since.items() if since > oldest}
