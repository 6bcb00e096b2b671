"""The seam over aiohttp's client: what `relay/wire/` is measured and tested against.

The only place where that client's exceptions are known; outside there is `UpstreamError`.
"""

from __future__ import annotations

import asyncio
import io

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from router.errors import Reason
from router.fleet.model import Replica
from router.relay.upstream import Receive, UpstreamError, UpstreamRequest
from router.types import AttemptEnd, Headers

_LARGE_BODY = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_OK = 200


class _Response:
    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s
        self._error: UpstreamError | None = None
        self._reading = asyncio.Event()
        self._reading.set()

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def reason(self) -> str:
        return self._response.reason or ""

    @property
    def headers(self) -> Headers:
        return tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._response.raw_headers
        )

    async def copy_to(self, receive: Receive) -> None:
        try:
            while True:
                await self._reading.wait()
                async with asyncio.timeout(self._idle_s):
                    piece = await self._response.content.readany()
                if self._error is not None:
                    raise self._error
                if not piece:
                    return
                receive(piece)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._error or _mapped(error) from error

    def pause(self) -> None:
        self._reading.clear()

    def resume(self) -> None:
        self._reading.set()

    def abort(self, error: UpstreamError) -> None:
        self._error = error
        self._response.content.set_exception(aiohttp.ClientPayloadError())
        self._response.close()
        self._reading.set()

    def close(self) -> None:
        done = self._response.content.at_eof()
        self._response.release() if done else self._response.close()


class ReferenceUpstream:
    """Connections to servers, kept alive for a little less long than engines keep them."""

    KEEPALIVE_S = 4.0
    """uvicorn and cpp-httplib close idle connections after 5 s."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, bool], aiohttp.ClientSession] = {}

    async def send(self, replica: Replica, request: UpstreamRequest) -> _Response:
        """Sends a request; see `Upstream.send`."""
        session = self._session(replica, fresh=request.fresh)
        try:
            response = await session.request(
                request.method,
                URL(replica.url + request.path_qs, encoded=True),
                headers=CIMultiDict(
                    (name, value.encode("latin-1").decode("utf-8", "replace"))
                    for name, value in request.headers
                ),
                data=_payload(request.body),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=replica.connect_s, sock_read=request.header_s
                ),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _mapped(error, fresh=request.fresh) from error
        if response.status < _OK:
            # A switch of protocols that nobody asked for, or no status at all.
            response.close()
            raise UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
            )
        return _Response(response, request.idle_s)

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


def _mapped(error: Exception, *, fresh: bool = True) -> UpstreamError:
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
            end = AttemptEnd.DISCONNECTED if fresh else AttemptEnd.STALE
            return UpstreamError(end, Reason.UPSTREAM_UNAVAILABLE, "connection lost")
        case _:
            return UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
            )
