"""Passes one answer through: from the first byte, which commits, to its end, whatever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from router.endpoints.table import FACTS
from router.engines.base import NOTHING_ASKED, Ask
from router.errors import Reason, RequestError
from router.fleet.model import PoolFacts, Replica
from router.fleet.state import Lease
from router.outputs.copy import StreamCopy
from router.outputs.demand import demands_structure
from router.relay.early import EarlyError, early_error, undecided
from router.relay.harvest import Harvest, StreamHarvest, harvest_for
from router.relay.headers import header, to_client
from router.relay.sink import ResponseSink
from router.relay.upstream import Receive, UpstreamError, UpstreamResponse
from router.relay.whole import HeldHarvest, PassThrough
from router.types import AttemptEnd, Headers, RequestContext

_OK = 200
_REDIRECT = 300
_BOM = b"\xef\xbb\xbf"
_WITHOUT_BODY = frozenset((204, 304))


class OvertakenError(Exception):
    """Another transfer has reached the client first."""


class EarlyAnswerError(Exception):
    """The stream began with an error, which is to be answered as one."""

    def __init__(self, error: EarlyError) -> None:
        super().__init__(error.status)
        self.error = error


class Transfer:
    """One answer on its way to the client. `receive` is the hot path: once for every piece."""

    __slots__ = (
        "_commit",
        "_early",
        "_extra",
        "_left",
        "_now",
        "_request_id",
        "_sink",
        "_timers",
        "committed",
        "copy",
        "harvest",
        "lease",
        "pool",
        "response",
    )

    def __init__(
        self,
        ctx: RequestContext,
        pool: PoolFacts,
        lease: Lease,
        response: UpstreamResponse,
        *,
        ask: Ask,
        sink: ResponseSink,
        extra: Headers,
        now: Callable[[], float],
        commit: Callable[[Transfer], None],
        heard: bool = False,
    ) -> None:
        """Args: `commit` is told that the first byte is here, and may raise to refuse it."""
        self.pool = pool
        self.harvest: Harvest
        if ctx.method == "HEAD" or response.status in _WITHOUT_BODY:
            self.harvest = PassThrough()  # no body comes, so none is missing
        else:
            self.harvest = harvest_for(
                FACTS[ctx.request.endpoint].dialect,
                content_type=header(response.headers, "content-type") or "",
                content_encoding=header(response.headers, "content-encoding") or "",
                markers=pool.adapter.markers,
                # Only success brings what was asked for: an error is passed on as it comes.
                ask=ask if response.status < _REDIRECT else NOTHING_ASKED,
                rule=pool.adapter.step_rule if ctx.request.stream else None,
            )
        self.copy: StreamCopy | None = None
        """Of what a stream says, where somebody will look at it."""
        kept = heard or demands_structure(ctx.request)
        if kept and isinstance(self.harvest, StreamHarvest):
            self.copy = StreamCopy(FACTS[ctx.request.endpoint].dialect)
        self.lease = lease
        self.response = response
        self._request_id = ctx.request_id
        self._sink = sink
        self._extra = extra
        self._now = now
        self._commit = commit
        self._early = b""
        """Of the first event, while it is not whole."""
        self._left = 0
        """Bytes that may still come, where there is a limit."""
        self._timers: list[asyncio.TimerHandle] = []
        self.committed = False
        """Whether the client has been given this answer's status line."""

    @property
    def status(self) -> int:
        """Status of the engine's answer."""
        return self.response.status

    async def run(self) -> Reason | None:
        """Passes the whole answer through.

        Returns:
            Why it is no whole one, if it began and then broke off.

        Raises:
            UpstreamError: It broke off before it began.
            OvertakenError: Another answer was first.
            EarlyAnswerError: It began with an error, and the client knows nothing of it yet.
        """
        replica = self.lease.replica
        if replica.first_content_s is not None or replica.total_s is not None:
            self._watch(replica)
        most = replica.max_stream_bytes
        self._left = most or 0
        try:
            receive: Receive = self.receive if most is None else self._receive_within
            if self.copy is not None:
                receive = _copied(receive, self.copy)
            await self.response.copy_to(receive)
        except UpstreamError as error:
            if not self.committed:
                raise
            if not self.harvest.complete:
                await self.break_off(error.reason, str(error))
                return error.reason
            if self._sink.takes_events:
                await self._sink.close()
            else:
                self._sink.abort()  # all has come that matters, but the client counts bytes
            return None
        finally:
            for timer in self._timers:
                timer.cancel()
        return await self._finish()

    def _watch(self, replica: Replica) -> None:
        """Sets the limits that concern content, which only the harvest knows.

        They count from the request's last byte, so the wait for the head is a part of them.
        """
        call_later, waited_s = asyncio.get_running_loop().call_later, self.response.waited_s
        if replica.first_content_s is not None and is_event_stream(self.response):
            left_s = max(0.0, replica.first_content_s - waited_s)
            self._timers.append(call_later(left_s, self._without_content))
        if replica.total_s is not None:
            left_s = max(0.0, replica.total_s - waited_s)
            self._timers.append(call_later(left_s, self._too_long))

    def _without_content(self) -> None:
        if self.harvest.first_content_s is None:
            self.response.abort(_late("no content within the limit"))

    def _too_long(self) -> None:
        if not self.harvest.complete:
            self.response.abort(_late("the answer took longer than the limit"))

    def receive(self, piece: bytes) -> None:
        """Takes the next piece of the body."""
        now = self._now()
        self.lease.touched = now
        if not self.committed:
            piece = self._first(piece)
            if not piece:
                return
        data = self.harvest.feed(piece, now)
        if data:
            self._sink.write(data)

    def _receive_within(self, piece: bytes) -> None:
        """The same where the body has a limit.

        Raises:
            UpstreamError: It is longer.
        """
        self._left -= len(piece)
        if self._left < 0:
            raise UpstreamError(
                AttemptEnd.SERVER_ERROR,
                Reason.UPSTREAM_PROTOCOL,
                "the answer is longer than the limit",
            )
        self.receive(piece)

    def _first(self, piece: bytes) -> bytes:
        """Commits, unless the stream begins with an error, which has to be whole for that.

        An answer out of which something has to go is held until its end, when its length is known.

        Raises:
            EarlyAnswerError: It does.
        """
        if isinstance(self.harvest, HeldHarvest):
            piece = self.harvest.hold(piece)
            if piece:
                self._start()
            return piece
        if self.response.status == _OK and isinstance(self.harvest, StreamHarvest):
            self._early = piece = self._early + piece
            if undecided(piece):
                return b""
            error = early_error(piece)
            if error is not None:
                raise EarlyAnswerError(error)
            self._early = b""
            if self._sink.started:
                piece = piece.removeprefix(_BOM)  # it marks the beginning of a stream only
        self._start()
        return piece

    def _start(self, length: int | None = None) -> None:
        """Args: `length` is that of the whole body, where it differs from what the server said."""
        self._commit(self)
        self.committed = True
        if self._sink.started:
            return  # by comments, which came before any server's answer
        response = self.response
        # Figures go out of events that are read, and an error or a comment of ours may come in.
        changes = isinstance(self.harvest, StreamHarvest)
        self._sink.start(
            response.status,
            response.reason,
            to_client(response.headers, length_changes=changes, length=length, extra=self._extra),
        )

    async def _finish(self) -> Reason | None:
        """Ends the answer as its server has.

        Raises:
            UpstreamError: It was cut before there was anything that the client knows of.
        """
        held = b""
        if not self.committed:
            held = self.harvest.feed(self._early, self._now()) if self._early else b""
        held += self.harvest.finish()
        harvest = self.harvest
        cut = harvest.broken and not harvest.complete and not _shows_its_end(self.response)
        if cut and not self.committed:
            raise UpstreamError(
                AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "the stream ended as it began"
            )
        if cut:
            await self.break_off(Reason.UPSTREAM_PROTOCOL, "no end mark")
            return Reason.UPSTREAM_PROTOCOL
        if not self.committed:
            changed = isinstance(harvest, HeldHarvest) and harvest.changed
            self._start(len(held) if changed else None)
        if held:
            self._sink.write(held)
        await self._sink.close()
        return None

    async def break_off(self, reason: Reason, detail: str) -> None:
        """Ends an answer of which a part is missing so that no client can take it for a whole one.

        Between events that is an error event, which clients raise with its message. Inside one,
        in any other body, and where its length has been told, the connection is cut, as it would be
        without us. Bytes still held back are half an event, which could only confuse its reader.
        """
        if not (self.harvest.may_add and self._sink.takes_events):
            self._sink.abort()
            return
        error = RequestError(reason, f"The engine's answer broke off: {detail}.")
        self._sink.write(self.harvest.ending(error, self._request_id))
        await self._sink.close()


def _copied(receive: Receive, copy: StreamCopy) -> Receive:
    """Passes each piece on, and puts a copy aside then."""

    def received(piece: bytes) -> None:
        receive(piece)
        copy.take(piece)

    return received


def is_event_stream(response: UpstreamResponse) -> bool:
    """Whether the body is a stream of events."""
    kind = (header(response.headers, "content-type") or "").partition(";")[0]
    return kind.strip().lower() == "text/event-stream"


def _late(detail: str) -> UpstreamError:
    return UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, detail)


def _shows_its_end(response: UpstreamResponse) -> bool:
    """Whether a cut would have been noticed; else the end of the connection is all there is."""
    coding = (header(response.headers, "transfer-encoding") or "").lower()
    return "chunked" in coding or header(response.headers, "content-length") is not None
