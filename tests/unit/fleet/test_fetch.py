"""Small pages over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from router.fleet.fetch import AiohttpFetch, GoneError, LateError, Page
from tests.support.flow_backend import ScriptedBackend, scripted_backend, send


@pytest.fixture
async def fetch() -> AsyncIterator[AiohttpFetch]:
    """The real one."""
    made = AiohttpFetch()
    yield made
    await made.close()


@pytest.fixture
async def backend() -> AsyncIterator[ScriptedBackend]:
    """One server."""
    async with scripted_backend() as made:
        yield made


def answer(status: str, body: bytes, more: str = "") -> bytes:
    """A whole answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


async def get(fetch: AiohttpFetch, url: str, *, most: int = 100, timeout_s: float = 15.0) -> Page:
    """Fetches a page."""
    return await fetch.get(url, headers={"X-Key": "k"}, timeout_s=timeout_s, most_bytes=most)


async def test_a_page_is_fetched_up_to_a_limit(
    fetch: AiohttpFetch, backend: ScriptedBackend
) -> None:
    """Status, and as much of the body as is wanted."""
    backend.always(answer("200 OK", b"x" * 1000))
    assert await get(fetch, backend.url + "/metrics", most=10) == Page(200, b"x" * 10)
    assert await get(fetch, backend.url + "/metrics", most=0) == Page(200)
    assert len((await get(fetch, backend.url + "/metrics", most=5000)).body) == 1000
    assert backend.requests[0].header("x-key") == ["k"]


async def test_connections_are_new_each_time(fetch: AiohttpFetch, backend: ScriptedBackend) -> None:
    """A server that takes no new ones is to be noticed."""
    backend.always(answer("200 OK", b"ok"))
    for _ in range(3):
        await get(fetch, backend.url + "/metrics")
    assert backend.connections == 3


async def test_a_redirect_is_an_answer(fetch: AiohttpFetch, backend: ScriptedBackend) -> None:
    """It is not followed: our key is for this server."""
    backend.always(answer("302 Found", b"", "Location: http://elsewhere.invalid/\r\n"))
    assert (await get(fetch, backend.url + "/x")).status == 302


async def test_nobody_there(fetch: AiohttpFetch, backend: ScriptedBackend) -> None:
    """A refused connection, and one that speaks no HTTP."""
    backend.always(lambda _: [send(b"SSH-2.0\r\n\r\n")])
    with pytest.raises(GoneError):
        await get(fetch, backend.url + "/x")
    await backend.stop()
    with pytest.raises(GoneError):
        await get(fetch, backend.url + "/x")


@pytest.mark.parametrize("host", ["vllm..svc", "a" * 64])
async def test_a_name_that_cannot_be_looked_up(fetch: AiohttpFetch, host: str) -> None:
    """Nobody is there, as with any other name that nobody has."""
    with pytest.raises(GoneError):
        await get(fetch, f"http://{host}:1/health")


async def test_a_silent_server_is_late(fetch: AiohttpFetch, backend: ScriptedBackend) -> None:
    """Within its own time, while others are served."""
    backend.health, backend.hangs = b"HTTP/1.1 200 OK\r\nContent-", True
    backend.always(answer("200 OK", b"ok"))

    async def late() -> bool:
        with pytest.raises(LateError):
            await get(fetch, backend.url + "/health", timeout_s=0.05)
        return True

    pages = await asyncio.gather(
        *(late() for _ in range(40)), *(get(fetch, backend.url + "/x") for _ in range(40))
    )
    assert pages == [True] * 40 + [Page(200, b"ok")] * 40


async def test_closing_twice_is_closing() -> None:
    """With or without anything fetched."""
    made = AiohttpFetch()
    await made.close()
    await made.close()
