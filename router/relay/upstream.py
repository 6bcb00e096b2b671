"""One try at one server: the protocol, and its form over aiohttp's client.

The only place where the HTTP client's exceptions are known; outside there is `UpstreamError`.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from router.errors import Reason
from router.fleet.model import Replica
from router.types import AttemptEnd, Headers

_LARGE_BODY = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_OK = 200


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What is sent."""

    method: str
    path_qs: str
    headers: Headers
    body: bytes
    fresh: bool = False
    """On a new connection: those kept alive may all have been closed by the server."""


class UpstreamError(Exception):
    """A try that brought no complete answer."""

    def __init__(self, end: AttemptEnd, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.end = end
        self.reason = reason


class UpstreamResponse(Protocol):
    """An answer whose status line and headers are here, and whose body is coming."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Headers:
        """Header lines as received."""

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, still in its content coding.

        Raises:
            UpstreamError: It broke off or stood still for too long.
        """


class Upstream(Protocol):
    """Sends requests to servers."""

    def open(
        self, replica: Replica, request: UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamResponse]:
        """Sends a request; leaving the block before the body's end closes the connection.

        Raises:
            UpstreamError: There was no answer.
        """


class _PatientReader:
    """Reads a body, but waits for no piece of it longer than the limit.

    The HTTP client's own limit ends with the connection, and it does not always tell a reader that
    the connection has ended: broken framing would leave one waiting for ever. One timer does for
    the whole answer, because a timer for each piece would cost more than the piece.
    """

    def __init__(self, content: aiohttp.StreamReader, limit_s: float) -> None:
        self._content = content
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._waiting_since: float | None = None
        self._timer = self._loop.call_later(limit_s, self._look)

    async def read(self) -> bytes:
        """What has come, or the next piece; empty at the end."""
        self._waiting_since = self._loop.time()
        try:
            return await self._content.readany()
        finally:
            self._waiting_since = None

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._waiting_since is None else self._waiting_since
        left_s = since + self._limit_s - now
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._content.set_exception(TimeoutError())

    def close(self) -> None:
        """Nobody reads any more."""
        self._timer.cancel()


@dataclass(frozen=True, slots=True)
class _Response:
    response: aiohttp.ClientResponse
    body: _PatientReader

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Headers:
        return tuple(
            (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
            for name, value in self.response.raw_headers
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self.body.read():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _mapped(error) from error


class AiohttpUpstream:
    """Connections to servers, kept alive for a little less long than engines keep them."""

    KEEPALIVE_S = 4.0
    """uvicorn and cpp-httplib close idle connections after 5 s."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, bool], aiohttp.ClientSession] = {}

    @asynccontextmanager
    async def open(
        self, replica: Replica, request: UpstreamRequest
    ) -> AsyncIterator[UpstreamResponse]:
        """Sends a request; see `Upstream.open`."""
        session = self._session(replica, fresh=request.fresh)
        try:
            response = await session.request(
                request.method,
                URL(replica.url + request.path_qs, encoded=True),
                headers=CIMultiDict(request.headers),
                data=_payload(request.body),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=replica.connect_s, sock_read=replica.idle_s
                ),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _mapped(error) from error
        if response.status < _OK:
            # A switch of protocols that nobody asked for, or no status at all.
            response.close()
            raise UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
            )
        body = _PatientReader(response.content, replica.idle_s)
        try:
            yield _Response(response, body)
        finally:
            body.close()
            # Hands the connection back if the body was read to its end, and closes it otherwise:
            # that is how an engine learns that nobody waits any more.
            response.close() if not response.content.at_eof() else response.release()

    def _session(self, replica: Replica, *, fresh: bool) -> aiohttp.ClientSession:
        # One for each server, so that no server's trouble uses up another's connections; and one
        # beside it that keeps none alive.
        session = self._sessions.get((replica.url, fresh))
        if session is None:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    force_close=fresh,
                    keepalive_timeout=None if fresh else self.KEEPALIVE_S,
                    ttl_dns_cache=30,
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
            self._sessions[replica.url, fresh] = session
        return session

    async def close(self) -> None:
        """Closes all connections."""
        for session in self._sessions.values():
            await session.close()


def _payload(body: bytes) -> io.BytesIO | bytes | None:
    # A large body is written piece by piece, so that others are served in between.
    return io.BytesIO(body) if len(body) > _LARGE_BODY else body or None


def _mapped(error: Exception) -> UpstreamError:
    match error:
        case aiohttp.ConnectionTimeoutError() | aiohttp.ClientConnectorError():
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
