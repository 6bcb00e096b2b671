"""URL → store."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.config.keeping import Store
from router.errors import ConfigError
from router.stores.base import CounterStore
from router.stores.embedded import EmbeddedStore
from router.stores.memory import MemoryStore
from router.stores.open import open_store
from router.stores.redis import RedisStore
from tests.support.clock import ManualClock


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryStore),
        ("memory://", MemoryStore),
        ("embedded:", EmbeddedStore),
        ("redis://127.0.0.1:1/0", RedisStore),
        ("rediss://user:pw@127.0.0.1:1", RedisStore),
        ("unix:///nowhere/valkey.sock?db=1", RedisStore),
        ("redis+sentinel://127.0.0.1:1/main/0", RedisStore),
        ("rediss+sentinel://user:pw@127.0.0.1:1/main", RedisStore),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", RedisStore),
    ],
)
async def test_opening_connects_nothing_and_starts_nothing(
    url: str, kind: type[CounterStore], tmp_path: Path
) -> None:
    """Servers need not be there yet."""
    store = open_store(Store(url=url, directory=str(tmp_path / "d")), ManualClock())
    assert isinstance(store, kind)
    await store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@host:port/0", "redis://:s3cret@h?socket_timeout=s3cret"]
)
def test_a_url_that_cannot_be_understood_is_a_mistake_in_the_configuration(url: str) -> None:
    """Told without the password in it."""
    with pytest.raises(ConfigError, match=r"store\.url: not a URL") as caught:
        open_store(Store(url=url), ManualClock())
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__
