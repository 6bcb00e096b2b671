"""The client's side of the relay over aiohttp's server, whose response machinery it passes by.

aiohttp reads requests and keeps connections; the answer is written to the transport as it comes,
because a second HTTP stack for every piece of a stream would cost more than all else here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError

from router.endpoints.cors import Cors
from router.errors import Reason, RequestError
from router.relay.sink import Feeder, Unfinished
from router.types import Headers

STALLED_S = 60.0
"""A client that takes or sends nothing for so long has gone, even if its connection has not; what
nginx's `send_timeout` is by default. For taking it only begins once all buffers are full."""

MAX_HEADER_BYTES = 64 * 1024
"""Of a header's value and of the request line: as much as engines take."""

MAX_HEAD_BYTES = 256 * 1024
"""Of all lines together, which no limit on bodies counts."""

_MAX_HEADERS = 256
_TOO_LARGE_BODY = RequestError(
    Reason.INVALID_REQUEST, "The head of the request is too large."
).body()
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)

_log = logging.getLogger("specroute.http")


class _Discreet(logging.Filter):
    """aiohttp quotes what it could not read of a request, keys and prompts included."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets everything else pass."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
            return True
        _log.info("request is not readable as HTTP", extra={"error": type(error).__name__})
        return False


SERVER_LOG = logging.getLogger("specroute.server")
"""What aiohttp's server itself has to say."""
SERVER_LOG.addFilter(_Discreet())

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """One client connection; tells the sink in use when the client is slow."""

    sink: ClientSink | None = None
    body: StreamReader | None = None
    """Of the request in work."""
    _head_bytes = 0
    """Read of a head that is not whole."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop; asking for the running one is a system call before Python 3.12."""
        return self._loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if isinstance(transport, asyncio.WriteTransport):
            # Each write goes to the socket at once instead of in a round of the loop of its own,
            # and what the socket does not take is all that is held for a slow client.
            transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests, within limits that aiohttp does not have.

        Where the framing of a body breaks its reader is told; aiohttp would have it wait for the
        rest until its patience ends. And a head is bounded as a whole, not only line by line.
        """
        body = self.body
        if not data and body is not None and body.is_eof() and not self._buffer_paused:
            # Whoever reads the end of a body asks the parser to go on, which has nothing left.
            return
        super().data_received(data)
        body = self.body
        if body is not None and not body.is_eof() and self._messages:
            message, _ = self._messages[-1]
            if not isinstance(message, RawRequestMessage):
                self.body = None
                body.set_exception(web.RequestPayloadError("broken framing"))
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._head_bytes = 0  # a request is there, and whatever comes now belongs to it
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and self.transport is not None:
            self.transport.write(_HEAD_TOO_LARGE)
            self.force_close()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        super().pause_writing()
        if self.sink is not None:
            self.sink.full()

    def resume_writing(self) -> None:
        """It has room again."""
        super().resume_writing()
        if self.sink is not None:
            self.sink.drained()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has left."""
        if self.sink is not None:
            self.sink.lost()
        self.sink = self.body = None
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers what is not readable as HTTP, in a shape that clients can parse."""
        super().handle_error(request, status, exc, message)
        error = RequestError(Reason.INVALID_REQUEST, "The request is not readable as HTTP.")
        if status >= 500:  # noqa: PLR2004
            error = RequestError(Reason.INTERNAL, "Internal error.")
        response = web.Response(
            status=error.http_status, body=error.body(), content_type="application/json"
        )
        response.force_close()
        return response


class Server(web.Server):
    """aiohttp's server with connections of our kind."""

    def __init__(self, handler: Handler, *, keepalive_s: float) -> None:
        self._options: dict[str, Any] = {
            "access_log": None,
            "logger": SERVER_LOG,
            "max_line_size": MAX_HEADER_BYTES,
            "max_field_size": MAX_HEADER_BYTES,
            "max_headers": _MAX_HEADERS,
            "keepalive_timeout": keepalive_s,
        }
        super().__init__(handler, handler_cancellation=True, **self._options)

    def __call__(self) -> Connection:
        """Makes the protocol of a new connection."""
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)


class _Sent(web.StreamResponse):
    """Tells aiohttp that head and body are on their way already. Keeps nothing, so two will do."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keeps_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing is left to send."""
        del request
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""

    @property
    def keep_alive(self) -> bool | None:
        """Whether another request may follow on the connection."""
        return self._keeps_alive


_SENT_AND_KEPT, _SENT_AND_CLOSED = _Sent(keep_alive=True), _Sent(keep_alive=False)


def may_hold_trailers(asked: Headers) -> bool:
    """Whether a request's connection must not carry another one.

    aiohttp's parser keeps the last trailer of a chunked body and takes it for the first header of
    the next request on the connection, which may be somebody else's where a proxy stands in front.
    """
    return any(name.lower() == "transfer-encoding" for name, _ in asked)


_WITHOUT_BODY = frozenset((204, 304))
_UNHELD = {
    "x-accel-buffering": "X-Accel-Buffering: no",
    "cache-control": "Cache-Control: no-cache",
}


