"""The same seam over aiohttp's client: what the upstream that serves is measured against.

It has met everybody's servers, and is slower and less strict: it takes a reset for the end of a
body that only the connection ends, loses an answer that bytes follow in the same read, takes what
comes on a kept connection for the next answer, and notices broken chunks by the limit. The only
place where the HTTP client's exceptions are known.
"""

from __future__ import annotations

import asyncio
import io
from time import monotonic
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from router.errors import Reason
from router.fleet.model import Replica
from router.relay.upstream import STALE_S, Receive, UpstreamError, UpstreamRequest
from router.types import AttemptEnd, Headers

_LARGE_BODY = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_OK = 200
_HAS_BODY = frozenset(("POST", "PUT", "PATCH"))
_KEEPALIVE_S = 4.0
"""uvicorn and cpp-httplib close idle connections after 5 s."""
_CLOSED = "closed"


class _Try:
    """What is known of one request while it is on its way."""

    def __init__(self, header_s: float) -> None:
        self.limit = asyncio.timeout(None)
        self.reused = False
        self._header_s = header_s
        self._begun_s: float | None = None
        """When the first part was written."""
        self._sent_s = 0.0
        """When the last one was."""

    def sent(self) -> None:
        """A part of the request is written: the limit counts from the last."""
        self._sent_s = monotonic()
        if self._begun_s is None:
            self._begun_s = self._sent_s
        self.limit.reschedule(asyncio.get_running_loop().time() + self._header_s)

    @property
    def waited_s(self) -> float:
        """How long it is since the last part was written."""
        return monotonic() - self._sent_s

    @property
    def stale(self) -> bool:
        """Whether a connection that ends now was dead when it was taken."""
        if not self.reused or self._begun_s is None:
            return self.reused
        return monotonic() - self._begun_s <= STALE_S


class _Response:
    """An answer, read in a loop by whoever waits in `copy_to`."""

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float, *, waited_s: float) -> None:
        self._response = response
        self.waited_s = waited_s
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._error: UpstreamError | None = None
        self._over = False
        self._waiting_since: float | None = None
        self._timer = self._loop.call_later(idle_s, self._look)

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status

    @property
    def reason(self) -> str:
        """Reason phrase."""
        return _latin(self._response.reason or "")

    @property
    def headers(self) -> Headers:
        """Header lines."""
        return tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._response.raw_headers
        )

    async def copy_to(self, receive: Receive) -> None:
        """Hands over the body; see `UpstreamResponse.copy_to`."""
        try:
            while piece := await self._next():
                receive(piece)
        except BaseException:
            self.close()
            raise
        finally:
            self._over = True
            self._timer.cancel()

    async def _next(self) -> bytes:
        """The next piece; empty at the end."""
        piece = b""
        try:
            await self._may_read.wait()
            if self._error is None:
                self._waiting_since = self._loop.time()
                piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._error or _mapped(error) from error
        finally:
            self._waiting_since = None
        await self._may_read.wait()
        if self._error is not None:
            raise self._error
        return piece

    def _look(self) -> None:
        # The client's own limit ends with the connection, and broken framing would leave a reader
        # waiting for ever. One timer does for the whole answer.
        now = self._loop.time()
        since = now if self._waiting_since is None else self._waiting_since
        left_s = since + self._idle_s - now
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._response.content.set_exception(TimeoutError())

    def pause(self) -> None:
        """Reads no more until `resume`; the client stops when its buffer is full."""
        self._may_read.clear()

    def resume(self) -> None:
        """Reads on."""
        self._may_read.set()

    def abort(self, error: UpstreamError) -> None:
        """Cuts the connection; see `UpstreamResponse.abort`."""
        if not self._over:
            self._error = error
            self._response.close()
            self._response.content.set_exception(ConnectionResetError())
            self._may_read.set()

    def close(self) -> None:
        """Hands the connection back if the body was read to its end, and closes it otherwise."""
        self._timer.cancel()
        if self._response.content.at_eof():
            self._response.release()
        self.abort(UpstreamError(AttemptEnd.DISCONNECTED, Reason.UPSTREAM_UNAVAILABLE, _CLOSED))


