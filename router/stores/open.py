"""URL → store."""

from __future__ import annotations

from pathlib import Path

from router.clock import Clock
from router.config.keeping import Store
from router.stores.base import SharedStore
from router.stores.embedded import EmbeddedStore
from router.stores.memory import MemoryStore
from router.stores.redis import RedisStore


def open_store(config: Store, clock: Clock) -> SharedStore:
    """The store that `store.url` names. Nothing is connected or started yet."""
    if config.url.startswith("memory:"):
        return MemoryStore(clock)
    if config.url.startswith("embedded:"):
        return EmbeddedStore(Path(config.directory), config.timeout_s)
    return RedisStore(config.url, config.timeout_s)
