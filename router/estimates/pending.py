"""What a route has learned and the store has not confirmed: sums by cell, never by request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policies.estimators import increments
from policies.types import ArmId, ClassId, Counts
from router.estimates.layout import (
    COPYING,
    HOUR_TTL_S,
    LATE_SLOTS,
    MADE_SLOTS,
    MONTH_TTL_S,
    SLOTS_PER_HOUR,
    CellKey,
    Cells,
    RouteKeys,
    merge_cells,
    stored_increments,
)
from router.estimates.ledger import MAX_TENANTS, OTHER
from router.stores.base import Addition
from router.types import POOLED, SegmentId, TenantId

MAX_SLOT_PARTS = 64
"""Parts that this process adds to a slot of a route; requests of others count in their class."""

CellSums = Iterable[tuple[CellKey, Counts]]


def with_totals(cells: Cells) -> Cells:
    """Cells as they are stored: log costs by kind are added up from those by moment.

    Once for all requests of a cell, because a request that adds to both adds a fifth more.
    """
    return {key: increments.with_totals(sums) for key, sums in cells.items()}


@dataclass(slots=True)
class Pending:
    """Sums by what they will be stored under; log costs by moment alone until they are."""

    slots: dict[int, Cells] = field(default_factory=dict)
    """By the slot in which a request ended."""
    months: dict[str, dict[TenantId, dict[str, int]]] = field(default_factory=dict)
    made: dict[int, dict[tuple[ArmId, ClassId], int]] = field(default_factory=dict)
    fields: int = 0
    """How many sums there are."""

    def __bool__(self) -> bool:
        """Whether anything is to be stored."""
        return bool(self.fields)

    def add(self, slot: int, cells: CellSums) -> None:
        """Adds to cells of a slot."""
        there = self.slots.get(slot)
        if there is None:
            there = self.slots[slot] = {}
        for key, sums in cells:
            cell = there.get(key)
            if cell is None:
                there[key] = dict(sums)
                self.fields += len(sums)
            else:
                self.fields += _add(cell, sums)

    def add_ledger(self, month: str, tenant: TenantId, counts: Counts) -> None:
        """Adds to a tenant's month."""
        tenants = self.months.setdefault(month, {})
        there = tenants.get(tenant)
        if there is None:
            tenants[tenant] = dict(counts)
            self.fields += len(counts)
        else:
            self.fields += _add_known(there, counts)

    def add_made(self, slot: int, key: tuple[ArmId, ClassId], tokens: int) -> None:
        """Adds tokens that were made in a slot."""
        there = self.made.setdefault(slot, {})
        self.fields += key not in there
        there[key] = there.get(key, 0) + tokens

    def new_fields(self, slot: int, cells: CellSums) -> int:
        """How many sums there would be more."""
        there = self.slots.get(slot, {})
        return sum(len(sums.keys() - there.get(key, {}).keys()) for key, sums in cells)

    def fold(self, now: int) -> int:
        """Puts together what the store will be told as one: an outage costs hours, not slots.

        Returns:
            Tokens made so long ago that nobody wants to be told any more.
        """
        old = sorted(slot for slot in self.slots if slot < now - LATE_SLOTS)
        gone = [slot for slot in self.made if slot < now - MADE_SLOTS]
        if not old and not gone:
            return 0
        first: dict[int, int] = {}
        for slot in old:
            kept = first.setdefault(slot // SLOTS_PER_HOUR, slot)
            if kept != slot:
                merge_cells(self.slots[kept], self.slots.pop(slot))
        oldest, *later = first.values() or (0,)
        for slot in later:
            # Parts belong to no hour: whenever they are told, they go into a slot that is open.
            cells = self.slots[slot]
            parts = {of: sums for of, sums in cells.items() if of[2]}
            if parts:
                merge_cells(self.slots[oldest], parts)
                self.slots[slot] = {of: sums for of, sums in cells.items() if not of[2]}
        late = sum(sum(self.made.pop(slot).values()) for slot in gone)
        self.fields = (
            sum(len(sums) for cells in self.slots.values() for sums in cells.values())
            + sum(len(counts) for by in self.months.values() for counts in by.values())
            + sum(map(len, self.made.values()))
        )
        return late

    def additions(self, keys: RouteKeys, now: int, ttl_s: int) -> Sequence[Addition]:
        """What the store is told.

        Sealed slots are never read again, so what comes late goes into a slot that is open; an hour
        takes what belongs to it.
        """
        found = []
        for slot, raw in self.slots.items():
            cells = with_totals(raw)
            dated = min(slot, now)
            key = keys.slot(max(dated, now - LATE_SLOTS))
            hour = keys.hour(dated // SLOTS_PER_HOUR)
            whole = {of: sums for of, sums in cells.items() if not of[2]}
            found.append(Addition(stored_increments(whole), {key: ttl_s, hour: HOUR_TTL_S}))
            if len(whole) < len(cells):
                parts = {of: sums for of, sums in cells.items() if of[2]}
                found.append(Addition(stored_increments(parts), {key: ttl_s}))
        for month, tenants in self.months.items():
            ledger = {f"{tenant}|": counts for tenant, counts in tenants.items()}
            found.append(Addition(ledger, {keys.month(month): MONTH_TTL_S}))
        for slot, made in self.made.items():
            tokens: dict[str, dict[str, int]] = {}
            for (arm_id, class_id), n in made.items():
                tokens.setdefault(f"{arm_id}|", {})[class_id] = n
            found.append(Addition(tokens, {keys.made(min(slot, now)): ttl_s}))
        return found


class Bounds:
    """Keeps what clients decide about from growing without end, for one route."""

    def __init__(self) -> None:
        self._parts: set[SegmentId] = set()
        self._slot = 0
        self._tenants: set[TenantId] = set()
        self._month = ""

    def part(self, slot: int, part: SegmentId) -> SegmentId:
        """The part, or its copy band alone when the slot has too many segments."""
        if part in (POOLED, COPYING):
            return part
        if slot != self._slot:
            self._slot, self._parts = slot, set()
        if part not in self._parts and len(self._parts) >= MAX_SLOT_PARTS:
            return SegmentId(COPYING) if part.endswith(COPYING) else POOLED
        self._parts.add(part)
        return part

    def tenant(self, month: str, tenant: TenantId) -> TenantId:
        """The tenant, or all others together when the month has too many."""
        if month != self._month:
            self._month, self._tenants = month, set()
        if tenant not in self._tenants:
            if len(self._tenants) >= MAX_TENANTS:
                return OTHER
            self._tenants.add(tenant)
        return tenant


def _add_known(cell: dict[str, int], fields: Mapping[str, int]) -> int:
    """The same where nearly all are there already: takes less for these, and more for new ones."""
    known = len(cell)
    for name, value in fields.items():
        try:
            cell[name] += value
        except KeyError:
            cell[name] = value
    return len(cell) - known


def _add(cell: dict[str, int], fields: Mapping[str, int]) -> int:
    """Adds fields to a cell; returns how many are new there."""
    known = len(cell)
    get = cell.get
    for name, value in fields.items():
        cell[name] = get(name, 0) + value
    return len(cell) - known
