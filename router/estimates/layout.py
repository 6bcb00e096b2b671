"""How sums are laid out in the store: one hash for each route and slot of ten seconds.

Key    `{PREFIX:MODEL}:v1:slot:NUMBER`; the braces keep a route's keys in one slot of a cluster.
Writer `{PREFIX:MODEL}:v1:writer:NAME` holds the number of a writer's last batch.
Field  `ARM|CLASS|NAME`, the names being those of `policies.estimators.cells`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from policies.types import ArmId, ClassId
from router.clock import Clock

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

Cells = dict[tuple[ArmId, ClassId], dict[str, int]]


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


def field_name(arm_id: ArmId, class_id: ClassId, name: str) -> str:
    """Field of one sum."""
    return f"{arm_id}|{class_id}|{name}"


def merge_fields(cells: Cells, fields: Mapping[str, int]) -> int:
    """Adds stored fields into cells; returns how many had a name nobody understands."""
    unknown = 0
    for field, value in fields.items():
        arm, _, rest = field.partition("|")
        class_id, found, name = rest.partition("|")
        if not found:
            unknown += 1
            continue
        cell = cells.setdefault((ArmId(arm), ClassId(class_id)), {})
        cell[name] = cell.get(name, 0) + value
    return unknown


def merge_cells(into: Cells, cells: Cells) -> None:
    """Adds cells to cells."""
    for key, fields in cells.items():
        target = into.setdefault(key, {})
        for name, value in fields.items():
            target[name] = target.get(name, 0) + value
