"""Collects increments in memory and adds them to the store, batch by batch.

The request path only ever touches a dictionary. While the store is away increments pile up by
cell, not by request, so memory stays bounded; they are added when it comes back.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from policies.types import ArmId, ClassId
from router.clock import Clock
from router.errors import StoreError
from router.estimates.layout import (
    LATE_SLOTS,
    Cells,
    batch_key,
    field_name,
    merge_fields,
    slot_at,
    slot_key,
)
from router.stores.base import CounterStore

MAX_PENDING_FIELDS = 200_000

_Slots = dict[int, dict[str, int]]


@dataclass(slots=True)
class _Route:
    pending: _Slots
    batch: str | None = None
    sent: _Slots | None = None
    """What `batch` holds, for as long as the store has not confirmed it."""


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
        self._clock = clock
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._max_fields = max_fields
        self._routes: dict[str, _Route] = {}
        self._fields = 0
        self.dropped = 0
        """Increments that found no room."""
        self.refused = 0
        """Increments that the store refused because of what it held."""

    def add(
        self, model: str, arm_id: ArmId, class_id: ClassId, increments: Mapping[str, int]
    ) -> None:
        """Adds the increments of one finished request; never waits."""
        route = self._routes.setdefault(model, _Route({}))
        slot = route.pending.setdefault(slot_at(self._clock.wall()), {})
        for name, value in increments.items():
            field = field_name(arm_id, class_id, name)
            known = slot.get(field)
            if known is None:
                if self._fields >= self._max_fields:
                    self.dropped += 1
                    continue
                self._fields += 1
            slot[field] = (known or 0) + value

    def unconfirmed(self, model: str) -> Cells:
        """What this process has learned and the store has not confirmed, without slots."""
        cells: Cells = {}
        route = self._routes.get(model)
        if route is not None:
            for slots in (route.pending, route.sent or {}):
                for fields in slots.values():
                    merge_fields(cells, fields)
        return cells

    async def flush(self) -> None:
        """Sends what has piled up.

        Raises:
            StoreError: The store did not take it; nothing is lost, the next call sends it again.
        """
        for model, route in self._routes.items():
            if route.sent is not None:
                await self._send(model, route)
            if route.pending:
                route.sent, route.pending = route.pending, {}
                route.batch = secrets.token_hex(8)
                await self._send(model, route)

    async def _send(self, model: str, route: _Route) -> None:
        if route.sent is None or route.batch is None:
            raise StoreError("nothing to send")
        # Sealed slots are never read again, so what comes late goes into a slot that is open.
        # If an earlier try of this batch did arrive, the store ignores this one whatever it holds.
        earliest = slot_at(self._clock.wall()) - LATE_SLOTS
        deltas: dict[str, dict[str, int]] = {}
        for slot, fields in route.sent.items():
            target = deltas.setdefault(slot_key(self._prefix, model, max(slot, earliest)), {})
            for field, value in fields.items():
                target[field] = target.get(field, 0) + value
        self.refused += await self._store.add(
            batch_key(self._prefix, model, route.batch), deltas, self._ttl_s
        )
        self._fields -= sum(len(fields) for fields in route.sent.values())
        route.sent = route.batch = None
