"""The server beneath simulated engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from router.simfleet.http import HttpServer, Manner, Received, Reply
from router.simfleet.settings import Kind
from tests.support.clock import ManualClock
from tests.support.simfleet_world import until


class Noted:
    """Answers with what it was asked, and keeps what it is told to."""

    def __init__(self) -> None:
        self.held: list[Reply] = []

    def __call__(self, request: Received, reply: Reply) -> None:
        """See `Handler`."""
        if request.path == "/hold":
            self.held.append(reply)
        elif request.path == "/cut":
            reply.start()
            reply.cut()
        else:
            told = f"{request.method} {request.path}?{request.query} {len(request.body)}"
            reply.whole(200, told.encode(), content="text/plain")


@pytest.fixture
def handler() -> Noted:
    """What is behind the server."""
    return Noted()


@pytest.fixture
async def port(handler: Noted) -> AsyncIterator[int]:
    """Of a server that listens."""
    server = HttpServer(handler, Manner(Kind.VLLM, ManualClock().wall))
    yield await server.start("127.0.0.1", 0)
    await server.stop()


async def exchange(port: int, *parts: bytes) -> bytes:
    """Sends parts one by one and reads to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    got = b""
    try:
        while data := await reader.read(4096):
            got += data
    except ConnectionError:
        pass
    writer.close()
    return got


async def test_a_body_in_chunks_and_in_pieces(port: int) -> None:
    """However it is sent it is one body."""
    got = await exchange(
        port,
        b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-",
        b"Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"2\r\nde\r\n0\r\n\r\n",
    )
    assert got.endswith(b"\r\n\r\nPOST /a?b=c 5")


async def test_requests_on_one_connection_are_answered_in_their_order(
    port: int, handler: Noted
) -> None:
    """The second waits until the first is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: bool(handler.held))
    [held] = handler.held
    held.start()
    held.chunks([b"one", b"two"])
    held.end()
    got = await reader.readuntil(b"GET /next? 0")
    writer.close()
    assert b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n" in got


async def test_a_client_that_waits_for_leave_gets_it(port: int) -> None:
    """`Expect: 100-continue` is answered before the body has come."""
    got = await exchange(
        port,
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n"
        b"Content-Length: 2\r\n\r\n",
        b"ok",
    )
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("sent", [b"GET /cut HTTP/1.1\r\nHost: x\r\n\r\n", b"no HTTP\r\n\r\n"])
async def test_what_is_broken_off_has_no_end(port: int, sent: bytes) -> None:
    """By command, or because it was no request."""
    assert b"0\r\n\r\n" not in await exchange(port, sent)


async def test_who_leaves_is_noticed(port: int, handler: Noted) -> None:
    """Once, and nothing is written any more."""
    left: list[bool] = []
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: bool(handler.held))
    [held] = handler.held
    held.on_gone = lambda: left.append(True)
    writer.transport.abort()
    await until(lambda: held.ended)
    held.chunks([b"late"])
    held.end()
    assert left == [True]
