"""How many processes share the limits of tenants, and which of them this one is.

Each says every few seconds that it is there. Limits are shared out evenly: what one does not use
is lost to the others, but their sum holds, and without the store the last known number does.
"""

from __future__ import annotations

import secrets

from router.stores.base import Addition, Batch, CounterStore

WINDOW_S = 10
"""A process that says nothing for two of them is gone."""

_TTL_S = 4 * WINDOW_S


class Presence:
    """One process among those of a store."""

    def __init__(
        self, prefix: str, name: str | None = None, *, processes: int = 1, rank: int = 0
    ) -> None:
        """Args: `processes` and `rank` hold until the store has told."""
        self._stem = f"{{{prefix}:tenants}}:v1:alive"
        self._name = name or secrets.token_hex(8)
        self._said = -1
        self.processes = processes
        """That share the limits, this one included."""
        self.rank = rank
        """Which of them this one is, from 0."""

    async def refresh(self, store: CounterStore, wall: float) -> bool:
        """Says that it is there, and looks who else is.

        Args:
            store: Where all say it.
            wall: Seconds since the epoch, by the store's clock.

        Returns:
            Whether anything has changed.

        Raises:
            StoreError: The store did not answer; what was known holds.
        """
        window = int(wall // WINDOW_S)
        if window != self._said:
            batch = Batch(f"{self._stem}:by:{self._name}", max(window, 1), _TTL_S)
            key = f"{self._stem}:{window}"
            await store.add(batch, [Addition({"": {self._name: 1}}, {key: _TTL_S})])
            self._said = window
        keys = [f"{self._stem}:{window}", f"{self._stem}:{window - 1}"]
        names = sorted({name for said in await store.read(keys) for name in said} | {self._name})
        before = (self.processes, self.rank)
        self.processes, self.rank = len(names), names.index(self._name)
        return before != (self.processes, self.rank)


def places_of(limit: int, processes: int, rank: int) -> int:
    """This process's part of places that all share; everybody has one at least.

    >>> [places_of(10, 4, rank) for rank in range(4)]
    [3, 3, 2, 2]
    >>> places_of(1, 4, 3)
    1
    """
    return max(1, limit // processes + (rank < limit % processes))
