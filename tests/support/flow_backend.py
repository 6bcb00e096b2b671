"""A scripted engine on a real socket: it keeps the bytes it got and answers step by step.

What happens when is decided by causes (`Gate`), never by waiting for time to pass. It knows no
dialect; `flow_wire` holds the bytes that engines send.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

GUARD_S = 15.0
"""Longest wait for anything; reached only by a test that has failed."""

_HEADER_LIMIT = 4 * 1024 * 1024
_IDENTIFYING = "(identify)"
"""In the name of whoever asks what the engine is."""
_NO_PAGE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


class Gate:
    """Something that happens once; others wait for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def opened(self) -> bool:
        """Whether it has happened."""
        return self._event.is_set()

    def open(self) -> None:
        """It happens."""
        self._event.set()

    async def wait(self) -> None:
        """Waits until it has happened."""
        async with asyncio.timeout(GUARD_S):
            await self._event.wait()


@dataclass(frozen=True, slots=True)
class Received:
    """One request, as the engine got it."""

    connection: int
    """Number of the connection it came on, counted from 0."""
    line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    gone: Gate
    """Opens when the step `until_gone` has seen the client's end of the connection close."""

    @property
    def target(self) -> str:
        """The request target, query included, as it stood in the request line."""
        return self.line.split(" ")[1]

    def header(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass(slots=True)
class Exchange:
    """One request being answered."""

    received: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Step = Callable[[Exchange], Awaitable[None]]
Script = Callable[[Received], Sequence[Step]]


def send(data: bytes) -> Step:
    """Sends bytes, in a write of their own."""

    async def step(exchange: Exchange) -> None:
        exchange.writer.write(data)
        await exchange.writer.drain()

    return step


def wait(gate: Gate) -> Step:
    """Goes on when the gate is open."""

    async def step(_: Exchange) -> None:
        await gate.wait()

    return step


def opens(gate: Gate) -> Step:
    """Opens a gate: tells the test how far the script is."""

    async def step(_: Exchange) -> None:
        gate.open()

    return step


def does(action: Callable[[], object]) -> Step:
    """Does anything else."""

    async def step(_: Exchange) -> None:
        action()

    return step


def until_gone() -> Step:
    """Goes on when the client has closed its connection, and records that."""

    async def step(exchange: Exchange) -> None:
        async with asyncio.timeout(GUARD_S):
            try:
                while await exchange.reader.read(65536):
                    pass
            except ConnectionError:
                pass
        exchange.received.gone.open()

    return step


def close() -> Step:
    """Closes the connection in an orderly way."""

    async def step(exchange: Exchange) -> None:
        exchange.writer.close()

    return step


def reset() -> Step:
    """Resets the connection, as the kernel does for a killed process."""

    async def step(exchange: Exchange) -> None:
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.writer.close()

    return step


@dataclass(slots=True)
class ScriptedBackend:
    """One engine. Requests for its health, and for what it is, are answered apart and not kept."""

    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    health: bytes = _HEALTHY
    """The whole answer to a probe."""
    pages: dict[str, bytes] = field(default_factory=dict)
    """Whole answers to those who ask what it is, by target; others are not found."""
    hangs: bool = False
    """Whether the answer to a probe is not followed by the end of the connection."""
    port: int = 0
    tls: ssl.SSLContext | None = None
    """Serves https with it."""
    _queue: deque[Script] = field(default_factory=deque)
    _default: Script | None = None
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def then(self, *steps: Step) -> None:
        """Answers one request by these steps; several calls queue up."""
        self._queue.append(lambda _: steps)

    def always(self, script: Script | bytes) -> None:
        """Answers every request for which nothing is queued."""
        self._default = (lambda _: [send(script)]) if isinstance(script, bytes) else script

    async def start(self) -> None:
        """Listens; on the same port again after a stop."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=_HEADER_LIMIT, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and resets every connection."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        self._server = None

    async def all_gone(self) -> None:
        """Waits until no connection is open."""
        async with asyncio.timeout(GUARD_S):
            while self._open:
                self._left.clear()
                await self._left.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        self._open.add(writer)
        try:
            while not writer.is_closing():
                received = await read_request(reader, number)
                if received is None:
                    break
                if any(_IDENTIFYING in value for value in received.header("user-agent")):
                    writer.write(self.pages.get(received.target, _NO_PAGE))
                    break
                if received.target in ("/health", "/v1/models"):
                    writer.write(self.health)
                    if self.hangs:
                        await reader.read()
                    break
                self.requests.append(received)
                exchange = Exchange(received, reader, writer)
                for step in self._script(received):
                    await step(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; a test that cares waits for `gone`
        finally:
            self._open.discard(writer)
            self._left.set()
            writer.close()

    def _script(self, received: Received) -> Sequence[Step]:
        script = self._queue.popleft() if self._queue else self._default
        if script is None:
            return [send(b"HTTP/1.1 500 Unscripted\r\nContent-Length: 0\r\n\r\n")]
        return script(received)


async def read_request(reader: asyncio.StreamReader, connection: int) -> Received | None:
    """Reads one request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    headers = tuple(
        (name, value.strip()) for name, _, value in (x.partition(":") for x in lines[1:-2])
    )
    known = {name.lower(): value for name, value in headers}
    if known.get("transfer-encoding") == "chunked":
        body = b"".join([piece async for piece in chunks(reader)])
    else:
        body = await reader.readexactly(int(known.get("content-length", "0")))
    return Received(connection, lines[0], headers, body, Gate())


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The pieces of a chunked body."""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)


@asynccontextmanager
async def scripted_backend(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedBackend]:
    """One engine for as long as the block runs."""
    backend = ScriptedBackend(tls=tls)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop()
