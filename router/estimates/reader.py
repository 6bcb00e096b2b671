"""Reads slots back and keeps the folded past of one route in memory.

Each sealed slot is read once and folded into its block; the open ones are read every time. When
the store is away the past stays as it was last seen, and this process's own unconfirmed sums
still count, so learning goes on. Of classes, arms and parts only the largest of each block are
kept, whatever the store holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router.errors import StoreError
from router.estimates.history import History, cells_of
from router.estimates.layout import (
    OPEN_SLOTS,
    SLOT_S,
    SLOTS_PER_BLOCK,
    Cells,
    RouteKeys,
    keep_largest,
    merge_cells,
)
from router.estimates.writer import Writer
from router.stores.base import CounterStore


@dataclass(frozen=True, slots=True)
class Past:
    """All sums inside the window, by block; the newest block is the one still growing."""

    blocks: Mapping[int, Cells]
    newest_block: int
    complete: frozenset[int]
    """Blocks that will not change any more."""


class Reader:
    """The way of sums back from the store, for one route."""

    def __init__(
        self,
        store: CounterStore,
        writer: Writer,
        *,
        prefix: str,
        model: str,
        window_s: int,
    ) -> None:
        self._store = store
        self._writer = writer
        self._slots = writer.slots
        self._keys = RouteKeys(prefix, model)
        self._model = model
        self.history = History(store, writer.slots, prefix=prefix, model=model)
        """What lies beyond the window, and when tokens were made."""
        self._window_slots = max(OPEN_SLOTS, window_s // SLOT_S)
        self._sealed: dict[int, Cells] = {}
        self._open: dict[int, Cells] = {}
        self._next: int | None = None
        """First slot that has not been sealed here."""
        self._turned_back = 0
        self.unknown_fields = 0
        """Stored fields whose name nobody understands."""

    async def refresh(self) -> Past:
        """Reads what may have changed.

        Raises:
            StoreError: The store did not answer; `past` still gives what is known.
        """
        current = self._slots.now()
        if self._slots.turned_back != self._turned_back:
            # What was sealed ahead of time is written to again; the store knows all of it.
            self._turned_back = self._slots.turned_back
            self._sealed, self._next = {}, None
        oldest = current - self._window_slots
        first = oldest if self._next is None else max(self._next, oldest)
        slots = range(first, current + 1)
        replies = await self._store.read([self._keys.slot(slot) for slot in slots])
        if len(replies) != len(slots):
            raise StoreError("the store answered for another number of slots than asked")
        # Put in place at once at the end: whoever asks for the past meanwhile gets the one before.
        newly_sealed: dict[int, Cells] = {}
        still_open: dict[int, Cells] = {}
        unknown_sealed = 0
        for slot, fields in zip(slots, replies, strict=True):
            slot_cells, unknown = await cells_of(fields)
            block = slot // SLOTS_PER_BLOCK
            if slot <= current - OPEN_SLOTS:
                if block not in newly_sealed:
                    newly_sealed[block] = _copied(self._sealed.get(block, {}))
                cells = newly_sealed[block]
                unknown_sealed += unknown
            else:
                cells = still_open.setdefault(block, {})
            merge_cells(cells, slot_cells)
            keep_largest(cells)
        self._sealed.update(newly_sealed)
        self._open = still_open
        self._next = max(first, current - OPEN_SLOTS + 1)
        self.unknown_fields += unknown_sealed
        self._forget(oldest)
        return self.past()

    def past(self) -> Past:
        """What is known now: sealed and open slots, and this process's unconfirmed sums.

        A batch that was on its way while the store was read may be missing or show twice until
        the next refresh.
        """
        newest = self._slots.now() // SLOTS_PER_BLOCK
        blocks: dict[int, Cells] = dict(self._sealed)
        for block, cells in self._open.items():
            _overlay(blocks, block, cells)
        unconfirmed = self._writer.unconfirmed(self._model)
        if unconfirmed:
            _overlay(blocks, newest, unconfirmed)
        complete = frozenset(
            block
            for block in blocks
            if self._next is not None and (block + 1) * SLOTS_PER_BLOCK <= self._next
        )
        return Past(blocks, newest, complete)

    def _forget(self, oldest_slot: int) -> None:
        for block in [b for b in self._sealed if b < oldest_slot // SLOTS_PER_BLOCK]:
            del self._sealed[block]


def _overlay(blocks: dict[int, Cells], block: int, cells: Cells) -> None:
    """Adds cells to a block without touching the cells it shares with the sealed past."""
    merged = _copied(blocks.get(block, {}))
    merge_cells(merged, cells)
    keep_largest(merged)
    blocks[block] = merged


def _copied(cells: Cells) -> Cells:
    return {key: dict(fields) for key, fields in cells.items()}
