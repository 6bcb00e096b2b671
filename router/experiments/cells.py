"""Sides of experiments as pseudo-arms: a request adds to their cells what it adds to its own.

A pseudo-arm is called `@NAME/EPOCH/SIDE`. An epoch is a stretch of time with one share of treated
units, so that inside a cell's stretch of time both sides met the same, and no ramp is mistaken for
an effect. No pool can be called so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from policies.estimators.times import log_times
from policies.types import ArmId, ClassId, Counts, Trial
from router.estimates.layout import CellKey, Cells
from router.experiments.model import ExperimentName, Variant
from router.types import POOLED

HOLDOUT = ExperimentName("holdout")
"""Of everything against the baseline; no experiment can be called so."""

_MARK = "@"
_HOLDOUT_MARK = f"{_MARK}{HOLDOUT}/"
_COST = ("y.s.n", "y.s.s", "y.s.q")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an experiment in one epoch."""

    name: ExperimentName
    epoch: int
    variant: Variant


def side_arm(name: ExperimentName, epoch: int, variant: Variant) -> ArmId:
    """Name of the pseudo-arm.

    >>> side_arm(ExperimentName("try"), 3, Variant.TREATMENT)
    '@try/3/treatment'
    """
    return ArmId(f"{_MARK}{name}/{epoch}/{variant}")


def side_of(arm_id: ArmId) -> Side | None:
    """The side that a pseudo-arm is; None for an arm.

    >>> side_of(side_arm(ExperimentName("try"), 3, Variant.CONTROL)).epoch
    3
    >>> side_of(ArmId("fast")) is None, side_of(ArmId("@try/x/y")) is None
    (True, True)
    """
    if not arm_id.startswith(_MARK):
        return None
    parts = arm_id[len(_MARK) :].split("/")
    if len(parts) != 3 or not parts[1].isdecimal() or parts[2] not in tuple(Variant):  # noqa: PLR2004
        return None
    return Side(ExperimentName(parts[0]), int(parts[1]), Variant(parts[2]))


@lru_cache(maxsize=1024)
def tried_in(sides: tuple[ArmId, ...]) -> tuple[ArmId, ...]:
    """The sides that are an experiment's: all but those of the holdout."""
    return tuple(side for side in sides if not side.startswith(_HOLDOUT_MARK))


def tried_sums(sides: tuple[ArmId, ...], trial: Trial, sums: Counts) -> Counts:
    """What a request adds to its sides: its times too, if it is in an experiment.

    Args:
        sides: Its sides.
        trial: The request.
        sums: What it adds to its own cell.
    """
    return {**sums, **log_times(trial, sums)} if tried_in(sides) else sums


def side_cells(
    sides: tuple[ArmId, ...], class_id: ClassId, sums: Counts, effects: Counts
) -> tuple[tuple[CellKey, Counts], ...]:
    """What a request adds to its sides; to the holdout, which all are in, only what bears on it.

    Args:
        sides: They.
        class_id: Its class.
        sums: What it adds to its class.
        effects: What of that bears on effects (`increments.effect_fields`).
    """
    tried = tried_in(sides)
    if not tried:
        return tuple([((side, class_id, POOLED), effects) for side in sides])
    return tuple([((side, class_id, POOLED), sums if side in tried else effects) for side in sides])


def add_holdout(counts: dict[str, int], sides: tuple[ArmId, ...], sums: Counts) -> None:
    """Adds what a request adds to its tenant's month: log cost of streams, held out or not."""
    if "y.s.n" in sums:
        for name, of in _of_holdout(sides):
            counts[name] = sums[of]


@lru_cache(maxsize=1024)
def _of_holdout(sides: tuple[ArmId, ...]) -> tuple[tuple[str, str], ...]:
    """Fields of the month, and those of a request that they are sums of."""
    for side in sides:
        if side.startswith(_HOLDOUT_MARK):
            stem = "out" if side.endswith(Variant.CONTROL) else "rest"
            return tuple((f"{stem}.{name}", name) for name in _COST)
    return ()


def sides_in(cells: Cells) -> dict[Side, dict[ClassId, Mapping[str, int]]]:
    """Sums of all sides, by class."""
    found: dict[Side, dict[ClassId, Mapping[str, int]]] = {}
    for (arm_id, class_id, part), sums in cells.items():
        side = None if part else side_of(arm_id)
        if side is not None:
            found.setdefault(side, {})[class_id] = sums
    return found
