"""Counters in Redis or Valkey. The only place where the client's exceptions are known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

import orjson
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from router.errors import ConfigError, StoreError
from router.stores.base import Batch, Deltas

_ADD = files("router.stores").joinpath("scripts/add_counts.lua").read_text(encoding="utf-8")


class RedisStore:
    """One connection pool to one server."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Nothing is connected yet.

        Raises:
            ConfigError: The URL cannot be understood.
        """
        self._timeout_s = timeout_s
        try:
            self._redis: Redis = Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),  # the writer and the reader try again by themselves
                decode_responses=False,
            )
        except ValueError:  # may quote the URL and the password in it
            raise ConfigError(
                "store.url: not a URL that can be understood; write redis://HOST:PORT/NUMBER, "
                "rediss://… or unix:///PATH"
            ) from None
        self._add = self._redis.register_script(_ADD)

    async def add(self, batch: Batch, deltas: Deltas, ttl_s: int) -> int:
        """One script call; see `CounterStore.add`."""
        # The client takes microseconds for each argument, and a batch has thousands of fields.
        added = [
            orjson.dumps({name: str(value) for name, value in fields.items()})
            for fields in deltas.values()
        ]
        arguments: list[int | bytes] = [ttl_s, batch.number, *added]
        keys = [batch.key, *deltas]
        refused = await self._call(self._add(keys=keys, args=arguments))
        return max(0, int(refused))

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """One pipeline; see `CounterStore.read`."""
        if not keys:
            return []
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            replies = await self._call(pipeline.execute(raise_on_error=False))
        return [_counts(reply) for reply in replies]

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """One pipeline; see `SecretStore.get_or_create`."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(key, value, nx=True)
            pipeline.get(key)
            refused, kept = await self._call(pipeline.execute(raise_on_error=False))
        if not isinstance(kept, bytes):
            raise StoreError(f"{key} was not kept: {refused if kept is None else kept}")
        return kept

    async def close(self) -> None:
        """Closes the connections."""
        try:
            await self._call(self._redis.aclose())
        except StoreError:
            return  # it was gone already

    async def _call(self, awaitable: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await awaitable
        except TimeoutError as error:
            raise StoreError(f"no reply within {self._timeout_s:g} s") from error
        except (RedisError, OSError) as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error


def _counts(reply: object) -> Mapping[str, int]:
    if isinstance(reply, RedisError):
        if "WRONGTYPE" in str(reply):
            return {}
        raise StoreError(str(reply))
    counts: dict[str, int] = {}
    for name, value in cast("dict[bytes, bytes]", reply).items():
        try:
            counts[name.decode()] = int(value)
        except (ValueError, UnicodeDecodeError):
            continue
    return counts
