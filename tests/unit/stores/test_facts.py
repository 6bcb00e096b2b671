"""What a store's server says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from router.errors import ConfigError, StoreError
from router.stores.facts import server_facts
from tests.support.valkey import ValkeyServer, frozen, short_folder, tcp_server


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """A real one."""
    with short_folder() as folder, tcp_server(folder) as running:
        yield running


async def test_version_and_settings(server: ValkeyServer) -> None:
    """As it tells them itself."""
    facts = await server_facts(server.url, 5.0)
    assert (facts.product, facts.role, facts.most_memory_bytes) == ("Valkey", "master", 0)
    assert (facts.version or "").count(".") == 2
    assert facts.eviction_policy == "noeviction"
    assert facts.latency_s > 0


async def test_an_account_that_may_not_ask(server: ValkeyServer) -> None:
    """It answers, and nothing is known of its settings."""
    with server.client() as client:
        client.acl_setuser("few", enabled=True, passwords=["+p"], commands=["+ping"], keys=["*"])
    facts = await server_facts(server.url.replace("//", "//few:p@"), 5.0)
    assert (facts.version, facts.eviction_policy, facts.role) == (None, None, None)


async def test_a_server_that_does_not_answer(server: ValkeyServer) -> None:
    """Within its time, with an error of ours; a frozen one too."""
    with pytest.raises(StoreError):
        await server_facts("redis://127.0.0.1:1/0", 0.5)
    with frozen(server.pid), pytest.raises(StoreError):
        await server_facts(server.url, 0.05)


async def test_something_else_on_that_port() -> None:
    """It is no store."""

    async def talks(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(talks, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(StoreError):
            await server_facts(f"redis://127.0.0.1:{port}/0", 1.0)


async def test_a_url_that_cannot_be_understood() -> None:
    """Is not quoted: it may hold a password."""
    with pytest.raises(ConfigError, match=r"^store\.url: not a URL that can be understood$"):
        await server_facts("redis://:hush@h:port/0", 1.0)
