"""One server: its connections, those at work and those kept for the next request."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Protocol

from router.relay.wire import failures
from router.relay.wire.connection import Connection, Owner
from router.relay.wire.origin import Origin

KEEP_S = 4.0
"""uvicorn and cpp-httplib close idle connections after 5 s."""
_SWEEP_AT_MOST = 0.05
"""Share of that time between two sweeps, each of which looks through all that are idle."""


class Dials(Protocol):
    """Makes connections to one server."""

    async def dial(self, owner: Owner) -> Connection:
        """A new connection."""


class Pool:
    """Connections to one server; it has no limit, admission being a matter of the fleet.

    The last one used is the first to be used again, so that a pool which a rush has made large
    shrinks afterwards.
    """

    def __init__(
        self,
        origin: Origin,
        dialler: Dials,
        loop: asyncio.AbstractEventLoop,
        keep_s: float = KEEP_S,
    ) -> None:
        self.origin = origin
        self._loop = loop
        self._dialler = dialler
        self._keep_s = keep_s
        self._idle: dict[Connection, float] = {}
        """Since when, in that order."""
        self._all: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] | None = None

    def take(self) -> Connection | None:
        """A kept connection that is still good, as far as one can know."""
        while self._idle:
            connection, since = self._idle.popitem()
            if connection.closing:
                continue
            if monotonic() - since < self._keep_s and connection.quiet:
                return connection
            connection.cut()
        return None

    async def dial(self, limit_s: float) -> Connection:
        """A new connection.

        Raises:
            UpstreamError: There was none within the limit.
        """
        if self._closed is not None:
            raise failures.unreachable("closed")
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._dialler.dial(self)
        except (OSError, RuntimeError, ValueError) as error:
            raise failures.unreachable("no connection") from error
        # Not before: uvloop does not tell a connection of its end when its dialling is cancelled.
        self._know(connection)
        return connection

    def _know(self, connection: Connection) -> None:
        if not connection.lost:
            self._all.add(connection)
        if self._closed is not None:
            connection.cut()

    def free(self, connection: Connection) -> None:
        """It can carry another exchange."""
        self._idle[connection] = monotonic()
        if self._sweeper is None:
            self._sweep_in(self._keep_s)

    def lost(self, connection: Connection) -> None:
        """It is closed."""
        self._all.discard(connection)
        self._idle.pop(connection, None)
        if self._closed is not None and not self._all and not self._closed.done():
            self._closed.set_result(None)

    def _sweep_in(self, delay_s: float) -> None:
        self._sweeper = self._loop.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = monotonic()
        for connection, since in tuple(self._idle.items()):
            left_s = since + self._keep_s - now
            if left_s > 0:
                self._sweep_in(max(left_s, self._keep_s * _SWEEP_AT_MOST))
                return
            del self._idle[connection]
            connection.cut()

    async def close(self) -> None:
        """Cuts all connections and waits until they are gone."""
        if self._closed is None:
            self._closed = self._loop.create_future()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in tuple(self._all):
            connection.fail(failures.closed())
        if self._all:
            await asyncio.shield(self._closed)
