"""Where an answer goes: the client's side of the relay."""

from __future__ import annotations

from typing import Protocol

from router.errors import RequestError
from router.types import Headers


class ClientGoneError(Exception):
    """The client has closed its connection."""


class ResponseSink(Protocol):
    """Takes one response; every method raises `ClientGoneError` once the client has left."""

    async def start(self, status: int, headers: Headers) -> None:
        """Sends the status line and the headers."""

    async def write(self, data: bytes) -> None:
        """Sends bytes of the body, waiting while the client is slow to take them."""

    async def close(self) -> None:
        """Ends the body."""

    async def abort(self) -> None:
        """Cuts the connection, so that the client cannot take the body for a whole one."""


def error_ending(error: RequestError) -> bytes:
    """Ends a stream that has begun: an error that clients raise, then the end mark."""
    # The blank line ends an event that may have been cut in the middle.
    return b"\n\ndata: " + error.body() + b"\n\ndata: [DONE]\n\n"
