"""All blocks that a snapshot looks at, and what was added up over them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.types import ArmId, ClassId, FloatArray
from router.estimates.blocks import Block, Sums, summed
from router.estimates.layout import BLOCK_S
from router.estimates.summary import Counted

NOTHING = CellSums()
"""A cell without requests."""


@dataclass(frozen=True, slots=True)
class Window:
    """One route's.

    Attributes:
        blocks: By number, the oldest first.
        weights: Of blocks, by age.
        totals: Sums of all of them.
        recent: Sums of the newest.
        counted: Tokens per step from counters of servers.
        wall: The moment.
    """

    blocks: Mapping[int, Block]
    weights: FloatArray
    totals: Sums
    recent: Sums
    counted: Counted
    wall: float

    @property
    def numbers(self) -> list[int]:
        """Of the blocks."""
        return list(self.blocks)

    def first(self, key: tuple[ArmId, ClassId], told: NDArray[np.bool_]) -> float | None:
        """When the first block began that tells of a cell, shape (blocks,)."""
        for tells, (number, block) in zip(told.tolist(), self.blocks.items(), strict=True):
            if tells and key in block.cells:
                return number * BLOCK_S
        return None

    def cell(self, key: tuple[ArmId, ClassId], told: NDArray[np.bool_]) -> CellSums:
        """One cell over the blocks that tell of it, shape (blocks,)."""
        if told.all():
            return self.totals.get(key, NOTHING)
        blocks = zip(told.tolist(), self.blocks.values(), strict=True)
        there = [{key: of.cells[key]} for tells, of in blocks if tells and key in of.cells]
        return summed(there).get(key, NOTHING)
