"""The upstream that serves: one pool of connections for each server."""

from __future__ import annotations

import asyncio
import ssl

from router.fleet.model import Replica
from router.relay.upstream import UpstreamRequest, UpstreamResponse
from router.relay.wire import failures
from router.relay.wire.connection import Connection
from router.relay.wire.dial import Dialler, trusting_system
from router.relay.wire.head import request_head
from router.relay.wire.origin import origin_of
from router.relay.wire.pool import KEEP_S, Pool


class WireUpstream:
    """Sends requests over HTTP/1.1 and keeps connections to servers."""

    def __init__(self, tls: ssl.SSLContext | None = None, *, keep_s: float = KEEP_S) -> None:
        """Servers behind https are believed as `tls` says, which is as the system does."""
        self._tls = tls
        self._keep_s = keep_s
        self._pools: dict[str, Pool] = {}
        self._closed = False

    async def send(self, replica: Replica, request: UpstreamRequest) -> UpstreamResponse:
        """Sends a request; see `Upstream.send`."""
        pool = self._pools.get(replica.url) or self._pool(replica.url)
        head = request_head(pool.origin, request)
        connection = None if request.fresh else pool.take()
        if connection is None:
            connection = await self._dial(pool, replica)
        return await connection.exchange(head, request)

    async def _dial(self, pool: Pool, replica: Replica) -> Connection:
        return await pool.dial(replica.connect_s)

    def _pool(self, url: str) -> Pool:
        if self._closed:
            raise failures.unreachable("closed")
        try:
            origin = origin_of(url)
        except ValueError as error:
            raise failures.unreachable("no address") from error
        if origin.tls and self._tls is None:
            self._tls = trusting_system()
        dialler = Dialler(origin, self._tls if origin.tls else None)
        pool = Pool(origin, dialler, asyncio.get_running_loop(), self._keep_s)
        self._pools[url] = pool
        return pool

    async def close(self) -> None:
        """Closes all connections."""
        self._closed = True
        for pool in self._pools.values():
            await pool.close()
