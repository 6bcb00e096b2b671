"""The client: writes what the case says, goes when it says so, and keeps what it got."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from bench.fuzz.engine import Script
from bench.fuzz.model import Dialogue, Exchange, Lines, broken, cut, request_bytes
from bench.fuzz.reading import MalformedError, MessageReader

_RESET = struct.pack("ii", 1, 0)
_PATIENCE = 40
"""Turns of the loop for which a client waits for the answer to a broken request."""
_TURNS = 3
"""Of the loop, for what was written on one side of the proxy to come out on the other."""


@dataclass(frozen=True, slots=True)
class Got:
    """What a client got for one request."""

    start: str
    lines: Lines
    body: bytes
    complete: bool
    framing: str
    end: str
    """Of the connection: empty, `eof` or `reset`."""
    left: bool
    """The client has gone before the end."""
    fault: str = ""
    surplus: bytes = b""
    """What came after the answer, though nothing was asked."""
    continued: int = 0
    """1xx answers."""

    @property
    def status(self) -> int | None:
        """None where there was no answer."""
        return int(self.start.split(" ")[1]) if self.start else None


_UNANSWERED = Got("", (), b"", complete=False, framing="", end="eof", left=True)
"""A pipelined request behind the last that was answered on its connection."""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reader = MessageReader(requests=False)
        self.transport: asyncio.Transport | None = None
        self.end = ""
        self.fault = ""
        self.seen = 0
        self.left = False
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.seen += len(data)
        if not self.fault:
            try:
                self.reader.feed(data)
            except (MalformedError, ValueError, IndexError) as error:
                self.fault = f"client got no HTTP: {error}"
        self.wake()

    def eof_received(self) -> None:
        self.end = "eof"
        self.reader.end()
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end = self.end or ("eof" if exc is None else "reset")
        self.transport = None
        self.wake()

    def wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def news(self) -> None:
        self._news = self._loop.create_future()
        await self._news

    def begin(self, exchange: Exchange) -> None:
        """The next answer is that to this request."""
        self.reader.begin(bodiless=exchange.request.method == "HEAD")
        self.data_received(b"")
        if self.end == "eof":
            self.reader.end()

    def leave(self, how: str) -> None:
        transport = self.transport
        self.left = True
        if transport is None:
            return
        if how == "half":
            transport.write_eof()
            return
        if how == "reset":
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _RESET
            )
        transport.abort()

    def abandon(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def closed(self) -> None:
        while self.transport is not None:
            await self.news()


async def turns(count: int = _TURNS) -> None:
    """Lets the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def converse(
    dialogue: Dialogue, names: Sequence[str], scripts: Sequence[Script], address: tuple[str, int]
) -> list[Got]:
    """Plays a dialogue; returns what came for each of its requests."""
    opened: list[_Connection] = []
    try:
        if dialogue.pipelined:
            return await _pipelined(dialogue, names, scripts, await _connected(address, opened))
        return await _in_turn(dialogue, names, scripts, address, opened)
    finally:
        for connection in opened:
            connection.abandon()


async def _in_turn(
    dialogue: Dialogue,
    names: Sequence[str],
    scripts: Sequence[Script],
    address: tuple[str, int],
    opened: list[_Connection],
) -> list[Got]:
    got: list[Got] = []
    connection: _Connection | None = None
    for exchange, name, script in zip(dialogue.exchanges, names, scripts, strict=True):
        if connection is None:
            connection = await _connected(address, opened)
        data, head = request_bytes(exchange.request, name)
        data = broken(data, exchange.request_damage)
        script.holding = connection.wake
        connection.begin(exchange)
        await _send(connection, exchange, data, head)
        got.append(await _answered(connection, exchange, script))
        if not _goes_on(connection, exchange, got[-1]):
            await _over(connection, exchange, got)
            connection = None
    if connection is not None:
        connection.leave("close")
        await connection.closed()
    return got


