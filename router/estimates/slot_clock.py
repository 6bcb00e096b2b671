"""Which slot it is, by the clock of the store, so that all processes mean the same one."""

from __future__ import annotations

from router.clock import Clock
from router.estimates.layout import OPEN_SLOTS, slot_at
from router.stores.base import CounterStore

TOLERANCE_S = 1.0
"""Differences between clocks that are left alone: what a slot of ten seconds does not notice."""


class SlotClock:
    """The current slot. It goes back only where time itself did, and then says so.

    Until the store has told its time it is this host's wall clock; from then on what the store told
    plus what has passed since, so that neither a wrong wall clock nor one that is set forward or
    back moves anything. A step back of less than `OPEN_SLOTS` lets the slot last until time has
    caught up: what is sealed stays sealed. After a larger one `turned_back` grows, and whoever has
    sealed slots has to forget that it has.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = 0
        self._ahead_s: float | None = None
        """Of the store's time, from our monotonic clock."""
        self.skew_s: float | None = None
        """How far the store's clock was ahead of this host's when they were last compared."""
        self.turned_back = 0
        """How often time went back by more than slots stay open."""

    @property
    def compared(self) -> bool:
        """Whether the store has told its time."""
        return self._ahead_s is not None

    def wall(self) -> float:
        """Seconds since the epoch, by the store's clock once it is known."""
        if self._ahead_s is None:
            return self._clock.wall()
        return self._clock.monotonic() + self._ahead_s

    def now(self) -> int:
        """Number of the current slot."""
        slot = slot_at(self.wall())
        if slot == self._latest:
            return slot
        if slot > self._latest:
            self._latest = slot
        elif slot < self._latest - OPEN_SLOTS:
            self._latest = slot
            self.turned_back += 1
        return self._latest

    def behind_host_s(self) -> float:
        """What to take from a time of this host's wall clock to have it by `wall`."""
        return 0.0 if self._ahead_s is None else self._clock.wall() - self.wall()

    async def compare(self, store: CounterStore, key: str) -> None:
        """Asks the store for its time; a difference below what the question took is no news.

        Raises:
            StoreError: It does not tell; what was known before holds.
        """
        asked = self._clock.monotonic()
        told = await store.time(key)
        took = self._clock.monotonic() - asked
        ahead = told - asked - took / 2
        self.skew_s = told + took / 2 - self._clock.wall()
        known = self._ahead_s
        if known is None or abs(ahead - known) > max(TOLERANCE_S, took / 2):
            self._ahead_s = ahead
