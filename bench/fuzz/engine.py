"""The engine: keeps what it got, and answers as the case says, byte for byte and cut for cut."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

from bench.fuzz.model import Answer, Damage, Lines, answer_bytes, broken, cut
from bench.fuzz.reading import MalformedError, MessageReader

_HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
_UNKNOWN = b"HTTP/1.1 500 Unknown\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)
_LARGE = 1 << 16


@dataclass(slots=True)
class Received:
    """One request, as far as it has come."""

    start: str
    lines: Lines
    body: bytes = b""
    complete: bool = False


@dataclass(slots=True)
class Script:
    """How one exchange is answered, and what became of it."""

    answer: Answer
    bodiless: bool
    damage: tuple[Damage, ...] = ()
    received: list[Received] = field(default_factory=list)
    held: bool = False
    """The answer has come to where it holds."""
    holding: Callable[[], None] | None = None
    """Told of that."""
    whole: bool = True
    """All of the answer is sent."""
    pieces: tuple[bytes, ...] = ()
    """The writes of the answer, up to where it breaks or holds."""

    def __post_init__(self) -> None:
        answer = self.answer
        text = broken(answer_bytes(answer, bodiless=self.bodiless), self.damage)
        end = answer.breaks_at if answer.holds_at is None else answer.holds_at
        self.whole = end is None or end >= len(text)
        self.pieces = tuple(cut(text[:end], answer.cuts))


class Engine:
    """All connections of one engine."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        """By the name that the request carries."""
        self.connections: set[EngineConnection] = set()
        self.strangers = 0
        """Requests under no name that it knows."""
        self.faults: list[str] = []
        """What no case explains."""

    @property
    def busy(self) -> int:
        """Connections in the middle of an exchange."""
        return sum(connection.busy for connection in self.connections)


class EngineConnection(asyncio.Protocol):
    """One connection from the proxy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = MessageReader(requests=True)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._script: Script | None = None
        self._received: Received | None = None
        self._left: Iterator[bytes] = iter(())
        self._paused = self._waits = False
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The proxy has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._engine.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whomever."""
        del exc
        self._transport = None
        self._engine.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._reader.feed(data)
        except MalformedError as error:
            self._engine.faults.append(f"engine was sent no HTTP: {error}")
            self._close()
            return
        if self._reader.start and self._received is None:
            self._begin()
        if self._received is not None and self._reader.complete and not self._received.complete:
            self._received.body = bytes(self._reader.body)
            self._received.complete = True
            self._answer()
            if self._reader.rest:
                self._engine.faults.append("engine was sent more than a request")

    def _begin(self) -> None:
        reader = self._reader
        self.busy = True
        self._received = Received(reader.start, reader.lines)
        name = next(iter(reader.values("x-fuzz")), "")
        self._script = self._engine.scripts.get(name)
        if self._script is not None:
            self._script.received.append(self._received)
        elif not reader.start.startswith("GET "):
            self._engine.strangers += 1

    def _answer(self) -> None:
        if self._script is None:
            probe = self._reader.start.startswith("GET ")
            self._write(_HEALTHY if probe else _UNKNOWN)
            self._close()
            return
        self._left = iter(self._script.pieces)
        self._step()

    def _step(self) -> None:
        """One write in each turn of the loop, so that each is a read of its own."""
        if self._transport is None or self._script is None:
            return
        if self._paused:
            self._waits = True
            return
        piece = next(islice(self._left, 1), None)
        if piece is not None:
            self._write(piece)
            self._loop.call_soon(self._step)
            return
        answer = self._script.answer
        if answer.holds_at is not None and not self._script.whole:
            self._script.held = True
            if self._script.holding is not None:
                self._script.holding()
            return
        if answer.breaks_at is not None:
            self._close(reset=answer.resets)
        elif answer.closes or self._script.damage:
            self._close()
        else:
            self._next()

    def _next(self) -> None:
        self.busy = False
        self._script = self._received = None
        self._reader.begin()
        self._reader_goes_on()

    def _reader_goes_on(self) -> None:
        if self._reader.rest:
            self.data_received(b"")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _close(self, *, reset: bool = False) -> None:
        transport = self._transport
        if transport is None:
            return
        if reset:
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _RESET
            )
            transport.abort()
        else:
            transport.close()

    def pause_writing(self) -> None:
        """The proxy takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does."""
        self._paused = False
        if self._waits:
            self._waits = False
            self._step()