class ClientSink:
    """The answer to one request, written to the client's transport."""

    __slots__ = (
        "_aborted",
        "_asked",
        "_chunked",
        "_cors",
        "_feeder",
        "_full_since",
        "_head",
        "_held_s",
        "_keep_alive",
        "_mute",
        "_stalled",
        "_taken",
        "_transport",
        "_version11",
        "_waiting_bytes",
        "ended",
        "left",
        "loop",
        "status",
        "takes_events",
    )

    def __init__(
        self, request: web.BaseRequest, asked: Headers = (), cors: Cors | None = None
    ) -> None:
        self._asked = asked
        self._cors = cors
        connection = request.protocol
        self._transport = request.transport
        # As `may_hold_trailers` says, which is slower.
        self._keep_alive = request.keep_alive and "Transfer-Encoding" not in request.headers
        self._version11 = request.version >= HttpVersion11
        self._mute = request.method == "HEAD"
        """Whether no bytes of a body are sent, or no more."""
        self._head: bytes | None = None
        self._chunked = False
        self._aborted = False
        self._held_s = 0.0
        self._full_since: float | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._taken: asyncio.Future[None] | None = None
        self._waiting_bytes = 0
        self._feeder: Feeder | None = None
        self.status: int | None = None
        self.takes_events = False
        """Whether the body is one of events to which others can be added."""
        self.ended = False
        """Whether the answer is whole; nothing can be said after it."""
        self.left: Unfinished | None = None
        """The answer that goes on no more, if it had begun."""
        if not isinstance(connection, Connection):
            self.loop = asyncio.get_running_loop()
        else:
            self.loop = connection.loop
            connection.sink = self
            connection.body = request.content
            if connection.writing_paused:
                self.full()

    def feed_from(self, feeder: Feeder | None) -> None:
        """Names what the bytes come from now."""
        self._feeder = feeder
        if feeder is not None and self._full_since is not None:
            feeder.pause()

    def left_at(self, answer: Unfinished) -> None:
        """Keeps how far the answer has come."""
        self.left = answer

    @property
    def started(self) -> bool:
        """Whether a status line has been given."""
        return self.status is not None

    @property
    def held_s(self) -> float:
        """How long the client has kept its feeder waiting."""
        if self._full_since is None:
            return self._held_s
        return self._held_s + self.loop.time() - self._full_since

    @property
    def response(self) -> web.StreamResponse:
        """What aiohttp is told."""
        return _SENT_AND_KEPT if self._keep_alive else _SENT_AND_CLOSED

    def start(self, status: int, reason: str, headers: Headers) -> None:
        """Gives the status line and the headers; they leave with the first bytes of the body."""
        self.status = status
        if self._cors is not None:
            headers = self._cors.answered(self._asked, headers)
        given = {name.lower(): value for name, value in headers}
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
        media_type = given.get("content-type", "").partition(";")[0].strip().lower()
        if media_type == "text/event-stream":
            self.takes_events = not {"content-encoding", "content-length"} & given.keys()
            # Proxies in front of us must not hold the stream back.
            lines += [line for name, line in _UNHELD.items() if name not in given]
        self._mute |= status in _WITHOUT_BODY
        if "content-length" not in given and not self._mute:
            self._chunked = self._version11
            self._keep_alive &= self._version11
        if self._chunked:
            lines.append("Transfer-Encoding: chunked")
        if not self._keep_alive:
            lines.append("Connection: close")
        elif not self._version11:
            lines.append("Connection: keep-alive")
        lines.append("\r\n")
        self._head = "\r\n".join(lines).encode("latin-1")

    def write(self, data: bytes) -> None:
        """Sends bytes of the body."""
        transport = self._transport
        if transport is None or self._mute:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head is not None:
            data = self._head + data
            self._head = None
        transport.write(data)

    async def close(self) -> None:
        """Ends the body and returns once the client has taken nearly all of it."""
        transport = self._transport
        if transport is None or self._aborted or self.ended:
            return
        self.ended = True
        end = b"0\r\n\r\n" if self._chunked else b""
        if self._head is not None:
            end = self._head + end
            self._head = None
        if end:
            transport.write(end)
        self._mute = True
        if self._full_since is not None:
            self._taken = self.loop.create_future()
            await self._taken

    def abort(self) -> None:
        """Cuts the connection."""
        transport = self._transport
        self._keep_alive = False
        if transport is None or self._aborted:
            return
        self._aborted = True
        connection = transport.get_extra_info("socket")
        if connection is not None:
            # A reset, because to a client of HTTP/1.0 an orderly end is the end of the body.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    # --- Told by the connection ------------------------------------------------------------------

    def full(self) -> None:
        """The client does not keep up."""
        if self._full_since is None:
            self._full_since = self.loop.time()
            self._watch()
        if self._feeder is not None:
            self._feeder.pause()

    def drained(self) -> None:
        """The client has caught up."""
        if self._full_since is not None:
            self._held_s += self.loop.time() - self._full_since
            self._full_since = None
        self._settle()
        if self._feeder is not None:
            self._feeder.resume()

    def _watch(self) -> None:
        if self._transport is not None:
            self._waiting_bytes = self._transport.get_write_buffer_size()
            self._stalled = self.loop.call_later(STALLED_S, self._look)

    def _look(self) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < self._waiting_bytes:
            self._watch()  # slow, but taking
        else:
            self.abort()

    def lost(self) -> None:
        """The connection is gone; whoever serves the request is cancelled by aiohttp."""
        self._transport = None
        self._settle()

    def _settle(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
