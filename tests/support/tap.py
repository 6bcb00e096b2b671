"""A wire tap between a client and a server: passes bytes on, and keeps them.

What any client was answered can so be compared byte by byte, whatever language it is written in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One request with its answer, both without HTTP's framing."""

    request_headers: tuple[tuple[str, str], ...]
    request_body: bytes
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """First value of a request header."""
        return next((value for key, value in self.request_headers if key == name), None)


@dataclass(slots=True)
class _Connection:
    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Tap:
    """A port in front of another."""

    target: str
    """Base URL of the server."""
    port: int = 0
    _connections: list[_Connection] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Base URL of the tap."""
        return f"http://127.0.0.1:{self.port}"

    def exchanges(self) -> list[Exchanged]:
        """All requests whose answers are complete, in the order of their connections."""
        return [item for connection in self._connections for item in _pairs(connection)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until both sides have ended it."""
        connection = _Connection()
        self._connections.append(connection)
        host, _, port = self.target.removeprefix("http://").rpartition(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, server_writer, connection.up))
            group.create_task(_copy(server_reader, writer, connection.down))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    try:
        while data := await reader.read(65536):
            kept += data
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def tapped(target: str) -> AsyncIterator[Tap]:
    """A tap in front of a server, for as long as the block runs."""
    tap = Tap(target)
    server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
    tap.port = server.sockets[0].getsockname()[1]
    try:
        yield tap
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class _Message:
    first: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def _pairs(connection: _Connection) -> list[Exchanged]:
    requests = _messages(bytes(connection.up), empty=True)
    answers = [
        answer
        for answer in _messages(bytes(connection.down), empty=False)
        if not answer.first.split(" ")[1].startswith("1")
    ]
    return [
        Exchanged(
            request.headers,
            request.body,
            int(answer.first.split(" ")[1]),
            answer.headers,
            answer.body,
        )
        for request, answer in zip(requests, answers, strict=False)
    ]


def _messages(data: bytes, *, empty: bool) -> list[_Message]:
    """Takes one side of a connection apart.

    Args:
        data: All bytes of the side.
        empty: Whether a message without a length has no body; else its body ends with the side.
    """
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = tuple(
            (name.lower(), value.strip())
            for name, _, value in (line.partition(":") for line in lines)
        )
        known = dict(headers)
        if "chunked" in known.get("transfer-encoding", ""):
            body, data = _unchunked(data)
        elif "content-length" in known:
            size = int(known["content-length"])
            body, data = data[:size], data[size:]
        else:
            body, data = (b"", data) if empty else (data, b"")
        found.append(_Message(first, headers, body))
    return found


def _unchunked(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            return body, data.partition(b"\r\n")[2]
        body += data[:size]
        data = data[size + 2 :]
    return body, data
