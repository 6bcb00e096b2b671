"""Collects increments in memory and adds them to the store, batch by batch.

The request path only ever touches lists and dictionaries. While the store is away increments pile
up by cell, not by request, so memory stays bounded; they are added when it comes back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from policies.estimators.increments import effect_fields
from router.breath import breathe
from router.clock import Clock
from router.errors import StoreError
from router.estimates.layout import (
    HOUR_TTL_S,
    MADE_SLOTS,
    Cells,
    RouteKeys,
    clock_key,
    merge_cells,
    month_of,
)
from router.estimates.learned import Learned
from router.estimates.made import Made, spread
from router.estimates.pending import Bounds, Pending, with_totals
from router.estimates.slot_clock import SlotClock
from router.stores.base import Batch, CounterStore
from router.types import POOLED

MAX_PENDING_FIELDS = 200_000

_MANY = 1000
"""More than any request adds."""

MAX_DEFERRED = 512
"""Requests whose sums are worked out later: as many as there are between two flushes of a busy
process, since each costs less the more come in a row."""

_DEFERRED_PER_STEP = 32
"""Worked out without a pause: about a millisecond, then requests get their turn."""


@dataclass(slots=True)
class _Route:
    keys: RouteKeys
    pending: Pending = field(default_factory=Pending)
    bounds: Bounds = field(default_factory=Bounds)
    number: int = 0
    """Of the last batch that was made."""
    sent: Pending | None = None
    """What that batch holds, for as long as the store has not confirmed it."""
    first_sent_s: float = 0.0
    """When that batch was first sent; monotonic clock."""


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
        self.slots = SlotClock(clock)
        """Which slot it is; whoever reads goes by the same."""
        self._prefix = prefix
        self.ttl_s = ttl_s
        """How long after the last addition slots are kept."""
        self._max_fields = max_fields
        self._name = secrets.token_hex(8)
        self._flushing = asyncio.Lock()
        self._routes: dict[str, _Route] = {}
        self._fields = 0
        self._deferred: list[Callable[[], Learned | None]] = []
        self._deferred_slot = 0
        self._month, self._month_slot = "", -1
        self.dropped = 0
        """Increments that found no room."""
        self.refused = 0
        """Increments that the store refused because of what it held."""
        self.late_made_tokens = 0
        """Tokens that nobody was told of when they were made, because that was too long ago."""

    @property
    def waiting(self) -> int:
        """Increments that the store has not confirmed."""
        return self._fields

    def defer(self, work_out: Callable[[], Learned | None]) -> None:
        """Takes a finished request whose sums are worked out later; never waits.

        Many at a time they cost less than one by one, between which the processor forgets how to.

        Args:
            work_out: Gives what the request adds; must not raise. None adds nothing.
        """
        slot = self.slots.now()
        if slot != self._deferred_slot:
            self.work_out()
            self._deferred_slot = slot
        elif len(self._deferred) >= MAX_DEFERRED:
            self.work_out(_DEFERRED_PER_STEP)
        self._deferred.append(work_out)

    def work_out(self, most: int = MAX_DEFERRED) -> None:
        """Works out the sums of deferred requests, the oldest first."""
        deferred, self._deferred = self._deferred[:most], self._deferred[most:]
        for work_out in deferred:
            learned = work_out()
            if learned is not None:
                self._add(self._deferred_slot, learned)

    def add(self, learned: Learned) -> None:
        """Adds the increments of one finished request, all or none; never waits."""
        self._add(self.slots.now(), learned)

    def unconfirmed(self, model: str) -> Cells:
        """What this process has learned and the store has not confirmed, without slots."""
        self.work_out()
        cells: Cells = {}
        route = self._routes.get(model)
        if route is not None:
            for pending in (route.pending, route.sent):
                for slot in pending.slots.values() if pending is not None else ():
                    merge_cells(cells, slot)
        return with_totals(cells)

    async def flush(self) -> None:
        """Sends what has piled up.

        Raises:
            StoreError: The store did not take it; nothing is lost, the next call sends it again.
        """
        async with self._flushing:
            # Of what is there now: under load there is always more, which has time until the next.
            for _ in range(0, len(self._deferred), _DEFERRED_PER_STEP):
                self.work_out(_DEFERRED_PER_STEP)
                await breathe()
            if self._fields and not self.slots.compared:
                await self.compare_clocks()
            now = self.slots.now()  # keeps up with time when nothing is added either
            for route in list(self._routes.values()):
                self._fold(route, now)
                if route.sent is not None:
                    await self._send(route, route.sent)
                if route.pending:
                    route.sent, route.pending = route.pending, Pending()
                    route.number += 1
                    route.first_sent_s = self._clock.monotonic()
                    await self._send(route, route.sent)

    async def compare_clocks(self) -> bool:
        """Asks the store what time it is; whether it told."""
        try:
            await self.slots.compare(self._store, clock_key(self._prefix))
        except StoreError:
            return False
        return True

    # --- One request --------------------------------------------------------------------------

    def _add(self, slot: int, learned: Learned) -> None:
        route = self._routes.get(learned.model)
        if route is None:
            keys = RouteKeys(self._prefix, learned.model)
            route = self._routes[learned.model] = _Route(keys)
        arm_id, class_id, sums = learned.arm_id, learned.class_id, learned.sums
        cells = [((arm_id, class_id, POOLED), sums), *learned.also]
        part = route.bounds.part(slot, learned.part)
        if part:
            effects = effect_fields(sums) if learned.effects is None else learned.effects
            cells.append(((arm_id, class_id, part), effects))
        ledger = learned.ledger or {}
        made = () if learned.made is None else self._spread(slot, learned.made)
        pending = route.pending
        # Only where it might be too much, what is new is told from what is there.
        if self._fields + _MANY > self._max_fields:
            others = len(ledger) + len(made)
            if self._fields + pending.new_fields(slot, cells) + others > self._max_fields:
                # Half a request would leave a count without its sum.
                self.dropped += sum(len(of) for _, of in cells) + others
                return
        before = pending.fields
        pending.add(slot, cells)
        if ledger:
            month = self._month_of(slot)
            pending.add_ledger(month, route.bounds.tenant(month, learned.tenant), ledger)
        for when, tokens in made:
            pending.add_made(when, (arm_id, class_id), tokens)
        self._fields += pending.fields - before

    def _spread(self, slot: int, made: Made) -> list[tuple[int, int]]:
        """Tokens by slot, without those made so long ago that their slot is closed."""
        wrong_s = self.slots.behind_host_s()
        if wrong_s:
            made = Made(made.tokens, made.first_s - wrong_s, made.last_s - wrong_s)
        found = []
        for when, tokens in spread(made):
            if when < slot - MADE_SLOTS:
                self.late_made_tokens += tokens
            elif tokens:
                found.append((min(when, slot), tokens))
        return found

    def _month_of(self, slot: int) -> str:
        if slot != self._month_slot:
            self._month, self._month_slot = month_of(slot), slot
        return self._month

    # --- One batch ----------------------------------------------------------------------------

    def _fold(self, route: _Route, now: int) -> None:
        for pending in (route.pending, route.sent):
            if pending is not None:
                before = pending.fields
                self.late_made_tokens += pending.fold(now)
                self._fields -= before - pending.fields

    async def _send(self, route: _Route, sent: Pending) -> None:
        if self._clock.monotonic() - route.first_sent_s >= HOUR_TTL_S:
            # The store may have added it and forgotten since that it has.
            self.dropped += sent.fields
        else:
            # If an earlier try did arrive, the store ignores this one whatever it holds.
            batch = Batch(route.keys.writer(self._name), route.number, HOUR_TTL_S)
            additions = sent.additions(route.keys, self.slots.now(), self.ttl_s)
            self.refused += await self._store.add(batch, additions)
        self._fields -= sent.fields
        route.sent = None
