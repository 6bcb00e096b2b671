"""How sums are laid out in the store: one hash for each route and slot of ten seconds.

Key    `{PREFIX:MODEL}:v1:slot:NUMBER`; the braces keep a route's keys in one slot of a cluster.
Writer `{PREFIX:MODEL}:v1:writer:NAME` holds the number of a writer's last batch.
Field  `ARM|CLASS|NAME`, the names being those of `policies.estimators.cells`: the whole of a class.
       `ARM|CLASS|PART|NAME` counts some of these requests again, by segment and copy band.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from urllib.parse import quote

from policies.types import ArmId, ClassId
from router.clock import Clock
from router.types import POOLED, SegmentId

SLOT_S = 10
"""Length of a slot in seconds."""

OPEN_SLOTS = 3
"""The current slot and those before it that may still grow; older ones are sealed."""

LATE_SLOTS = 1
"""A writer adds to the current slot or this many before it. Less than `OPEN_SLOTS` by one, so that
a write that takes its time still lands before any reader seals the slot."""

SLOTS_PER_BLOCK = 12
"""A block of two minutes is what counts as "at the same time" when arms are compared: long enough
to hold several requests of a class on several arms, short against changes of load."""

BLOCK_S = SLOT_S * SLOTS_PER_BLOCK

MAX_PART = 40
"""Longest name of a part that is kept."""

MAX_PARTS = 128
"""Parts that a reader keeps of a block; the largest, over all classes."""

COPY_SHARE = 0.5
"""Expected share of the answer that repeats the request from which on it counts as copying."""

COPYING = "+"
"""Ends the name of a part whose requests have answers that mostly repeat the request."""

CellKey = tuple[ArmId, ClassId, SegmentId]
"""Arm, class and part; the part `POOLED` is the whole class."""

Cells = dict[CellKey, dict[str, int]]


def slot_at(wall: float) -> int:
    """Number of the slot that contains a wall time."""
    return int(wall // SLOT_S)


class SlotClock:
    """The current slot, which never goes back: what is sealed stays sealed.

    Time services may set the wall clock back; the slot then lasts until time has caught up.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = 0

    def now(self) -> int:
        """Number of the current slot."""
        self._latest = max(self._latest, slot_at(self._clock.wall()))
        return self._latest


def slot_key(prefix: str, model: str, slot: int) -> str:
    """Key of a slot's hash."""
    return f"{_tag(prefix, model)}:v1:slot:{slot}"


def writer_key(prefix: str, model: str, writer: str) -> str:
    """Key of the number of a writer's last batch."""
    return f"{_tag(prefix, model)}:v1:writer:{writer}"


def _tag(prefix: str, model: str) -> str:
    # Model names may hold braces, which would end the hash tag early.
    return f"{{{prefix}:{quote(model, safe='/')}}}"


def part_of(segment: SegmentId, copy_ratio: float) -> SegmentId:
    """Name of the part of a class that a request belongs to; `POOLED` if to none.

    A segment whose name could be taken for something else counts as unknown.

    Args:
        segment: The application.
        copy_ratio: Expected share of the answer that repeats the request.
    """
    known = segment.isalnum() or all(c.isalnum() or c in "-_." for c in segment)
    if len(segment) >= MAX_PART or not known:
        segment = POOLED
    return SegmentId(segment + COPYING) if copy_ratio >= COPY_SHARE else segment


def segment_of(part: SegmentId) -> SegmentId:
    """The segment of a part, without its copy band."""
    return SegmentId(part.removesuffix(COPYING))


def field_name(arm_id: ArmId, class_id: ClassId, name: str, part: SegmentId = POOLED) -> str:
    """Field of one sum."""
    return f"{arm_id}|{class_id}|{part}|{name}" if part else f"{arm_id}|{class_id}|{name}"


def stored_fields(cells: Cells) -> dict[str, int]:
    """Cells as fields of one hash; `merge_fields` reads them back."""
    return {
        stem + name: value
        for (arm_id, class_id, part), sums in cells.items()
        for stem in [field_name(arm_id, class_id, "", part)]
        for name, value in sums.items()
    }


def merge_fields(cells: Cells, fields: Mapping[str, int]) -> int:
    """Adds stored fields into cells; returns how many had a name nobody understands."""
    unknown = 0
    for field, value in fields.items():
        match field.split("|"):
            case [arm, class_id, name]:
                part = ""
            case [arm, class_id, part, name] if 0 < len(part) <= MAX_PART:
                pass
            case _:
                unknown += 1
                continue
        cell = cells.setdefault((ArmId(arm), ClassId(class_id), SegmentId(part)), {})
        cell[name] = cell.get(name, 0) + value
    return unknown


def merge_cells(into: Cells, cells: Cells) -> None:
    """Adds cells to cells."""
    for key, fields in cells.items():
        target = into.setdefault(key, {})
        for name, value in fields.items():
            target[name] = target.get(name, 0) + value


def keep_largest_parts(cells: Cells, most: int = MAX_PARTS) -> None:
    """Takes out all but the largest parts; their requests stay in the whole of their class."""
    sizes: Counter[SegmentId] = Counter()
    for (_, _, part), fields in cells.items():
        if part and part != COPYING:
            sizes[part] += max(fields.get("n", 0), 0)
    if len(sizes) <= most:
        return
    ranked = sorted(sizes, key=lambda part: (-sizes[part], part))
    lost = set(ranked[most:])
    for key in [key for key in cells if key[2] in lost]:
        part = key[2]
        fields = cells.pop(key)
        if part.endswith(COPYING):  # the band stays known
            merge_cells(cells, {(key[0], key[1], SegmentId(COPYING)): fields})
