"""Where an answer goes: the client's side of the relay."""

from __future__ import annotations

from typing import Protocol

from router.errors import RequestError
from router.types import Headers


class Feeder(Protocol):
    """Whatever the bytes for a client come from."""

    def pause(self) -> None:
        """The client is slow: no more for now."""

    def resume(self) -> None:
        """There is room again."""


class Unfinished(Protocol):
    """An answer that its feeder does not go on with."""

    complete: bool
    """All that matters has come."""

    @property
    def may_add(self) -> bool:
        """Whether an event of ours could follow what the client has now, and be read as one."""

    def ending(self, error: RequestError, request_id: str | None = None) -> bytes:
        """What ends it, where `may_add`."""


class ResponseSink(Protocol):
    """Takes one response. Nothing here waits, except for the end.

    A client that leaves cancels the request that is being served; what is written to it meanwhile
    is lost without a word.
    """

    def feed_from(self, feeder: Feeder | None) -> None:
        """Names what is told when the client cannot keep up, and when it can again."""

    def left_at(self, answer: Unfinished) -> None:
        """Says how far the answer has come that goes on no more, for whoever has to end it."""

    @property
    def started(self) -> bool:
        """Whether a status line has been given: there can be no other answer any more."""

    @property
    def takes_events(self) -> bool:
        """Whether an event of ours may follow: these are events, and nobody has told how many."""

    @property
    def held_s(self) -> float:
        """How long the client has kept its feeder waiting, in seconds."""

    def start(self, status: int, reason: str, headers: Headers) -> None:
        """Gives the status line and the headers; they leave with the first bytes of the body."""

    def write(self, data: bytes) -> None:
        """Sends bytes of the body."""

    async def close(self) -> None:
        """Ends the body and returns once the client has taken nearly all of it.

        What is written afterwards is lost: it would be taken for the next answer.
        """

    def abort(self) -> None:
        """Cuts the connection, so that the client cannot take the body for a whole one."""