async def _pipelined(
    dialogue: Dialogue, names: Sequence[str], scripts: Sequence[Script], connection: _Connection
) -> list[Got]:
    pairs = zip(dialogue.exchanges, names, strict=True)
    data = b"".join([request_bytes(exchange.request, name)[0] for exchange, name in pairs])
    last = dialogue.exchanges[-1]
    connection.begin(dialogue.exchanges[0])
    if last.leave is not None and last.leave.moment == "sent":
        data = data[: last.leave.at or len(data)]
    await _send(connection, None, data, 0, dialogue.exchanges[0].request.cuts)
    if last.leave is not None and last.leave.moment == "sent":
        connection.leave(last.leave.how)
    got: list[Got] = []
    for index, (exchange, script) in enumerate(zip(dialogue.exchanges, scripts, strict=True)):
        script.holding = connection.wake
        if index:
            connection.begin(exchange)
        got.append(await _answered(connection, exchange, script))
        if not _goes_on(connection, exchange, got[-1]):
            break
    got += [_UNANSWERED] * (len(scripts) - len(got))
    connection.leave("close")
    await connection.closed()
    return got


async def _connected(address: tuple[str, int], opened: list[_Connection]) -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(_Connection, *address)
    opened.append(connection)
    return connection


async def _send(
    connection: _Connection,
    exchange: Exchange | None,
    data: bytes,
    head: int,
    cuts: tuple[int, ...] = (),
) -> None:
    leave = None if exchange is None else exchange.leave
    if exchange is not None:
        cuts = exchange.request.cuts
        if exchange.request.expects:
            cuts = (*cuts, head)
        if leave is not None and leave.moment == "sent":
            data = data[: leave.at]
    sent = 0
    for piece in cut(data, cuts):
        if exchange is not None and exchange.request.expects and sent == head:
            while not (connection.reader.interim or connection.reader.start or connection.end):
                await connection.news()
        if connection.transport is None or connection.reader.complete:
            break  # it was answered before all was sent
        connection.transport.write(piece)
        sent += len(piece)
        if sent < len(data):
            await turns(1)
    if leave is not None and leave.moment == "sent":
        connection.leave(leave.how)


async def _answered(connection: _Connection, exchange: Exchange, script: Script) -> Got:
    leave, reader = exchange.leave, connection.reader
    if exchange.slow and connection.transport is not None:
        connection.transport.pause_reading()
        await turns(exchange.slow)
        if connection.transport is not None:
            connection.transport.resume_reading()
    begun = connection.seen
    if exchange.request_damage:
        await turns(_PATIENCE)
        if not reader.complete:
            connection.leave("close")
    while not (reader.complete or connection.end or connection.fault):
        if leave is not None and not connection.left:
            if leave.moment == "got" and connection.seen - begun >= leave.at:
                connection.leave(leave.how)
                continue
            if leave.moment == "held" and script.held:
                await turns()
                connection.leave(leave.how)
                continue
        await connection.news()
    if leave is not None and not connection.left:
        connection.leave(leave.how)
    return Got(
        reader.start,
        reader.lines,
        bytes(reader.body),
        reader.complete,
        reader.framing,
        connection.end,
        connection.left,
        connection.fault,
        continued=reader.interim,
    )


def _goes_on(connection: _Connection, exchange: Exchange, got: Got) -> bool:
    """Whether another request may follow on the connection."""
    said = [value.lower() for name, value in got.lines if name.lower() == "connection"]
    kept = "close" not in said and (exchange.request.version == "HTTP/1.1" or "keep-alive" in said)
    over = got.end or got.left or got.fault or not got.complete or exchange.request_damage
    return kept and not over and connection.transport is not None


async def _over(connection: _Connection, exchange: Exchange, got: list[Got]) -> None:
    """Waits for the proxy to close a connection that it said it would, or ends it."""
    last = got[-1]
    if not last.left and (last.fault or not last.complete or exchange.request_damage):
        connection.leave("close")
    await connection.closed()
    if connection.reader.rest:
        got[-1] = replace(last, surplus=connection.reader.rest)
