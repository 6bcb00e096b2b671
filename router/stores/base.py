"""The seam to stores: integer counters under string keys, added atomically and at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Deltas = Mapping[str, Mapping[str, int]]
"""Increments by key and field."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Names what is added, so that it counts once however often it is sent."""

    key: str
    """Where the store keeps the number of the sender's last batch."""
    number: int
    """Starts at 1 and grows from batch to batch of the same sender."""


class CounterStore(Protocol):
    """Counters shared by any number of processes.

    Every method raises `router.errors.StoreError` when the store cannot do it in time.
    """

    async def add(self, batch: Batch, deltas: Deltas, ttl_s: int) -> int:
        """Adds all increments, or none if the sender's batch of this or a later number was added.

        Args:
            batch: Name of the batch. One whose reply was lost may be sent again.
            deltas: What to add. All keys and the batch's must share one hash tag, so that they
                live in one slot of a cluster.
            ttl_s: The keys, the batch's too, expire this long after the last addition.

        Returns:
            How many increments were refused because of what the store held.
        """

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """All fields of each key; empty for a key that is not there. Garbage is left out."""

    async def close(self) -> None:
        """Lets go of connections and of a server that was started for this store."""


class SecretStore(Protocol):
    """Small secrets that all processes of a store share; they do not expire.

    Every method raises `router.errors.StoreError` when the store cannot do it in time.
    """

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """What is kept under a key; keeps `value` there first if there was nothing.

        However many ask at once, all get the same.
        """


class SharedStore(CounterStore, SecretStore, Protocol):
    """All that this program keeps in a store."""
