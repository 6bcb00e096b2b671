"""One block of time, read: what is added up, and what is kept apart by stratum and bucket. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern

from policies.estimators.cells import CellSums, add
from policies.estimators.load import by_band
from policies.types import Arm, ArmId, ClassId, Counts
from router.estimates.durations import Rows, rows_of
from router.estimates.layout import COMMON, Cells, segment_of
from router.estimates.parts import Strata, is_load, strata_of
from router.types import POOLED, SegmentId

_FIELDS_PER_STEP = 1200

Sums = Mapping[tuple[ArmId, ClassId], CellSums]
"""Whole classes by arm, without what is kept in rows: histograms of durations and log costs."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a route.

    Attributes:
        cells: The whole of each class.
        strata: Log costs of each class by part.
        loads: The same by load band, of the same requests.
        durations: Histograms of each class.
        sizes: Requests by segment.
        common: What is an arm's and of no class, by band of load.
    """

    cells: Sums
    strata: Mapping[ClassId, Strata]
    loads: Mapping[ClassId, Strata]
    durations: Mapping[ClassId, Rows]
    sizes: Mapping[SegmentId, int]
    common: Mapping[ArmId, Mapping[int, Counts]] = field(default_factory=dict)


def parse(arms: Sequence[Arm], cells: Cells) -> Generator[None, None, Block]:
    """Reads a block, class by class."""
    by_class: dict[ClassId, dict[SegmentId, dict[ArmId, CellSums]]] = {}
    sizes: Counter[SegmentId] = Counter()
    read = 0
    common: dict[ArmId, dict[str, Counts]] = {}
    for (arm_id, class_id, part), fields in cells.items():
        if class_id == COMMON:
            common.setdefault(arm_id, {})[part] = fields
            continue
        cell = CellSums.of(fields)
        name = SegmentId(intern(part))  # blocks share their names
        by_class.setdefault(class_id, {}).setdefault(name, {})[arm_id] = cell
        if segment_of(part) and not is_load(part):
            sizes[segment_of(part)] += cell.n
        read += len(fields)
        if read >= _FIELDS_PER_STEP:
            read = 0
            yield
    whole: dict[tuple[ArmId, ClassId], CellSums] = {}
    strata, loads, durations = {}, {}, {}
    for class_id in list(by_class):
        parts = by_class.pop(class_id)  # what is laid out is let go of, not all of it at the end
        bands = {part: parts.pop(part) for part in list(parts) if is_load(part)}
        strata[class_id] = strata_of(arms, parts)
        yield
        if bands:
            loads[class_id] = strata_of(arms, bands)
        pooled = parts.get(POOLED, {})
        durations[class_id] = rows_of(arms, pooled)
        for arm_id, cell in pooled.items():
            whole[arm_id, class_id] = replace(cell, latency={}, log_cost={}, moment_cost={})
        yield
    bands_of = {arm_id: by_band(parts) for arm_id, parts in common.items()}
    return Block(whole, strata, loads, durations, sizes, bands_of)


def summed(blocks: Iterable[Sums]) -> dict[tuple[ArmId, ClassId], CellSums]:
    """Adds whole classes up."""
    sums: dict[tuple[ArmId, ClassId], CellSums] = {}
    for block in blocks:
        for key, cell in block.items():
            sums[key] = add(sums[key], cell) if key in sums else cell
    return sums
