"""Sides of experiments as pseudo-arms: a request adds to their cells what it adds to its own.

A pseudo-arm is called `@NAME/EPOCH/SIDE`. An epoch is a stretch of time with one share of treated
units, so that inside a cell's stretch of time both sides met the same, and no ramp is mistaken for
an effect. No pool can be called so.

Where a unit brings many requests, what bears on shares and effects is counted again by the unit's
bucket (`policies.estimators.clusters`), in the same cell under `uBB.NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from policies.cost import KINDS, LENGTH_BANDS
from policies.estimators.clusters import BUCKETS
from policies.estimators.increments import by_kind
from policies.estimators.times import TPOT, TTFT, log_times
from policies.types import ArmId, ClassId, Counts, Status, Trial
from router.estimates.layout import CellKey, Cells
from router.experiments.model import ExperimentName, Variant
from router.types import POOLED

IntArray = NDArray[np.int64]

TIMES = (TPOT, TTFT, *(f"e{band}" for band in LENGTH_BANDS))
"""Kinds of log times."""

_LARGEST = 2**62

HOLDOUT = ExperimentName("holdout")
"""Of everything against the baseline; no experiment can be called so."""

_MARK = "@"
_HOLDOUT_MARK = f"{_MARK}{HOLDOUT}/"
_COST = ("y.s.n", "y.s.s", "y.s.q")
_BUCKET, _SHARE = "#", "="
_MILLIONTHS = 1_000_000

_BY_BUCKET = frozenset(
    (
        *("n", f"status.{Status.FAILED}", f"status.{Status.ABORTED}"),
        *("checked", "invalid", "finished", "truncated"),
        *(f"y.{kind}.{of}" for kind in KINDS for of in "ns"),
        *(f"t.{kind}.{of}" for kind in TIMES for of in "ns"),
    )
)
"""Sums that are kept by bucket too: those of shares and of logs, whose noise is asked for."""

_NAMES_BY_BUCKET = tuple(
    {name: f"u{bucket:02d}.{name}" for name in _BY_BUCKET} for bucket in range(BUCKETS)
)
_OF_BUCKET = {
    told: (bucket, name)
    for bucket, names in enumerate(_NAMES_BY_BUCKET)
    for name, told in names.items()
}


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


def at_bucket(side: ArmId, bucket: int, share: float | None = None) -> ArmId:
    """A side with the bucket of a request's unit, and the share that is drawn, where it may change.

    >>> at_bucket(side_arm(ExperimentName("try"), 3, Variant.CONTROL), 7)
    '@try/3/control#07'
    """
    drawn = "" if share is None else f"{_SHARE}{round(share * _MILLIONTHS)}"
    return ArmId(f"{side}{_BUCKET}{bucket:02d}{drawn}")


@lru_cache(maxsize=8192)
def _parted(side: ArmId) -> tuple[ArmId, int | None, str]:
    """A side, the bucket, and the share in millionths; what is not said is None or empty."""
    arm, _, told = side.partition(_BUCKET)
    bucket, _, share = told.partition(_SHARE)
    return ArmId(arm), int(bucket) if bucket else None, share


def _with_buckets(bucket: int | None, sums: Counts) -> Counts:
    """Sums of a request, and those that its bucket takes."""
    if bucket is None:
        return sums
    named = _NAMES_BY_BUCKET[bucket].get
    parts = {told: n for name, n in sums.items() if (told := named(name)) is not None}
    return {**sums, **parts}


def by_bucket(sums: Counts) -> tuple[dict[str, int], dict[str, IntArray]]:
    """Parts the sums of a cell: what is its own, and by name what each bucket has of it.

    >>> whole, parts = by_bucket({"n": 3, "u00.n": 1, "u02.n": 2})
    >>> whole, parts["n"][:4]
    ({'n': 3}, array([1, 0, 2, 0]))
    """
    whole: dict[str, int] = {}
    parts: dict[str, IntArray] = {}
    for name, value in sums.items():
        place = _OF_BUCKET.get(name)
        if place is None:
            whole[name] = value
        elif abs(value) <= _LARGEST:
            bucket, of = place
            if of not in parts:
                parts[of] = np.zeros(BUCKETS, dtype=np.int64)
            parts[of][bucket] = value
    return whole, parts


@lru_cache(maxsize=8192)
def tried_in(sides: tuple[ArmId, ...]) -> tuple[ArmId, ...]:
    """The sides that are an experiment's: all but those of the holdout."""
    return tuple(side for side in sides if not side.startswith(_HOLDOUT_MARK))


def tried_sums(sides: tuple[ArmId, ...], trial: Trial, sums: Counts) -> Counts:
    """What a request adds to its sides: its times too, if it is in an experiment.

    Sides are drawn by lot, so nobody asks them where a policy leaned.

    Args:
        sides: Its sides.
        trial: The request.
        sums: What it adds to its own cell (`increments.with_effects`).
    """
    if not tried_in(sides):
        return sums
    told = by_kind(sums)
    told.update(log_times(trial, told))
    return told


def side_cells(
    sides: tuple[ArmId, ...], class_id: ClassId, sums: Counts, costs: Counts
) -> tuple[tuple[CellKey, Counts], ...]:
    """What a request adds to its sides; to the holdout, which all are in, its log costs alone.

    Args:
        sides: They.
        class_id: Its class.
        sums: What it adds to sides that are an experiment's (`tried_sums`).
        costs: Its log costs (`increments.costs_by_kind`).
    """
    tried = tried_in(sides)
    found = []
    for side in sides:
        arm, bucket, _ = _parted(side)
        of = sums if side in tried else {"n": 1, **costs}
        found.append(((arm, class_id, POOLED), _with_buckets(bucket, of)))
    return tuple(found)


def add_holdout(counts: dict[str, int], sides: tuple[ArmId, ...], costs: Counts) -> None:
    """Adds what a request adds to its tenant's month: log cost of streams, held out or not."""
    if "y.s.n" in costs:
        for name, of in _of_holdout(sides):
            counts[name] = costs[of]


@lru_cache(maxsize=8192)
def _of_holdout(sides: tuple[ArmId, ...]) -> tuple[tuple[str, str], ...]:
    """Fields of the month, and those of a request that they are sums of."""
    for side in sides:
        if side.startswith(_HOLDOUT_MARK):
            arm, bucket, share = _parted(side)
            stem = "out" if arm.endswith(Variant.CONTROL) else "rest"
            stem = f"{stem}{_SHARE}{share}" if share else stem
            found = [(f"{stem}.{name}", name) for name in _COST]
            if bucket is not None:
                found += [(f"{stem}.{_NAMES_BY_BUCKET[bucket][of]}", of) for of in _COST[:2]]
            return tuple(found)
    return ()


def sides_in(cells: Cells) -> dict[Side, dict[ClassId, Mapping[str, int]]]:
    """Sums of all sides, by class."""
    found: dict[Side, dict[ClassId, Mapping[str, int]]] = {}
    for (arm_id, class_id, part), sums in cells.items():
        side = None if part else side_of(arm_id)
        if side is not None:
            found.setdefault(side, {})[class_id] = sums
    return found
