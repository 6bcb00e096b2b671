"""The seam to servers: one try at one server, whatever carries it.

Two forms: `relay/wire/` serves; `relay/reference.py`, over aiohttp's client, is what it is tested
against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from policies.values import value
from router.errors import Reason
from router.fleet.model import Replica
from router.types import AttemptEnd, Headers

STALE_S = 0.25
"""A kept connection that ends within so long of a request's first byte, and has said nothing, was
closed before the request came; one that ends later had a server that was at work on it. Judgement:
the news of a dead connection takes a round trip, or a packet sent twice, which Linux does after
0.2 s. Too short costs a server a failure that was none; too long has a request that ends servers
carried out once more."""


@value
class UpstreamRequest:
    """What is sent."""

    method: str
    path_qs: str
    """Target in origin form, as the client wrote it."""
    headers: Headers
    """Without Host, Content-Length and everything hop-by-hop: those are the upstream's to say."""
    body: bytes
    """Sent with its Content-Length; nothing of either when empty and the method is not POST, PUT or
    PATCH."""
    header_s: float
    """Limit from the request's last byte to the end of the answer's head."""
    idle_s: float
    """Limit between two reads of the body."""
    fresh: bool = False
    """On a new connection: those kept alive may all have been closed by the server."""


class UpstreamError(Exception):
    """A try that brought no complete answer."""

    def __init__(self, end: AttemptEnd, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.end = end
        self.reason = reason


Receive = Callable[[bytes], None]
"""Takes the next piece of a body: never empty, called on the event loop, must not block. What it
raises ends the transfer (the connection is cut) and comes out of `copy_to`."""


class UpstreamResponse(Protocol):
    """An answer whose head is here and whose body is coming."""

    @property
    def status(self) -> int:
        """HTTP status, 200 or above."""

    @property
    def reason(self) -> str:
        """Reason phrase as received, latin-1; may be empty."""

    @property
    def headers(self) -> Headers:
        """Header lines as received, names and values in latin-1."""

    @property
    def waited_s(self) -> float:
        """Seconds from the request's last byte to the end of the head."""

    async def copy_to(self, receive: Receive) -> None:
        """Hands over the body, still in its content coding; returns at its end. Called once.

        Trailers are dropped. Once `close` or `abort` has been called, `receive` is called no more.

        Raises:
            UpstreamError: It broke off, was no HTTP, or stood still for longer than `idle_s` (time
                in which it was paused does not count), or `abort` said so.
        """

    def pause(self) -> None:
        """Reads no more from the server until `resume`. Either may come at any time, and twice."""

    def resume(self) -> None:
        """Reads on."""

    def abort(self, error: UpstreamError) -> None:
        """Cuts the connection: a running `copy_to`, or the next, raises `error`.

        No-op once the body has ended.
        """

    def close(self) -> None:
        """Nobody waits any more; may be called twice.

        A connection whose body has been read to its end is kept for the next request, if both sides
        want that; any other is cut, which is how a server learns that nobody waits.
        """


class Upstream(Protocol):
    """Sends requests to servers and keeps connections to them."""

    async def send(self, replica: Replica, request: UpstreamRequest) -> UpstreamResponse:
        """Sends a request and returns when the head of its answer is here.

        The caller must `close` what it gets. Cancelling the call cuts the connection.

        Raises:
            UpstreamError: There was no answer: `UNREACHABLE` (no connection within `connect_s`),
                `STALE` (a kept connection ended within `STALE_S`, before a byte of an answer),
                `DISCONNECTED` (any other end, or no HTTP) or `TIMEOUT` (no head within `header_s`).
        """

    async def close(self) -> None:
        """Closes all connections."""
