"""What the server behind a store's URL is, and how it is set up; for operators' tools."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from router.errors import ConfigError, StoreError

_PINGS = 5


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server of Redis' protocol; None where it does not tell."""

    latency_s: float
    """Median of a few pings."""
    product: str | None = None
    version: str | None = None
    eviction_policy: str | None = None
    most_memory_bytes: int | None = None
    """0 for no limit."""
    role: str | None = None


async def server_facts(url: str, timeout_s: float) -> ServerFacts:
    """Asks the server.

    Raises:
        ConfigError: The URL cannot be understood.
        StoreError: It does not answer in time, or refuses.
    """
    try:
        client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:  # may quote the URL and the password in it
        raise ConfigError("store.url: not a URL that can be understood") from None
    try:
        async with asyncio.timeout(timeout_s * (_PINGS + 1)):
            return await _facts(client)
    except TimeoutError as error:
        raise StoreError(f"no reply within {timeout_s:g} s") from error
    except (RedisError, OSError) as error:
        raise StoreError(f"{type(error).__name__}: {error}") from error
    finally:
        await client.aclose()


async def _facts(client: Redis) -> ServerFacts:
    taken = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        await client.ping()
        taken.append(time.perf_counter() - began)
    latency_s = statistics.median(taken)
    try:
        told: dict[str, Any] = await client.info()
    except ResponseError:  # an account that may not ask
        return ServerFacts(latency_s)
    valkey = told.get("valkey_version")
    most = told.get("maxmemory")
    return ServerFacts(
        latency_s,
        product="Valkey" if valkey else "Redis",
        version=_text(valkey or told.get("redis_version")),
        eviction_policy=_text(told.get("maxmemory_policy")),
        most_memory_bytes=most if isinstance(most, int) else None,
        role=_text(told.get("role")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None
