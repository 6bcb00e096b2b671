"""A client that speaks raw HTTP/1.1, so that a test sees every byte and decides when to leave."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.flow_backend import GUARD_S


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers of a response."""

    line: str
    headers: tuple[tuple[str, str], ...]

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.line.split(" ")[1])

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object in the form OpenAI clients parse; fails for any other body."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error, dict)
        return error


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._head: Head | None = None

    async def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        async with asyncio.timeout(GUARD_S):
            self._writer.write(data)
            await self._writer.drain()

    async def head(self) -> Head:
        """Reads status line and headers."""
        async with asyncio.timeout(GUARD_S):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:-2])
        self._head = Head(lines[0], tuple((name, value.strip()) for name, _, value in pairs))
        return self._head

    async def piece(self) -> bytes:
        """The next bytes of a chunked body, as soon as they are there; empty at its end."""
        async with asyncio.timeout(GUARD_S):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size)
            await self._reader.readexactly(2)
            return data

    async def until(self, wanted: bytes) -> bytes:
        """Reads pieces until `wanted` has come."""
        body = b""
        while wanted not in body:
            piece = await self.piece()
            assert piece, f"the body ended without {wanted!r}: {body!r}"
            body += piece
        return body

    async def rest(self) -> bytes:
        """The body to its end.

        Raises:
            IncompleteReadError, ConnectionError: It was cut.
        """
        head = self._head
        assert head is not None
        if (head.one("transfer-encoding") or "").lower() == "chunked":
            body = b""
            while piece := await self.piece():
                body += piece
            return body
        async with asyncio.timeout(GUARD_S):
            length = head.one("content-length")
            if length is None:
                return await self._reader.read()
            return await self._reader.readexactly(int(length))

    async def reply(self) -> Reply:
        """A whole response."""
        head = await self.head()
        return Reply(head, await self.rest())

    async def ended(self) -> bool:
        """Waits for the server's next byte or the end; whether it was an orderly end."""
        async with asyncio.timeout(GUARD_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return False

    def leave(self) -> None:
        """Closes the connection, whatever is going on."""
        self._writer.transport.abort()


def request_bytes(
    body: bytes,
    target: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: tuple[str, ...] = (),
    version: str = "HTTP/1.1",
) -> bytes:
    """A request with its length; `headers` are further lines."""
    lines = (
        f"{method} {target} {version}",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def raw_client(url: str, *, buffer: int | None = None) -> AsyncIterator[RawClient]:
    """One connection for as long as the block runs; `buffer` limits what the kernel takes in."""
    parts = urlsplit(url)
    sock = socket.socket()
    sock.settimeout(0)
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    async with asyncio.timeout(GUARD_S):
        await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1024 * 1024)
    client = RawClient(reader, writer)
    try:
        yield client
    finally:
        client.leave()


async def ask(url: str, data: bytes) -> Reply:
    """One request on a connection of its own."""
    async with raw_client(url) as client:
        await client.send(data)
        return await client.reply()


async def get(url: str, target: str) -> Reply:
    """One GET."""
    return await ask(url, request_bytes(b"", target, method="GET"))
