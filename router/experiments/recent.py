"""Sums of experiments' sides at moments, and what was added between two of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router.estimates.layout import Cells, merge_cells
from router.experiments.cells import side_of

_BRAKED = ("n", "status.", "y.", "t.")
"""Begin the names of sums that sudden harm shows in."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Sums of all sides at one moment, by stretch of time."""

    at: float
    stretches: Mapping[int, Cells]


def sides_of(cells: Cells) -> Cells:
    """Cells of all sides, of all cells that there are."""
    return {key: sums for key, sums in cells.items() if side_of(key[0]) is not None}


def copied(stretches: Mapping[int, Cells]) -> dict[int, Cells]:
    """What the brake looks at, of the many sums that there are."""
    return {
        number: {
            key: {name: n for name, n in sums.items() if name.startswith(_BRAKED)}
            for key, sums in cells.items()
        }
        for number, cells in stretches.items()
        if cells
    }


def since(moment: Moment, then: Moment) -> Cells:
    """What has been added since then; stretches that are gone meanwhile count for nothing."""
    added: Cells = {}
    for number, cells in moment.stretches.items():
        before = then.stretches.get(number, {})
        for key, sums in cells.items():
            known = before.get(key, {})
            grown = {name: n - known.get(name, 0) for name, n in sums.items()}
            grown = {name: n for name, n in grown.items() if n}
            if grown:
                merge_cells(added, {key: grown})
    return added
