"""How sums are laid out in the store: one hash for each route and stretch of time.

All keys of a route begin with `{PREFIX:MODEL}:v2:`; the braces keep them in one slot of a cluster,
and another version of the layout has other keys.

=============== ==================== ================================== ========================
key             of                   fields                             kept
=============== ==================== ================================== ========================
`slot:N`        10 s                 `ARM|CLASS|NAME`,                  the window and a little
                                     `ARM|CLASS|PART|NAME`
`hour:N`        an hour              `ARM|CLASS|NAME`                   9 days
`month:YYYY-MM` a month, UTC         `TENANT|NAME`                      400 days
`made:N`        10 s                 `ARM|CLASS`: tokens made in them   as slots
`writer:NAME`   a writer             number of its last batch, a text   9 days
=============== ==================== ================================== ========================

`ARM|CLASS|NAME` is the whole of a class, the names being those of `policies.estimators.cells`;
`ARM|CLASS|PART|NAME` counts some of these requests again, by segment and copy band, or by load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from policies.types import ArmId, ClassId
from router.types import POOLED, SegmentId

_VERSION = "v2"

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

SLOTS_PER_HOUR = 3600 // SLOT_S

HOUR_TTL_S = 9 * 86_400
"""Reports look back eight days."""

MONTH_TTL_S = 400 * 86_400
"""A year, and the month it began in."""

MADE_SLOTS = 30
"""Slots before the current one whose made tokens may still grow: a stream of five minutes tells at
its end when its tokens were made."""

MAX_PART = 40
"""Longest name of a part that is kept."""

MAX_PARTS = 128
"""Parts that a reader keeps of a block; the largest, over all classes."""

MAX_CLASSES = 128
"""Classes that a reader keeps of a stretch of time; the largest."""

MAX_ARMS = 64
"""Arms that a reader keeps of a stretch of time; the largest."""

MAX_NAMES = 8192
"""Sums that a reader keeps of a cell; one has some three thousand names at most, a third of them by
lean with five arms, and a side of an experiment three thousand more, by bucket
(`router.experiments.cells`)."""

COPY_SHARE = 0.5
"""Expected share of the answer that repeats the request from which on it counts as copying."""

COPYING = "+"
"""Ends the name of a part whose requests have answers that mostly repeat the request."""

CellKey = tuple[ArmId, ClassId, SegmentId]
"""Arm, class and part; the part `POOLED` is the whole class."""

Cells = dict[CellKey, dict[str, int]]

LOAD = "~"
"""Begins the name of a part that is a band of load: `~0`, `~1`, …; they are few and always kept."""


COMMON = ClassId("*")
"""Class of the cells that hold what is an arm's and of no class: how long steps and prefill take,
by band of load. No class of requests can be called so."""


def slot_at(wall: float) -> int:
    """Number of the slot that contains a wall time."""
    return int(wall // SLOT_S)


class RouteKeys:
    """The keys of one route."""

    def __init__(self, prefix: str, model: str) -> None:
        # Model names may hold braces, which would end the hash tag early.
        self._stem = f"{{{prefix}:{quote(model, safe='/')}}}:{_VERSION}:"

    def slot(self, slot: int) -> str:
        """Of what is told apart by slot."""
        return f"{self._stem}slot:{slot}"

    def hour(self, hour: int) -> str:
        """Of an hour; `slot // SLOTS_PER_HOUR` is the hour of a slot."""
        return f"{self._stem}hour:{hour}"

    def month(self, month: str) -> str:
        """Of a month, as `month_of` names it."""
        return f"{self._stem}month:{month}"

    def made(self, slot: int) -> str:
        """Of the tokens made in a slot."""
        return f"{self._stem}made:{slot}"

    def writer(self, name: str) -> str:
        """Of the number of a writer's last batch."""
        return f"{self._stem}writer:{name}"


def clock_key(prefix: str) -> str:
    """Names the server whose clock all processes go by; nothing is kept there."""
    return f"{{{prefix}}}:{_VERSION}:clock"


def month_of(slot: int) -> str:
    """The month in which a slot lies, by UTC.

    Example:
        >>> month_of(slot_at(1_800_000_000.0))
        '2027-01'
    """
    return datetime.fromtimestamp(slot * SLOT_S, UTC).strftime("%Y-%m")


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


def stored_increments(cells: Cells) -> dict[str, dict[str, int]]:
    """Cells as increments of one hash; `merge_fields` reads the fields back."""
    return {
        field_name(arm_id, class_id, "", part): sums
        for (arm_id, class_id, part), sums in cells.items()
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
        if name not in cell and len(cell) >= MAX_NAMES:
            unknown += 1
            continue
        cell[name] = cell.get(name, 0) + value
    return unknown


def merge_cells(into: Cells, cells: Cells) -> None:
    """Adds cells to cells."""
    for key, fields in cells.items():
        target = into.setdefault(key, {})
        for name, value in fields.items():
            target[name] = target.get(name, 0) + value


def keep_largest(cells: Cells, most_parts: int = MAX_PARTS) -> None:
    """Takes out all but the largest classes, arms and parts, whatever a store is full of.

    What a part loses stays in the whole of its class; a band of load always stays.
    """
    if len(cells) <= min(MAX_ARMS, MAX_CLASSES, most_parts):
        return
    for position, most in ((0, MAX_ARMS), (1, MAX_CLASSES)):
        whole: Counter[str] = Counter()
        for key, fields in cells.items():
            whole[key[position]] += 0 if key[2] else max(fields.get("n", 0), 0)
        whole.pop(COMMON, None)
        lost = _beyond(whole, most)
        for key in [key for key in cells if key[position] in lost]:
            del cells[key]
    sizes: Counter[str] = Counter()
    for (_, _, part), fields in cells.items():
        if part not in _ALWAYS_KEPT:
            sizes[part] += max(fields.get("n", 0), 0)
    lost = _beyond(sizes, most_parts)
    for key in [key for key in cells if key[2] in lost]:
        fields = cells.pop(key)
        if key[2].endswith(COPYING):  # the band stays known
            merge_cells(cells, {(key[0], key[1], SegmentId(COPYING)): fields})


_ALWAYS_KEPT = frozenset((POOLED, COPYING, *(f"{LOAD}{band}" for band in range(10))))


def _beyond(sizes: Mapping[str, int], most: int) -> frozenset[str]:
    """Names that are not among the largest."""
    if len(sizes) <= most:
        return frozenset()
    return frozenset(sorted(sizes, key=lambda name: (-sizes[name], name))[most:])
