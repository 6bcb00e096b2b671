"""One connection to a server, and the exchange that it carries now.

The hot path of the whole program is `Connection.data_received`: it hands what was read, freed of
its framing, to whoever takes the body, in the same call. There is one timer, which looks at the
time of the last read when it fires, and is not touched by reads.
"""

from __future__ import annotations

import asyncio
import select
from time import monotonic
from typing import Protocol, cast

from router.relay.upstream import STALE_S, Receive, UpstreamRequest
from router.relay.wire import failures
from router.relay.wire.framing import HEAD_LIMIT, Framing, Stage
from router.relay.wire.response import WireResponse

_SMALL = 64 * 1024
"""Bodies below are written together with their head; others in slices, as the server takes them."""
_SLICE = 256 * 1024
_REFUSED = 300
"""From this status on an early answer says that the rest of the request is not wanted."""


_Waiter = asyncio.Future["WireResponse | Exception"]


class Owner(Protocol):
    """Who keeps connections between exchanges."""

    def free(self, connection: Connection) -> None:
        """It can carry another exchange."""

    def lost(self, connection: Connection) -> None:
        """It is closed."""


class Connection(asyncio.Protocol):
    """A connection, from its opening to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self._loop = loop
        self._owner = owner
        self._framing = Framing()
        self._transport: asyncio.Transport | None = None
        self._readable = select.poll()
        self._waiter: _Waiter | None = None
        self._response: WireResponse | None = None
        self._receive: Receive | None = None
        self._upload: memoryview | None = None
        self._asked = False
        """Whether a request has been sent; what comes before is premature, not an intrusion."""
        self._used = False
        """Whether an exchange has ended well: from then on the connection may be stale."""
        self._begun = 0.0
        """When the request's first byte was written."""
        self._heard = False
        """Whether a byte of this answer has come."""
        self._spoilt = False
        """Whether this must be the last exchange."""
        self._gone = False
        """Whether we have cut it."""
        self._premature = b""
        self._reading_paused = self._writing_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._since = self._limit = 0.0
        """Of the wait that is on: its beginning, moved by each read or write that counts."""
        self._stood = 0.0
        """What had passed of it when reading was paused."""
        self._idle_s = 0.0

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, its TLS handshake done."""
        self._transport = cast("asyncio.Transport", transport)
        # Writing counts as paused while anything is left to be sent, so that the end of the pause
        # is the last byte's departure. (0 would do, but pauses TLS transports for good.)
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Something was read."""
        response = self._response
        if response is None:
            self._head_received(data)
            return
        framing = self._framing
        piece = framing.feed(data)
        self._since = monotonic()
        if piece:
            receive = self._receive
            if receive is None:
                response.keep(piece)
            else:
                try:
                    receive(piece)
                except Exception as error:  # noqa: BLE001
                    # Not swallowed: it comes out of `copy_to`, where its raiser waits.
                    self.fail(error)
                    return
        if framing.stage is not Stage.BODY:
            self._body_ended(response)

    def _head_received(self, data: bytes) -> None:
        waiter = self._waiter
        if not self._asked and len(self._premature) + len(data) <= HEAD_LIMIT:
            # A server that is full may say so to whoever connects. It is the answer to the first
            # request, which is on its way here.
            self._premature += data
            return
        if waiter is None or waiter.done():
            # Nobody asked. Whatever it is, it would be taken for the answer to the next request.
            self.cut()
            return
        self._heard = True
        framing = self._framing
        piece = framing.feed(data)
        if framing.head is None:
            if framing.stage is Stage.BROKEN:
                self.fail(failures.no_http())
            return
        self._waiter = None
        now = monotonic()
        self._response = response = WireResponse(framing.head, self, now - self._since)
        if framing.head.status >= _REFUSED:
            self._stop_upload()
        self._since, self._limit = now, self._idle_s
        if piece:
            response.keep(piece)
        if framing.stage is Stage.BODY:
            self._arm()
        else:
            self._body_ended(response)
        waiter.set_result(response)

    def _body_ended(self, response: WireResponse) -> None:
        if response is not self._response:
            return  # whoever took the last piece has ended it
        if self._framing.stage is Stage.BROKEN:
            self.fail(failures.no_http())
            return
        self._response = self._receive = None
        if self._framing.reusable and self._all_sent and not self.closing:
            self.resume()
            self._used = True
            self._owner.free(self)
        else:
            self.cut()
        response.finish(None)

    def eof_received(self) -> None:
        """The server will send no more."""
        self._ended(in_order=True)
        if self._asked:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whomever."""
        self._transport = None
        self._ended(in_order=exc is None)
        self.cut()
        if not self._premature:
            self._framing.drop()
        self._owner.lost(self)

    def _ended(self, *, in_order: bool) -> None:
        if self._waiter is not None:
            self.fail(failures.stale() if self._was_stale else failures.lost())
        elif self._response is not None:
            if in_order and self._framing.finish():
                self._body_ended(self._response)
            else:
                self.fail(failures.lost())

    @property
    def _was_stale(self) -> bool:
        """Whether the server, as far as one can know, had closed before the request came."""
        return self._used and not self._heard and monotonic() - self._begun <= STALE_S

    def pause_writing(self) -> None:
        """The server takes less than we send."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """All that was written is on its way."""
        self._writing_paused = False
        if self._waiter is not None:
            self._since = monotonic()
        self._upload_more()

    # What the sender calls

    @property
    def closing(self) -> bool:
        """Whether it can carry nothing more."""
        return self._gone or self._transport is None or self._transport.is_closing()

    @property
    def lost(self) -> bool:
        """Whether the transport is closed and has said so."""
        return self._transport is None

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the loop has not read yet: the server's end, or worse."""
        return not self._readable.poll(0)

    async def exchange(self, head: bytes, request: UpstreamRequest) -> WireResponse:
        """Sends a request and waits for the head of its answer.

        Raises:
            UpstreamError: There was none.
        """
        waiter = self._begin(head, request)
        try:
            outcome = await waiter
        except asyncio.CancelledError:
            self._forsake(waiter)
            raise
        if isinstance(outcome, WireResponse):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # its traceback leads to this frame: nothing may go round

    def _begin(self, head: bytes, request: UpstreamRequest) -> _Waiter:
        waiter: _Waiter = self._loop.create_future()
        self._waiter = waiter
        self._asked, self._heard = True, False
        self._framing.begin(bodiless=request.method == "HEAD")
        self._begun = self._since = monotonic()
        self._limit, self._idle_s = request.header_s, request.idle_s
        if self.closing or self._transport is None:
            self._replay()
            self._ended(in_order=False)
            return waiter
        body = request.body
        if len(body) > _SMALL:
            self._upload = memoryview(body)[_SMALL:]
            body = body[:_SMALL]
        self._transport.write(head + body if body else head)
        self._arm()
        self._go_on_uploading()
        self._replay()
        return waiter

    def _replay(self) -> None:
        """Reads what came before anybody had asked."""
        premature, self._premature = self._premature, b""
        if premature:
            # The request may be answered as well: nothing must be asked after it on this line.
            self._spoilt = True
            self.data_received(premature)

    def _forsake(self, waiter: _Waiter) -> None:
        """Nobody waits for the head any more, which may have come in the same moment."""
        if self._waiter is waiter:
            self._waiter = None
            self.cut()
        elif not waiter.cancelled():
            outcome = waiter.result()
            if isinstance(outcome, WireResponse):
                outcome.close()

    # The request's body

    @property
    def _all_sent(self) -> bool:
        return self._upload is None and not self._writing_paused and not self._spoilt

    def _go_on_uploading(self) -> None:
        if self._upload is not None and not self._writing_paused:
            self._loop.call_later(0, self._upload_more)

    def _upload_more(self) -> None:
        upload = self._upload
        if upload is None or self._writing_paused or self.closing or self._transport is None:
            return
        if self._waiter is not None:
            if not self.quiet:
                # It is read first. A server that refuses a request early closes its connection,
                # and a write that fails would take the refusal with it.
                self._go_on_uploading()
                return
            self._since = monotonic()
        self._upload = upload[_SLICE:] if len(upload) > _SLICE else None
        self._transport.write(upload[:_SLICE])
        self._go_on_uploading()

    def _stop_upload(self) -> None:
        if self._upload is not None:
            self._upload = None
            self._spoilt = True

    # What an answer calls

    def deliver_to(self, receive: Receive) -> None:
        """Hands the pieces that come from now on to `receive`."""
        self._receive = receive

    def new_end(self) -> asyncio.Future[None]:
        """A future of its loop; asking for the running one is a system call before Python 3.12."""
        return self._loop.create_future()

    def pause(self) -> None:
        """Reads no more; may be called twice."""
        if self._transport is not None and not self._reading_paused and not self.closing:
            self._reading_paused = True
            self._stood = monotonic() - self._since
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on; may be called twice."""
        if self._transport is not None and self._reading_paused and not self.closing:
            self._reading_paused = False
            self._since = monotonic() - self._stood
            self._transport.resume_reading()
            self._arm()

    def fail(self, error: Exception) -> None:
        """Cuts the connection and ends its exchange with the error."""
        waiter, self._waiter = self._waiter, None
        response, self._response = self._response, None
        self.cut()
        if waiter is not None and not waiter.done():
            waiter.set_result(error)
        if response is not None:
            response.finish(error)

    def cut(self) -> None:
        """Closes the connection at once."""
        self._upload = self._receive = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gone:
            self._gone = True
            if self._transport is not None:
                self._transport.abort()

    # The limits

    def _arm(self) -> None:
        """Sees to it that the timer fires no later than the limit ends.

        A timer that fires too early looks and goes on, so one that is there is mostly left alone,
        from one exchange to the next.
        """
        due = self._since + self._limit
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max(0.0, due - monotonic()), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._reading_paused or (self._waiter is None and self._response is None):
            return  # what stands still by our own wish is not late; `resume` and `_begin` arm again
        if self._since + self._limit > monotonic():
            self._arm()
        else:
            self.fail(failures.silent())
