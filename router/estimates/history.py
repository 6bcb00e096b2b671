"""Reads back what is not told apart by slot: hours, months, and when tokens were made.

Hours and months are read when somebody asks; nothing on the way to a plan needs them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice

from policies.types import ArmId, ClassId
from router.breath import breathe
from router.errors import StoreError
from router.estimates.layout import (
    MADE_SLOTS,
    OPEN_SLOTS,
    SLOT_S,
    SLOTS_PER_HOUR,
    Cells,
    RouteKeys,
    keep_largest,
    merge_fields,
    slot_at,
)
from router.estimates.ledger import OTHER
from router.estimates.slot_clock import SlotClock
from router.stores.base import CounterStore
from router.types import TenantId

HOURS = 8 * 24
"""How far back hours are read: they are kept for a day longer."""

_HOUR_S = 3600

_OPEN_HOURS = 2
"""The current hour and the one before it may grow as a matter of course."""

_FRESH_S = 10.0
"""Judgement: who looks at days does not mind it, and a page that is loaded again costs nothing."""

MAX_TENANTS = 1000
"""Tenants of a month that are read; the largest, the rest goes to `OTHER`."""

MAX_MADE = 1000
"""Pairs of arm and class that are read of a slot."""


_FIELDS_PER_STEP = 2000


async def cells_of(fields: Mapping[str, int]) -> tuple[Cells, int]:
    """Cells of a stretch of time, and how many fields nobody understands; requests get turns."""
    cells: Cells = {}
    unknown = 0
    rest = iter(fields.items())
    while piece := dict(islice(rest, _FIELDS_PER_STEP)):
        unknown += merge_fields(cells, piece)
        if len(piece) == _FIELDS_PER_STEP:
            await breathe()
    return cells, unknown


class History:
    """The past of one route beyond its window."""

    def __init__(self, store: CounterStore, slots: SlotClock, *, prefix: str, model: str) -> None:
        self._store = store
        self._slots = slots
        self._keys = RouteKeys(prefix, model)
        self._hours: dict[int, Cells] = {}
        self._read_at: dict[int, float] = {}
        self.unknown_fields = 0
        """Stored fields whose name nobody understands."""

    async def read_hours(self, since: float, before: float | None = None) -> Mapping[int, Cells]:
        """Whole classes by hour, the current one included; `hour * 3600` is when it began.

        Past hours are asked for once an hour, since a process that was cut off may add to them.

        Args:
            since: Seconds since the epoch; at most eight days ago count.
            before: Hours that began then or later are left out; None for no such time.

        Raises:
            StoreError: The store did not answer.
        """
        now = self._slots.wall()
        current = self._slots.now() // SLOTS_PER_HOUR
        first = max(slot_at(since) // SLOTS_PER_HOUR, current - HOURS + 1)
        end = current + 1 if before is None else min(current + 1, math.ceil(before / _HOUR_S))
        wanted = range(first, end)
        stale = [hour for hour in wanted if not self._fresh(hour, current, now)]
        replies = await self._asked([self._keys.hour(hour) for hour in stale])
        for hour, fields in zip(stale, replies, strict=True):
            cells, unknown = await cells_of(fields)
            self.unknown_fields += unknown
            keep_largest(cells)
            self._hours[hour], self._read_at[hour] = cells, now
            await breathe()  # requests get their turn
        for hour in [hour for hour in self._hours if not current - HOURS < hour <= current]:
            del self._hours[hour], self._read_at[hour]
        return {hour: self._hours[hour] for hour in wanted}

    async def read_slots(self, slots: Sequence[int]) -> Mapping[int, Cells]:
        """Whole classes and their parts, for each of some slots; nothing is kept.

        Raises:
            StoreError: The store did not answer.
        """
        replies = await self._asked([self._keys.slot(slot) for slot in slots])
        found: dict[int, Cells] = {}
        for slot, fields in zip(slots, replies, strict=True):
            cells, unknown = await cells_of(fields)
            self.unknown_fields += unknown
            keep_largest(cells)
            found[slot] = cells
            await breathe()
        return found

    async def read_month(self, month: str) -> Mapping[TenantId, Mapping[str, int]]:
        """Each tenant's sums of a month, by what `ledger` lists.

        Args:
            month: As `layout.month_of` names it.

        Raises:
            StoreError: The store did not answer.
        """
        [fields] = await self._asked([self._keys.month(month)])
        tenants: dict[TenantId, dict[str, int]] = {}
        for name, value in fields.items():
            tenant, separator, of = name.partition("|")
            if not separator or "|" in of:
                self.unknown_fields += 1
                continue
            tenants.setdefault(TenantId(tenant), {})[of] = value
        ranked = sorted(tenants, key=lambda tenant: (-tenants[tenant].get("n", 0), tenant))
        for tenant in ranked[MAX_TENANTS:]:
            pooled = tenants.setdefault(OTHER, {})
            if tenant != OTHER:
                for of, value in tenants.pop(tenant).items():
                    pooled[of] = pooled.get(of, 0) + value
        return tenants

    @property
    def settled_made(self) -> int:
        """The last slot whose made tokens will not change any more."""
        return self._slots.now() - MADE_SLOTS - OPEN_SLOTS

    async def read_made(
        self, slots: Sequence[int]
    ) -> Mapping[int, Mapping[tuple[ArmId, ClassId], int]]:
        """Tokens by arm and class, for each of some slots.

        Args:
            slots: None later than `settled_made`: read once, they never have to be read again.

        Raises:
            ValueError: One is later.
            StoreError: The store did not answer.
        """
        if slots and max(slots) > self.settled_made:
            raise ValueError(f"slot {max(slots)} may still grow")
        replies = await self._asked([self._keys.made(slot) for slot in slots])
        return {slot: self._made(fields) for slot, fields in zip(slots, replies, strict=True)}

    def _made(self, fields: Mapping[str, int]) -> Mapping[tuple[ArmId, ClassId], int]:
        made: dict[tuple[ArmId, ClassId], int] = {}
        for name, tokens in fields.items():
            arm, separator, class_id = name.partition("|")
            if not separator or "|" in class_id or tokens < 0 or len(made) >= MAX_MADE:
                self.unknown_fields += 1
            else:
                made[ArmId(arm), ClassId(class_id)] = tokens
        return made

    def _fresh(self, hour: int, current: int, now: float) -> bool:
        read_at = self._read_at.get(hour)
        if read_at is None:
            return False
        may_grow = hour > current - _OPEN_HOURS
        since = now - _FRESH_S if may_grow else current * SLOTS_PER_HOUR * SLOT_S
        return since <= read_at <= now

    async def _asked(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        replies = await self._store.read(keys)
        if len(replies) != len(keys):
            raise StoreError("the store answered for another number of keys than asked")
        return replies
