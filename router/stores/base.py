"""The seam to stores: integer counters under string keys, added atomically and at most once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Increments = Mapping[str, Mapping[str, int]]
"""Increments by the first and the second part of a field's name: whoever sends has them so, and to
put thousands of names together would take the loop longer than all the rest."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Names what is added, so that it counts once however often it is sent."""

    key: str
    """Where the store keeps the number of the sender's last batch."""
    number: int
    """Starts at 1 and grows from batch to batch of the same sender."""
    ttl_s: int
    """How long that number is kept after it was last set."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The same increments for some keys."""

    increments: Increments
    keys: Mapping[str, int]
    """Keys, and for how many seconds each is kept after the last addition to it."""


class CounterStore(Protocol):
    """Counters shared by any number of processes.

    Every method raises `router.errors.StoreError` when the store cannot do it in time.
    """

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """Adds all increments, or none if the sender's batch of this or a later number was added.

        Args:
            batch: Name of the batch. One whose reply was lost may be sent again.
            additions: What to add. All keys and the batch's must share one hash tag, so that they
                live in one slot of a cluster.

        Returns:
            How many increments were refused because of what the store held.
        """

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """All fields of each key; empty for a key that is not there. Garbage is left out.

        All keys must share one hash tag.
        """

    async def time(self, key: str) -> float:
        """Seconds since the epoch, by the clock of the server that has this key or would."""

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
