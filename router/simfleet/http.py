"""A small HTTP/1.1 server that writes heads and chunks exactly as the simulated engine does.

Server libraries decide themselves about the order of headers and where chunks end; here both are
the point.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast

import httptools

from router.simfleet.settings import Kind

Headers = list[tuple[str, str]]

_MAX_BODY = 64 * 1024 * 1024
_JSON = "application/json"
_EVENTS = "text/event-stream"


@dataclass(slots=True)
class Received:
    """One request."""

    method: str = ""
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = b""
    keep_alive: bool = True


class Manner:
    """How an engine's server writes heads."""

    def __init__(self, kind: Kind, wall: Callable[[], float]) -> None:
        self._kind = kind
        self._wall = wall

    def head(  # noqa: D417 - the names say it
        self,
        status: int,
        *,
        close: bool,
        length: int | None,
        content: str | None = _JSON,
        extra: Iterable[tuple[str, str]] = (),
        bare: bool = False,
    ) -> bytes:
        """Status line and headers.

        Args:
            length: Of the body; None for one in chunks.
            bare: Leaves out what middleware behind the check of keys would have added.
        """
        phrase = HTTPStatus(status).phrase
        write = self._llama if self._kind is Kind.LLAMACPP else self._uvicorn
        lines = [f"HTTP/1.1 {status} {phrase}"]
        lines += write(close=close, length=length, content=content, extra=extra, bare=bare)
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _uvicorn(
        self,
        *,
        close: bool,
        length: int | None,
        content: str | None,
        extra: Iterable[tuple[str, str]],
        bare: bool,
    ) -> list[str]:
        lines = [f"date: {formatdate(self._wall(), usegmt=True)}", "server: uvicorn"]
        lines += [f"{name}: {value}" for name, value in extra]
        if length is not None:
            lines.append(f"content-length: {length}")
        if content:
            utf8 = "; charset=utf-8" if content == _EVENTS else ""
            lines.append(f"content-type: {content}{utf8}")
        if not bare:
            lines.append("vary: Origin")
        if close:
            lines.append("connection: close")
        if length is None:
            lines.append("transfer-encoding: chunked")
        return lines

    def _llama(
        self,
        *,
        close: bool,
        length: int | None,
        content: str | None,
        extra: Iterable[tuple[str, str]],
        bare: bool,
    ) -> list[str]:
        del bare
        lines = ["Server: llama.cpp", "Access-Control-Allow-Origin: "]
        lines += [f"{name}: {value}" for name, value in extra]
        if length is None:
            lines.append("X-Accel-Buffering: no")
        if content:
            utf8 = "; charset=utf-8" if content == _JSON else ""
            lines.append(f"Content-Type: {content}{utf8}")
        lines.append(
            "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        )
        lines.append("Connection: close" if close else "Keep-Alive: timeout=5, max=100")
        return lines


class Reply:
    """The way back to one client, for one request."""

    def __init__(self, connection: Connection, manner: Manner, *, close: bool) -> None:
        self._connection = connection
        self._manner = manner
        self._close = close
        self._streaming = False
        self.ended = False
        self.on_gone: Callable[[], None] | None = None
        """Called once if the client leaves before the end."""

    def whole(
        self,
        status: int,
        body: bytes,
        *,
        content: str | None = _JSON,
        extra: Iterable[tuple[str, str]] = (),
        bare: bool = False,
    ) -> None:
        """Answers at once."""
        head = self._manner.head(
            status, close=self._close, length=len(body), content=content, extra=extra, bare=bare
        )
        self._connection.write(head + body)
        self._end()

    def start(self, content: str = _EVENTS) -> None:
        """Sends the head of a stream."""
        self._streaming = True
        self._connection.write(
            self._manner.head(HTTPStatus.OK, close=self._close, length=None, content=content)
        )

    def chunks(self, parts: list[bytes]) -> None:
        """Sends parts of a stream, each as a chunk of its own."""
        if parts and not self.ended:
            framed = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
            self._connection.write(b"".join(framed))

    def raw(self, data: bytes) -> None:
        """Sends bytes as they are, whatever becomes of the framing."""
        if not self.ended:
            self._connection.write(data)

    def end(self) -> None:
        """Ends a stream."""
        if self._streaming and not self.ended:
            self._connection.write(b"0\r\n\r\n")
        self._end()

    def cut(self) -> None:
        """Breaks the connection off."""
        self.ended = True
        self.on_gone = None
        self._connection.abort()

    def gone(self) -> None:
        """The client has left."""
        left, self.on_gone, self.ended = self.on_gone, None, True
        if left:
            left()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self.on_gone = None
            self._connection.answered(close=self._close)


Handler = Callable[[Received, Reply], None]


class Connection(asyncio.Protocol):
    """One client connection; requests on it are answered one after the other."""

    def __init__(self, handler: Handler, manner: Manner, open_: set[Connection]) -> None:
        self._handler = handler
        self._manner = manner
        self._open = open_
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Received] = deque()
        self._request = Received()
        self._parts: list[bytes] = []
        self._reply: Reply | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # Transports of uvloop are not of asyncio's class, but they do all that it does.
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        del exc  # how it was lost makes no difference
        self._open.discard(self)
        self._transport = None
        self._waiting.clear()
        if self._reply is not None:
            self._reply.gone()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def eof_received(self) -> bool:
        """A client that ends its side has left: that is how engines see it."""
        return False

    def on_message_begin(self) -> None:
        """See httptools."""
        self._request, self._parts = Received(), []

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        path, _, query = url.decode("latin-1").partition("?")
        self._request.path += path
        self._request.query += query

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """See httptools."""
        if self._request.headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._parts.append(body)
        if sum(map(len, self._parts)) > _MAX_BODY:
            self.abort()

    def on_message_complete(self) -> None:
        """See httptools."""
        request = self._request
        request.method = self._parser.get_method().decode("latin-1")
        request.keep_alive = self._parser.should_keep_alive()
        request.body = b"".join(self._parts)
        self._waiting.append(request)
        self._next()

    def _next(self) -> None:
        if self._reply is not None or not self._waiting or self._transport is None:
            return
        request = self._waiting.popleft()
        self._reply = Reply(self, self._manner, close=not request.keep_alive)
        self._handler(request, self._reply)

    def write(self, data: bytes) -> None:
        """Sends bytes, if there is still somebody."""
        if self._transport is not None:
            self._transport.write(data)

    def answered(self, *, close: bool) -> None:
        """An answer is complete."""
        self._reply = None
        if close and self._transport is not None:
            self._transport.close()
        else:
            self._next()

    def abort(self) -> None:
        """Breaks off, without waiting for what was written."""
        if self._transport is not None:
            self._transport.abort()


class HttpServer:
    """Listens on one port."""

    def __init__(self, handler: Handler, manner: Manner) -> None:
        self._handler = handler
        self._manner = manner
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Begins to listen; returns the port."""
        loop = asyncio.get_running_loop()

        def connect() -> Connection:
            return Connection(self._handler, self._manner, self._connections)

        self._server = await loop.create_server(connect, host, port, backlog=1024)
        address: Any = self._server.sockets[0].getsockname()
        return int(address[1])

    def drop(self) -> None:
        """Breaks every connection off."""
        for connection in tuple(self._connections):
            connection.abort()

    async def stop(self) -> None:
        """Ends everything."""
        if self._server is not None:
            self._server.close()
            self.drop()
            await self._server.wait_closed()
