"""Comments for clients of streams that have been silent for a while, so that no hop gives up.

To a reader of server-sent events a comment is nothing (HTML standard, section 9.2.6), so it stands
before the first event or between two, and counts nowhere as output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from router.relay.headers import header
from router.relay.sink import ResponseSink
from router.relay.transfer import Transfer, is_event_stream
from router.relay.upstream import UpstreamResponse
from router.types import Headers

COMMENT = b": keep-alive\n\n"

_OK = 200


class KeepAlive:
    """Speaks for as long as the block runs, whenever the client has got nothing for so long.

    Its first word may be the first byte that the client gets. That settles the status and the
    headers, but not which server answers: no output has been sent, so another may still be tried.
    There is one timer, which looks at the time of the last piece when it fires.
    """

    __slots__ = (
        "_after_s",
        "_extra",
        "_held_s",
        "_last_s",
        "_now",
        "_sink",
        "_timer",
        "begun",
        "transfer",
        "unfit",
    )

    def __init__(
        self,
        sink: ResponseSink,
        *,
        after_s: float,
        extra: Headers,
        now: Callable[[], float],
    ) -> None:
        """Args: `extra` are our own headers, for a head that is given before any server answers."""
        self._sink = sink
        self._after_s = after_s
        self._extra = extra
        self._now = now
        self._held_s = 0.0
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.begun = False
        """Whether the head is ours: an answer can only be events now."""
        self.transfer: Transfer | None = None
        """The answer that the client gets, once it has begun."""
        self.unfit = 0
        """Answers on their way that are no events, which must not find a head that says so."""

    def __enter__(self) -> None:
        """The client begins to wait."""
        self._last_s = self._now()
        self._wait(self._after_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """There is nothing to wait for any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        now = self._now()
        if self.transfer is not None:
            self._last_s = max(self._last_s, self.transfer.lease.touched or 0.0)
        left_s = self._last_s + self._after_s - now
        if left_s <= 0.0:
            if self._may_speak():
                self._speak()
            self._last_s, left_s = now, self._after_s
        self._wait(left_s)

    def _may_speak(self) -> bool:
        held_s = self._sink.held_s
        held, self._held_s = held_s > self._held_s, held_s
        if held:
            return False  # there is more for it than it takes
        if self.transfer is None:
            return not self.unfit
        harvest = self.transfer.harvest
        return harvest.may_add and not harvest.complete

    def _speak(self) -> None:
        if not self._sink.started:
            self.begun = True
            self._sink.start(_OK, "OK", (("Content-Type", "text/event-stream"), *self._extra))
        self._sink.write(COMMENT)


def is_plain_stream(response: UpstreamResponse) -> bool:
    """Whether an answer can follow a head of ours: events, as they are."""
    coding = (header(response.headers, "content-encoding") or "").strip().lower()
    return response.status == _OK and is_event_stream(response) and coding in {"", "identity"}
