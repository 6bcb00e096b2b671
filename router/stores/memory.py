"""Counters in this process: for tests, and for platforms without the embedded server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.clock import Clock
from router.stores.base import Addition, Batch, Document

_LAST = "last"
"""Field of a batch's key that holds the number."""


class MemoryStore:
    """A dictionary with expiry."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hashes: dict[str, dict[str, int]] = {}
        self._expires: dict[str, float] = {}
        self._secrets: dict[str, bytes] = {}
        self._documents: dict[str, Document] = {}
        self._logs: dict[str, list[bytes]] = {}

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """Adds; see `CounterStore.add`."""
        now = self._clock.wall()
        for key in [key for key, expires in self._expires.items() if expires <= now]:
            del self._hashes[key], self._expires[key]
        if self._hashes.get(batch.key, {}).get(_LAST, 0) >= batch.number:
            return 0
        self._hashes[batch.key] = {_LAST: batch.number}
        self._expires[batch.key] = now + batch.ttl_s
        for addition in additions:
            for key, ttl_s in addition.keys.items():
                stored = self._hashes.setdefault(key, {})
                for stem, fields in addition.increments.items():
                    for name, value in fields.items():
                        stored[stem + name] = stored.get(stem + name, 0) + value
                self._expires[key] = now + ttl_s
        return 0

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Reads; see `CounterStore.read`."""
        now = self._clock.wall()
        return [
            dict(self._hashes.get(key, {})) if self._expires.get(key, 0.0) > now else {}
            for key in keys
        ]

    async def time(self, key: str) -> float:  # noqa: ARG002 - a protocol
        """This process's own clock."""
        return self._clock.wall()

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """Keeps a secret; see `SecretStore.get_or_create`."""
        return self._secrets.setdefault(key, value)

    async def get(self, key: str) -> Document | None:
        """Reads a document; see `DocumentStore.get`."""
        return self._documents.get(key)

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """Writes a document; see `DocumentStore.put`."""
        known = self._documents.get(key)
        if (known.version if known else 0) != expected:
            return False
        self._documents[key] = Document(expected + 1, data)
        self._logs.setdefault(key, []).extend(entries)
        return True

    async def log(self, key: str, newest: int) -> Sequence[bytes]:
        """Reads a log; see `DocumentStore.log`."""
        return tuple(self._logs.get(key, ())[-newest:]) if newest > 0 else ()

    async def close(self) -> None:
        """Nothing to let go of."""
