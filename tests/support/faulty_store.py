"""A store that fails on command, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from router.errors import StoreError
from router.stores.base import Addition, Batch, CounterStore


class Fault(Enum):
    """Where a call to the store goes wrong."""

    BEFORE = auto()
    """The request is lost: nothing is done."""
    AFTER = auto()
    """The reply is lost: it is done, and the caller does not know."""


class FaultyStore:
    """Passes calls on to another store unless `fault` says otherwise."""

    def __init__(self, inner: CounterStore) -> None:
        self.inner = inner
        self.fault: Fault | None = None
        """Holds for every call until it is changed."""
        self.batches: list[Batch] = []
        self.reads: list[Sequence[str]] = []

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """Adds, or loses the request, or loses the reply."""
        self.batches.append(batch)
        if self.fault is Fault.BEFORE:
            raise StoreError("request lost")
        refused = await self.inner.add(batch, additions)
        if self.fault is Fault.AFTER:
            raise StoreError("reply lost")
        return refused

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Reads, or fails."""
        self.reads.append(keys)
        if self.fault is not None:
            raise StoreError("no reply")
        return await self.inner.read(keys)

    async def time(self, key: str) -> float:
        """Tells, or fails."""
        if self.fault is not None:
            raise StoreError("no reply")
        return await self.inner.time(key)

    async def close(self) -> None:
        """Closes the store behind."""
        await self.inner.close()
