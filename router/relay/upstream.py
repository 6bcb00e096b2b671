"""One try at one server: the protocol, and its form over aiohttp's client.

The only place where the HTTP client's exceptions are known; outside there is `UpstreamError`.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What is sent."""

    method: str
    path_qs: str
    headers: Headers
    body: bytes


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


@dataclass(frozen=True, slots=True)
class _Response:
    response: aiohttp.ClientResponse

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Headers:
        return tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self.response.raw_headers
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _mapped(error) from error


class AiohttpUpstream:
    """Connections to servers, kept alive for a little less long than engines keep them."""

    KEEPALIVE_S = 4.0
    """uvicorn and cpp-httplib close idle connections after 5 s."""

    def __init__(self) -> None:
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    @asynccontextmanager
    async def open(
        self, replica: Replica, request: UpstreamRequest
    ) -> AsyncIterator[UpstreamResponse]:
        """Sends a request; see `Upstream.open`."""
        session = self._session(replica)
        try:
            response = await session.request(
                request.method,
                URL(replica.url + request.path_qs, encoded=True),
                headers=CIMultiDict(request.headers),
                data=request.body or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=replica.connect_s, sock_read=replica.idle_s
                ),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _mapped(error) from error
        try:
            yield _Response(response)
        finally:
            # Hands the connection back if the body was read to its end, and closes it otherwise:
            # that is how an engine learns that nobody waits any more.
            response.close() if not response.content.at_eof() else response.release()

    def _session(self, replica: Replica) -> aiohttp.ClientSession:
        # One for each server, so that no server's trouble uses up another's connections.
        session = self._sessions.get(replica.url)
        if session is None:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=self.KEEPALIVE_S, ttl_dns_cache=30
                ),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
            self._sessions[replica.url] = session
        return session

    async def close(self) -> None:
        """Closes all connections."""
        for session in self._sessions.values():
            await session.close()


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