class AiohttpUpstream:
    """Sends requests with aiohttp's client; one session for each server."""

    def __init__(self, *, keep_s: float = _KEEPALIVE_S) -> None:
        self._keep_s = keep_s
        self._sessions: dict[tuple[str, bool], aiohttp.ClientSession] = {}

    async def send(self, replica: Replica, request: UpstreamRequest) -> _Response:
        """Sends a request; see `Upstream.send`."""
        session = self._session(replica, fresh=request.fresh)
        attempt = _Try(request.header_s)
        try:
            async with attempt.limit:
                response = await session.request(
                    request.method,
                    URL(replica.url + request.path_qs, encoded=True),
                    headers=_headers(request),
                    data=_payload(request.body),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=replica.connect_s),
                    trace_request_ctx=attempt,
                )
        except (aiohttp.ClientError, OSError, TimeoutError, UnicodeError) as error:
            mapped = _mapped(error)
            # A limit that was reached is an OSError too.
            lost = mapped.end is AttemptEnd.DISCONNECTED and attempt.stale
            if lost and isinstance(error, aiohttp.ServerDisconnectedError | OSError):
                mapped.end = AttemptEnd.STALE
            raise mapped from error
        if response.status < _OK:
            # A switch of protocols that nobody asked for, or no status at all.
            response.close()
            raise UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
            )
        return _Response(response, request.idle_s, waited_s=attempt.waited_s)

    def _session(self, replica: Replica, *, fresh: bool) -> aiohttp.ClientSession:
        # One for each server, so that no server's trouble uses up another's connections; and one
        # beside it that keeps none alive.
        session = self._sessions.get((replica.url, fresh))
        if session is None:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    force_close=fresh,
                    keepalive_timeout=None if fresh else self._keep_s,
                    ttl_dns_cache=30,
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                trace_configs=[_trace()],
            )
            self._sessions[replica.url, fresh] = session
        return session

    async def close(self) -> None:
        """Closes all connections."""
        for session in self._sessions.values():
            await session.close()


def _trace() -> aiohttp.TraceConfig:
    trace = aiohttp.TraceConfig()

    async def reused(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.reused = True

    async def sent(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.sent()

    trace.on_connection_reuseconn.append(reused)
    trace.on_request_headers_sent.append(sent)
    trace.on_request_chunk_sent.append(sent)
    return trace


def _headers(request: UpstreamRequest) -> CIMultiDict[str]:
    # The client writes UTF-8, so what is text in latin-1 here must be read as that first.
    lines = CIMultiDict((name, _utf8(value)) for name, value in request.headers)
    if request.body or request.method in _HAS_BODY:
        lines["Content-Length"] = str(len(request.body))
    return lines


def _utf8(value: str) -> str:
    return (
        value if value.isascii() else value.encode("latin-1", "replace").decode("utf-8", "replace")
    )


def _latin(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("latin-1")


def _payload(body: bytes) -> io.BytesIO | bytes | None:
    # A large body is written piece by piece, so that others are served in between.
    return io.BytesIO(body) if len(body) > _LARGE_BODY else body or None


def _mapped(error: Exception) -> UpstreamError:
    match error:
        case (
            aiohttp.ConnectionTimeoutError()
            | aiohttp.ClientConnectorError()
            | aiohttp.InvalidURL()
            | UnicodeError()
        ):
            return UpstreamError(
                AttemptEnd.UNREACHABLE, Reason.UPSTREAM_UNAVAILABLE, "no connection"
            )
        case TimeoutError():
            return UpstreamError(
                AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "no data within the limit"
            )
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            return UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_UNAVAILABLE, "connection lost"
            )
        case _:
            return UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
            )
