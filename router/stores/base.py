"""The seam to stores: integer counters under string keys, added atomically and at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Deltas = Mapping[str, Mapping[str, int]]
"""Increments by key and field."""


class CounterStore(Protocol):
    """Counters shared by any number of processes.

    Every method raises `router.errors.StoreError` when the store cannot do it in time.
    """

    async def add(self, batch: str, deltas: Deltas, ttl_s: int) -> int:
        """Adds all increments, or none if this batch was added before.

        Args:
            batch: Name of the batch. A batch whose reply was lost may be sent again.
            deltas: What to add. All keys and the batch must share one hash tag, so that they live
                in one slot of a cluster.
            ttl_s: The keys expire this long after the last addition.

        Returns:
            How many increments were refused because of what the store held.
        """

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """All fields of each key; empty for a key that is not there. Garbage is left out."""

    async def close(self) -> None:
        """Lets go of connections and of a server that was started for this store."""
