"""Durations of one class as rows, so that the histograms of a window stay small. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.estimators.increments import LATENCIES, WHOLE
from policies.estimators.quantiles import Blocks
from policies.types import Arm, ArmId

FAMILIES = (*LATENCIES, *WHOLE.values())
"""All families of histograms."""

_PLACE = {family: place for place, family in enumerate(FAMILIES)}
_MOST = 2**31 - 1
"""Larger counts are nobody's."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The histograms of one class in one block.

    Attributes:
        place: Which family and arm, and bucket; shape (rows, 2).
        count: Observations, shape (rows,).
    """

    place: NDArray[np.int16]
    count: NDArray[np.int32]


def rows_of(arms: Sequence[Arm], cells: Mapping[ArmId, CellSums]) -> Rows:
    """The histograms of a class in one block."""
    place: list[tuple[int, int]] = []
    observed: list[int] = []
    for index, arm in enumerate(arms):
        cell = cells.get(arm.arm_id)
        for family, counts in cell.latency.items() if cell else ():
            key = _PLACE[family] * len(arms) + index
            place += [(key, bucket) for bucket in counts]
            observed += [min(count, _MOST) for count in counts.values()]
    return Rows(np.array(place, dtype=np.int16).reshape(-1, 2), np.array(observed, dtype=np.int32))


@dataclass(frozen=True, slots=True)
class Durations:
    """The histograms of a class over several blocks.

    Attributes:
        rows: Which family and arm, bucket, observations, block counted from 0; shape (rows, 4),
            sorted by the first.
        arms: How many there are.
        blocks: How many there are.
    """

    rows: NDArray[np.int64]
    arms: int
    blocks: int

    @classmethod
    def of(cls, blocks: Sequence[Rows | None], arms: int) -> Durations:
        """Puts blocks one after another."""
        parts = [
            np.column_stack([rows.place, rows.count, np.full(len(rows.count), number)])
            for number, rows in enumerate(blocks)
            if rows is not None
        ]
        rows = np.concatenate([np.zeros((0, 4), dtype=np.int64), *parts])
        rows = np.asfortranarray(rows[np.argsort(rows[:, 0], kind="stable")])
        return cls(rows, arms, len(blocks))

    def only(self, told: NDArray[np.bool_]) -> Durations:
        """The same of some blocks, which each arm has its own of; shape (blocks, arms)."""
        return replace(self, rows=self.rows[told[self.rows[:, 3], self.rows[:, 0] % self.arms]])

    def histogram(self, family: str, arm: int) -> Blocks:
        """Histograms of one duration on one arm, block by block."""
        key = _PLACE[family] * self.arms + arm
        first, last = np.searchsorted(self.rows[:, 0], (key, key + 1)).tolist()
        rows = self.rows[first:last]
        return Blocks.of(rows[:, 3], rows[:, 1], rows[:, 2], self.blocks)

    def bands(self, arm: int) -> Iterable[tuple[str, str]]:
        """Bands of length in which the arm gave whole answers, each with its family."""
        keys = np.array([_PLACE[family] * self.arms + arm for family in WHOLE.values()])
        first, last = (np.searchsorted(self.rows[:, 0], keys + after) for after in (0, 1))
        for (band, family), there in zip(WHOLE.items(), (last > first).tolist(), strict=True):
            if there:
                yield band, family
