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


@dataclass(frozen=True, slots=True)
class Document:
    """What is kept under a key, and how often it has been written."""

    version: int
    """1 when it was first written."""
    data: bytes


class DocumentStore(Protocol):
    """Small documents that processes change together, each with a log; they do not expire.

    Every method raises `router.errors.StoreError` when the store cannot do it in time.
    """

    async def get(self, key: str) -> Document | None:
        """The document; None where there is none."""

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """Writes a document if nobody has since its version `expected` was read.

        A caller that gets an error does not know whether it was written; who reads again does.

        Args:
            key: Where it is kept. Key and the key of its log must share one hash tag.
            data: The new content.
            expected: Version it replaces; 0 where there must be none.
            entries: Added to its log, which only grows, in the same moment.

        Returns:
            Whether it was written; its version is then `expected + 1`.
        """

    async def log(self, key: str, newest: int) -> Sequence[bytes]:
        """Entries of a document's log, the oldest first; at most the `newest` ones."""


def log_key(key: str) -> str:
    """Where the log of a document is kept.

    >>> log_key("{specroute}:doc")
    '{specroute}:doc:log'
    """
    return f"{key}:log"


class SharedStore(CounterStore, SecretStore, DocumentStore, Protocol):
    """All that this program keeps in a store."""
