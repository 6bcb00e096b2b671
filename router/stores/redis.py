"""Counters in Redis or Valkey. The only place where the client's exceptions are known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any, cast

import orjson
from redis import exceptions
from redis.exceptions import RedisClusterException, RedisError

from router.errors import StoreError
from router.stores.base import Addition, Batch, Document, Increments, log_key
from router.stores.clients import open_clients
from router.stores.patience import Patience

_ADD = files("router.stores").joinpath("scripts/add_counts.lua").read_text(encoding="utf-8")
_PUT = files("router.stores").joinpath("scripts/put_document.lua").read_text(encoding="utf-8")
_TIME = "return redis.call('TIME')"
_EXACT = 2**53
"""Below it a Lua number holds every integer."""
_INT64 = 2**63
"""Servers add within 64 bits; what lies beyond was not added up by one."""

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ReadOnlyError, "the server takes no writes (read-only replica)"),
    (exceptions.OutOfMemoryError, "the server is out of memory"),
    (exceptions.NoPermissionError, "the server gives this user no permission"),
    (exceptions.AuthenticationError, "the server refuses the user or the password"),
    (exceptions.BusyLoadingError, "the server is still loading its data"),
    (exceptions.MasterDownError, "the server has lost its primary"),
    (exceptions.ClusterDownError, "the cluster is down"),
    (exceptions.TimeoutError, "the server does not answer"),
    (exceptions.ConnectionError, "no connection"),
)
_CODES = (
    ("READONLY", "the server takes no writes (read-only replica)"),
    ("OOM", "the server is out of memory"),
    ("NOPERM", "the server gives this user no permission"),
    ("NOAUTH", "the server refuses the user or the password"),
    ("WRONGPASS", "the server refuses the user or the password"),
    ("MISCONF", "the server cannot save to its disk"),
    ("NOREPLICAS", "the server has too few replicas"),
    ("BUSY ", "the server is busy with a script"),
)


class RedisStore:
    """One connection pool to one server, to whichever is the master, or to each of a cluster."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Nothing is connected yet.

        Raises:
            ConfigError: The URL cannot be understood.
        """
        self._timeout_s = timeout_s
        # Of the calls that move much, and are made again when they fail.
        self._adding, self._reading = Patience(timeout_s), Patience(timeout_s)
        # The client's methods are typed for both of its kinds, waiting and not.
        self._redis: Any
        self._redis, self._others = open_clients(url, timeout_s)
        self._add: Any = self._redis.register_script(_ADD)
        self._put: Any = self._redis.register_script(_PUT)

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """One script call; see `CounterStore.add`."""
        keys, plans = [batch.key], []
        for which, addition in enumerate(additions, 1):
            for key, ttl_s in addition.keys.items():
                keys.append(key)
                plans.append((ttl_s, which))
        # The client takes microseconds for each argument, and a batch has thousands of fields.
        added = [_encoded(addition.increments) for addition in additions]
        arguments = [batch.ttl_s, batch.number, orjson.dumps(plans), *added]
        refused = await self._call(self._add(keys=keys, args=arguments), self._adding)
        return max(0, int(refused))

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """One pipeline; see `CounterStore.read`."""
        if not keys:
            return []
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)
            replies = await self._call(pipeline.execute(raise_on_error=False), self._reading)
        return [_counts(reply) for reply in replies]

    async def time(self, key: str) -> float:
        """One script call, since of a cluster's servers the one with the key is meant."""
        seconds, micros = await self._call(self._redis.eval(_TIME, 1, key))
        return int(seconds) + int(micros) / 1e6

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """One pipeline; see `SecretStore.get_or_create`."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(key, value, nx=True)
            pipeline.get(key)
            refused, kept = await self._call(pipeline.execute(raise_on_error=False))
        if not isinstance(kept, bytes):
            raise StoreError(f"{key} was not kept: {refused if kept is None else kept}")
        return kept

    async def get(self, key: str) -> Document | None:
        """One command; see `DocumentStore.get`."""
        version, data = await self._call(self._redis.hmget(key, ["version", "data"]))
        if version is None or data is None:
            return None
        try:
            return Document(int(version), data)
        except ValueError as error:
            raise StoreError(f"{key} holds no document") from error

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """One script call; see `DocumentStore.put`."""
        keys = [key, log_key(key)]
        return bool(await self._call(self._put(keys=keys, args=[expected, data, *entries])))

    async def log(self, key: str, newest: int) -> Sequence[bytes]:
        """One command; see `DocumentStore.log`."""
        if newest <= 0:
            return ()
        return tuple(await self._call(self._redis.lrange(log_key(key), -newest, -1)))

    async def close(self) -> None:
        """Closes the connections."""
        for client in (self._redis, *self._others):
            with suppress(StoreError):  # it was gone already
                await self._call(client.aclose())

    async def _call(self, awaitable: Any, patience: Patience | None = None) -> Any:
        limit_s = self._timeout_s if patience is None else patience.limit_s
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                answer = await awaitable
        except TimeoutError as error:
            if patience is not None:
                patience.silent()
            raise StoreError(f"no reply within {limit_s:g} s") from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise StoreError(_said(error)) from error
        if patience is not None:
            patience.answered(time.monotonic() - began)
        return answer


def _said(error: Exception) -> str:
    """What went wrong in words, and what the client or the server said."""
    text = str(error)
    for code, words in _CODES:
        if text.startswith(code):
            return f"{words}: {text}"
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return f"{words}: {type(error).__name__}: {text}"
    return f"{type(error).__name__}: {text}"


def _encoded(increments: Increments) -> bytes:
    """As the script wants them."""
    sent: dict[str, Mapping[str, int | str]] = {}
    for stem, fields in increments.items():
        if fields and not -_EXACT < min(fields.values()) <= max(fields.values()) < _EXACT:
            sent[stem] = {name: str(value) for name, value in fields.items()}
        else:
            sent[stem] = cast("Mapping[str, int | str]", fields)
    return orjson.dumps(sent)


def _counts(reply: object) -> Mapping[str, int]:
    if isinstance(reply, Exception):
        if "WRONGTYPE" in str(reply):
            return {}
        raise StoreError(_said(reply))
    counts: dict[str, int] = {}
    for name, value in cast("dict[bytes, bytes]", reply).items():
        try:
            field, count = name.decode(), int(value)
        except (ValueError, UnicodeDecodeError):
            continue
        if -_INT64 <= count < _INT64:
            counts[field] = count
    return counts
