"""An answer as the relay sees it: what came before `copy_to` is kept, what comes later passes."""

from __future__ import annotations

import asyncio
from typing import Protocol

from router.relay.upstream import Receive, UpstreamError
from router.relay.wire import failures
from router.relay.wire.framing import Head
from router.types import Headers

EARLY_LIMIT = 64 * 1024
"""Bytes of a body that may wait for `copy_to` before the server has to."""


class Carrier(Protocol):
    """The connection that an answer comes on."""

    def deliver_to(self, receive: Receive) -> None:
        """Hands the pieces that come from now on to `receive`."""

    def new_end(self) -> asyncio.Future[None]:
        """A future of its event loop, to wait for the end with."""

    def pause(self) -> None:
        """Reads no more; may be called twice."""

    def resume(self) -> None:
        """Reads on; may be called twice."""

    def fail(self, error: Exception) -> None:
        """Cuts the connection and ends its answer with the error."""


class WireResponse:
    """One answer. The connection lets go of it when the answer is complete or broken."""

    __slots__ = (
        "_carrier",
        "_early",
        "_early_bytes",
        "_end",
        "_error",
        "_head",
        "_held",
        "_over",
        "_paused",
        "_waited_s",
    )

    def __init__(self, head: Head, carrier: Carrier, waited_s: float) -> None:
        self._head = head
        self._waited_s = waited_s
        self._carrier: Carrier | None = carrier
        self._early: list[bytes] = []
        self._early_bytes = 0
        self._end: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._held = self._paused = self._over = False

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._head.status

    @property
    def reason(self) -> str:
        """Reason phrase."""
        return self._head.reason

    @property
    def headers(self) -> Headers:
        """Header lines."""
        return self._head.headers

    @property
    def waited_s(self) -> float:
        """How long it took from the request's last byte."""
        return self._waited_s

    async def copy_to(self, receive: Receive) -> None:
        """Hands over the body; see `UpstreamResponse.copy_to`."""
        try:
            early = b"".join(self._early)
            self._early.clear()
            if early:
                receive(early)
            if self._carrier is not None:
                self._carrier.deliver_to(receive)
                self._held = False
                self._steer()
                self._end = self._carrier.new_end()
                await self._end
        except BaseException:
            self.close()
            raise
        finally:
            self._end = None
        self._over = True
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback leads to this frame: nothing may go round

    def pause(self) -> None:
        """Reads no more until `resume`."""
        self._paused = True
        self._steer()

    def resume(self) -> None:
        """Reads on."""
        self._paused = False
        self._steer()

    def abort(self, error: UpstreamError) -> None:
        """Cuts the connection; see `UpstreamResponse.abort`."""
        self._give_up(error)

    def close(self) -> None:
        """Nobody waits any more."""
        if not self._over:  # as nearly always
            self._give_up(failures.closed())

    def _give_up(self, error: UpstreamError) -> None:
        self._early.clear()
        if self._carrier is not None:
            self._carrier.fail(error)
        elif not self._over:
            self._error = error

    def keep(self, piece: bytes) -> None:
        """Keeps a piece for which nobody has asked yet."""
        self._early.append(piece)
        self._early_bytes += len(piece)
        if self._early_bytes > EARLY_LIMIT and not self._held:
            self._held = True
            self._steer()

    def finish(self, error: Exception | None) -> None:
        """The connection has no more to say."""
        self._carrier = None
        if error is not None:
            self._error = error
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def _steer(self) -> None:
        if self._carrier is None:
            return
        if self._paused or self._held:
            self._carrier.pause()
        else:
            self._carrier.resume()
