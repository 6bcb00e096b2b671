"""Collects increments in memory and adds them to the store, batch by batch.

The request path only ever touches a dictionary. While the store is away increments pile up by
cell, not by request, so memory stays bounded; they are added when it comes back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.estimators.cells import add_counts
from policies.estimators.increments import effect_fields
from policies.types import ArmId, ClassId
from router.clock import Clock
from router.estimates.layout import (
    COPYING,
    LATE_SLOTS,
    CellKey,
    Cells,
    SlotClock,
    merge_cells,
    slot_key,
    stored_fields,
    writer_key,
)
from router.stores.base import Batch, CounterStore
from router.types import POOLED, SegmentId

MAX_PENDING_FIELDS = 200_000

MAX_SLOT_PARTS = 64
"""Parts that this process adds to a slot of a route; requests of others count in their class."""

_Slots = dict[int, Cells]
"""Cells by slot; fields get their stored names only when they are sent."""

_Additions = Sequence[tuple[CellKey, Mapping[str, int]]]


@dataclass(slots=True)
class _Route:
    pending: _Slots
    number: int = 0
    """Of the last batch that was made."""
    parts: set[SegmentId] = field(default_factory=set)
    """Those of the slot `parts_slot`."""
    parts_slot: int = 0
    sent: _Slots | None = None
    """What that batch holds, for as long as the store has not confirmed it."""


class Writer:
    """The way of all learned sums into the store."""

    def __init__(
        self,
        store: CounterStore,
        clock: Clock,
        *,
        prefix: str,
        ttl_s: int,
        max_fields: int = MAX_PENDING_FIELDS,
    ) -> None:
        self._store = store
        self._slots = SlotClock(clock)
        self._prefix = prefix
        self.ttl_s = ttl_s
        """How long after the last addition sums are kept."""
        self._max_fields = max_fields
        self._name = secrets.token_hex(8)
        self._flushing = asyncio.Lock()
        self._routes: dict[str, _Route] = {}
        self._fields = 0
        self.dropped = 0
        """Increments that found no room."""
        self.refused = 0
        """Increments that the store refused because of what it held."""

    def add(
        self,
        model: str,
        arm_id: ArmId,
        class_id: ClassId,
        increments: Mapping[str, int],
        part: SegmentId = POOLED,
    ) -> None:
        """Adds the increments of one finished request, all or none; never waits.

        Args:
            model: The route.
            arm_id: The arm that was drawn.
            class_id: The class of the request.
            increments: What the request adds to its cell.
            part: The part of the class that it counts for as well (`layout.part_of`).
        """
        route = self._routes.get(model)
        if route is None:
            route = self._routes[model] = _Route({})
        number = self._slots.now()
        part = _with_room(route, number, part)
        effects = effect_fields(increments) if part else {}
        additions: _Additions = (
            ((arm_id, class_id, POOLED), increments),
            ((arm_id, class_id, part), effects),
        )
        most = len(increments) + len(effects)
        # Only where it might be too much, what is new is told from what is there.
        if self._fields + most > self._max_fields and not self._has_room(route, number, additions):
            # Half a request would leave a count without its sum.
            self.dropped += most
            return
        slot = route.pending.setdefault(number, {})
        for key, fields in additions:
            if fields:
                self._fields += _add(slot.setdefault(key, {}), fields)

    def _has_room(self, route: _Route, number: int, additions: _Additions) -> bool:
        slot = route.pending.get(number, {})
        new = (len(fields.keys() - slot.get(key, {}).keys()) for key, fields in additions)
        return self._fields + sum(new) <= self._max_fields

    def unconfirmed(self, model: str) -> Cells:
        """What this process has learned and the store has not confirmed, without slots."""
        cells: Cells = {}
        route = self._routes.get(model)
        if route is not None:
            for slots in (route.pending, route.sent or {}):
                for slot in slots.values():
                    merge_cells(cells, slot)
        return cells

    async def flush(self) -> None:
        """Sends what has piled up.

        Raises:
            StoreError: The store did not take it; nothing is lost, the next call sends it again.
        """
        self._slots.now()  # keeps up with time when nothing is added either
        async with self._flushing:
            for model, route in list(self._routes.items()):
                if route.sent is not None:
                    await self._send(model, route, route.sent)
                if route.pending:
                    route.sent, route.pending = route.pending, {}
                    route.number += 1
                    await self._send(model, route, route.sent)

    async def _send(self, model: str, route: _Route, sent: _Slots) -> None:
        # Sealed slots are never read again, so what comes late goes into a slot that is open.
        # If an earlier try of this batch did arrive, the store ignores this one whatever it holds.
        earliest = self._slots.now() - LATE_SLOTS
        deltas: dict[str, dict[str, int]] = {}
        for slot, cells in sent.items():
            key = slot_key(self._prefix, model, max(slot, earliest))
            fields = stored_fields(cells)
            deltas[key] = add_counts(deltas[key], fields) if key in deltas else fields
        batch = Batch(writer_key(self._prefix, model, self._name), route.number)
        self.refused += await self._store.add(batch, deltas, self.ttl_s)
        self._fields -= sum(len(fields) for cells in sent.values() for fields in cells.values())
        route.sent = None


def _add(cell: dict[str, int], fields: Mapping[str, int]) -> int:
    """Adds fields to a cell; returns how many are new there."""
    known = len(cell)
    for name, value in fields.items():
        cell[name] = cell.get(name, 0) + value
    return len(cell) - known


def _with_room(route: _Route, slot: int, part: SegmentId) -> SegmentId:
    """The part, or its copy band alone when the slot has too many segments."""
    if part in (POOLED, COPYING):
        return part
    if slot != route.parts_slot:
        route.parts_slot, route.parts = slot, set()
    if part not in route.parts and len(route.parts) >= MAX_SLOT_PARTS:
        return SegmentId(COPYING) if part.endswith(COPYING) else POOLED
    route.parts.add(part)
    return part
