"""Passes one answer through: from the first byte, which commits, to its end, whatever that is."""

from __future__ import annotations

from collections.abc import Callable

from router.engines.base import Ask
from router.errors import Reason, RequestError
from router.fleet.model import PoolFacts
from router.fleet.state import Lease
from router.relay.harvest import Harvest, PassThrough, StreamHarvest, WholeHarvest
from router.relay.headers import header, to_client
from router.relay.sink import ResponseSink, error_ending
from router.relay.upstream import UpstreamResponse
from router.types import Headers


class Transfer:
    """One answer on its way to the client. `receive` is the hot path: once for every piece."""

    __slots__ = ("_ask", "_extra", "_lease", "_now", "_response", "_sink", "harvest", "pool")

    def __init__(
        self,
        pool: PoolFacts,
        lease: Lease,
        response: UpstreamResponse,
        ask: Ask,
        sink: ResponseSink,
        *,
        extra: Headers,
        now: Callable[[], float],
    ) -> None:
        self.pool = pool
        self.harvest: Harvest = _harvest_for(pool, response, ask)
        self._lease = lease
        self._response = response
        self._ask = ask
        self._sink = sink
        self._extra = extra
        self._now = now

    @property
    def status(self) -> int:
        """Status of the engine's answer."""
        return self._response.status

    @property
    def committed(self) -> bool:
        """Whether the client has been given a status line: nothing can be tried again."""
        return self._sink.started

    def receive(self, piece: bytes) -> None:
        """Takes the next piece of the body."""
        now = self._now()
        self._lease.touched = now
        if not self._sink.started:
            self._start()
        data = self.harvest.feed(piece, now)
        if data:
            self._sink.write(data)

    def _start(self) -> None:
        response = self._response
        changes = self._ask.strip_usage and is_event_stream(response)
        self._sink.start(
            response.status,
            response.reason,
            to_client(response.headers, length_changes=changes, extra=self._extra),
        )

    async def finish(self) -> Reason | None:
        """The server has ended its answer.

        Returns:
            Why it is no whole one, if its connection hid that.
        """
        if not self._sink.started:
            self._start()
        rest = self.harvest.finish()
        if rest:
            self._sink.write(rest)
        if self.harvest.broken and not self.harvest.complete and not _shows_its_end(self._response):
            await self.break_off(Reason.UPSTREAM_PROTOCOL, "no end mark")
            return Reason.UPSTREAM_PROTOCOL
        await self._sink.close()
        return None

    async def break_off(self, reason: Reason, detail: str) -> None:
        """Ends an answer of which a part is missing so that no client can take it for a whole one.

        Between events that is an error event, which clients raise with its message. Inside one,
        and in any other body, the connection is cut, as it would be without us. Bytes still held
        back are half an event, which could only confuse its reader.
        """
        if not self.harvest.may_add:
            self._sink.abort()
            return
        error = RequestError(reason, f"The engine's answer broke off: {detail}.")
        self._sink.write(error_ending(error))
        await self._sink.close()


def is_event_stream(response: UpstreamResponse) -> bool:
    """Whether the body is a stream of events."""
    return _media_type(response) == "text/event-stream"


def _media_type(response: UpstreamResponse) -> str:
    return (header(response.headers, "content-type") or "").partition(";")[0].strip().lower()


def _harvest_for(pool: PoolFacts, response: UpstreamResponse, ask: Ask) -> Harvest:
    coding = (header(response.headers, "content-encoding") or "identity").strip().lower()
    if coding != "identity":
        return PassThrough()
    media_type = _media_type(response)
    if media_type == "text/event-stream":
        return StreamHarvest(pool.adapter.markers, strip_usage=ask.strip_usage)
    json = media_type == "application/json" or media_type.endswith("+json")
    return WholeHarvest() if json else PassThrough(foreign=True)


def _shows_its_end(response: UpstreamResponse) -> bool:
    """Whether a cut would have been noticed; else the end of the connection is all there is."""
    coding = (header(response.headers, "transfer-encoding") or "").lower()
    return "chunked" in coding or header(response.headers, "content-length") is not None
