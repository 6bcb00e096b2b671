"""One connection: limits, flow and what is kept, with a transport and a time of the test's own."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from router.errors import Reason
from router.relay.upstream import STALE_S, UpstreamError, UpstreamRequest
from router.relay.wire.connection import Connection
from router.relay.wire.response import WireResponse
from router.types import AttemptEnd
from tests.support.clock import ManualClock
from tests.support.wire import ManualLoop, ManualTransport

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\n\r\n"
HEADER_S, IDLE_S = 10.0, 4.0


@dataclass(slots=True)
class Keeper:
    """Keeps what a connection says of itself."""

    said: list[str] = field(default_factory=list)

    def free(self, connection: Connection) -> None:
        """It is free."""
        self.said.append("free")

    def lost(self, connection: Connection) -> None:
        """It is closed."""
        self.said.append("lost")


class Line:
    """A connection, and all that the test moves about it."""

    def __init__(self, clock: ManualClock, room: int = 1 << 40) -> None:
        self.loop = ManualLoop(clock)
        self.keeper = Keeper()
        self.connection = Connection(self.loop.loop, self.keeper)
        self.transport = ManualTransport(self.connection, room=room)
        self.connection.connection_made(self.transport)

    def ask(self, body: bytes = b"{}", method: str = "POST") -> asyncio.Task[WireResponse]:
        """Sends a request."""
        request = UpstreamRequest(method, "/", (), body, HEADER_S, IDLE_S)
        return asyncio.ensure_future(self.connection.exchange(HEAD, request))

    def lose(self, error: Exception | None = None) -> None:
        """The loop says that the connection is closed."""
        self.transport.aborted = True
        self.connection.connection_lost(error)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Time that moves only when the test says so."""
    clock = ManualClock()
    monkeypatch.setattr("router.relay.wire.connection.monotonic", clock.monotonic)
    return clock


Open = Callable[..., Line]


@pytest.fixture
def line(clock: ManualClock) -> Iterator[Open]:
    """Opens connections."""
    opened: list[Line] = []

    def make(room: int = 1 << 40) -> Line:
        opened.append(Line(clock, room))
        return opened[-1]

    yield make
    for each in opened:
        each.transport.free()


async def turn() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(3):
        await asyncio.sleep(0)


async def end_of(task: asyncio.Task[WireResponse] | asyncio.Task[None]) -> AttemptEnd:
    """How a try failed."""
    with pytest.raises(UpstreamError) as caught:
        await task
    return caught.value.end


# Limits


async def test_the_head_has_a_limit(line: Open) -> None:
    """From the request's last byte; parts of a head do not move it."""
    at = line()
    task = at.ask()
    await turn()
    at.loop.advance(HEADER_S - 1)
    at.connection.data_received(OK)
    at.loop.advance(0.9)
    assert not task.done()
    at.loop.advance(0.2)
    assert await end_of(task) is AttemptEnd.TIMEOUT
    assert at.transport.aborted


async def test_the_wait_for_the_head_is_told(line: Open) -> None:
    """From the request's last byte too."""
    at = line(room=0)
    task = at.ask()
    await turn()
    at.loop.advance(7.0)
    at.transport.take(1 << 20)
    at.loop.advance(2.0)
    at.connection.data_received(OK)
    at.loop.advance(1.0)
    at.connection.data_received(HELLO.removeprefix(OK))
    assert (await task).waited_s == pytest.approx(3.0)


async def test_the_body_has_a_limit(line: Open) -> None:
    """Between two reads, whether they bring a body or not."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(CHUNKED)
    pieces: list[bytes] = []
    copying = asyncio.ensure_future((await task).copy_to(pieces.append))
    await turn()
    for _ in range(5):
        at.loop.advance(IDLE_S - 0.1)
        at.connection.data_received(b"1\r\nx\r\n")
        at.loop.advance(IDLE_S - 0.1)
        at.connection.data_received(b"1;ext")
        at.connection.data_received(b"\r\ny\r\n")
    assert not copying.done()
    at.loop.advance(IDLE_S)
    assert await end_of(copying) is AttemptEnd.TIMEOUT
    assert (b"".join(pieces), at.transport.aborted) == (b"xy" * 5, True)


async def test_a_pause_does_not_count(line: Open) -> None:
    """The time before it does, and goes on afterwards."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(CHUNKED)
    response = await task
    copying = asyncio.ensure_future(response.copy_to(lambda _: None))
    await turn()
    at.loop.advance(IDLE_S - 1)
    response.pause()
    at.loop.advance(1000)
    assert (at.transport.reading, copying.done()) == (False, False)
    response.resume()
    at.loop.advance(0.9)
    await turn()
    assert (at.transport.reading, copying.done()) == (True, False)
    at.loop.advance(0.2)
    assert await end_of(copying) is AttemptEnd.TIMEOUT


async def test_a_limit_that_ends_before_the_copying(line: Open) -> None:
    """What had come is handed over all the same."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(CHUNKED + b"1\r\nx\r\n")
    response = await task
    at.loop.advance(IDLE_S + 1)
    pieces: list[bytes] = []
    assert await end_of(asyncio.ensure_future(response.copy_to(pieces.append))) is (
        AttemptEnd.TIMEOUT
    )
    assert pieces == [b"x"]


async def test_one_timer_serves_many_reads_and_exchanges(line: Open) -> None:
    """Neither a piece nor a request costs one of its own."""
    at = line()
    for _ in range(50):
        task = at.ask()
        await turn()
        at.connection.data_received(CHUNKED)
        response = await task
        for _ in range(50):
            at.connection.data_received(b"1\r\nx\r\n")
        at.connection.data_received(b"0\r\n\r\n")
        await response.copy_to(lambda _: None)
    assert at.loop.started <= 2
    assert at.keeper.said == ["free"] * 50
    at.loop.advance(1000)
    assert (at.loop.timers, at.transport.aborted) == ([], False)
    task = at.ask()
    await turn()
    at.loop.advance(HEADER_S + 1)
    assert await end_of(task) is AttemptEnd.TIMEOUT


async def test_a_shorter_limit_is_kept_after_a_longer_one(line: Open) -> None:
    """The body's limit holds though the head's would end later."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(CHUNKED)
    await task
    at.loop.advance(IDLE_S + 0.1)
    assert at.transport.aborted


# Uploads


async def test_a_small_request_is_one_write(line: Open) -> None:
    """Head and body together."""
    at = line()
    task = at.ask(b"x" * 1000)
    await turn()
    assert at.transport.writes == [HEAD + b"x" * 1000]
    at.lose()
    assert await end_of(task) is AttemptEnd.DISCONNECTED


async def test_a_large_request_goes_as_the_server_takes_it(line: Open) -> None:
    """No more than a slice waits in the transport; the limit for the head begins with its end."""
    at = line(room=0)
    body = bytes(1 << 20)
    task = at.ask(body)
    await turn()
    waiting = len(at.transport.writes)
    while sum(map(len, at.transport.writes)) < len(HEAD) + len(body):
        at.loop.advance(HEADER_S - 1)
        before = sum(map(len, at.transport.writes))
        at.transport.take(300_000)
        assert sum(map(len, at.transport.writes)) - before <= 300_000
    at.loop.advance(HEADER_S - 1)
    at.transport.take(1 << 20)
    at.loop.advance(HEADER_S - 1)
    assert (waiting, task.done()) == (1, False)
    assert b"".join(at.transport.writes) == HEAD + body
    at.connection.data_received(HELLO)
    response = await task
    await response.copy_to(lambda _: None)
    assert at.keeper.said == ["free"]


async def test_a_server_that_takes_nothing_has_a_limit(line: Open) -> None:
    """An upload that stands still for as long as a head may take is given up."""
    at = line(room=1000)
    task = at.ask(bytes(1 << 20))
    await turn()
    at.loop.advance(HEADER_S + 1)
    assert await end_of(task) is AttemptEnd.TIMEOUT


async def test_what_has_come_is_read_before_more_is_sent(line: Open) -> None:
    """A write that fails would take an early refusal with it."""
    at = line()
    task = at.ask(bytes(1 << 20))
    await turn()
    at.transport.theirs.send(b"HTTP/1.1 413 No\r\n")
    at.loop.advance(0.001)
    assert len(at.transport.writes) == 1
    at.connection.data_received(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
    response = await task
    at.loop.advance(0.001)
    assert (response.status, len(at.transport.writes)) == (413, 1)
    assert (at.keeper.said, at.transport.aborted) == ([], True)


async def test_an_early_answer_that_is_no_refusal_lets_the_upload_end(line: Open) -> None:
    """Then both go on at once, and the connection is kept if both have ended well."""
    at = line(room=0)
    body = bytes(1 << 20)
    task = at.ask(body)
    await turn()
    at.connection.data_received(CHUNKED + b"1\r\nx\r\n")
    response = await task
    at.transport.take(1 << 21)
    at.loop.advance(0.001)
    assert b"".join(at.transport.writes) == HEAD + body
    at.connection.data_received(b"0\r\n\r\n")
    await response.copy_to(lambda _: None)
    assert at.keeper.said == ["free"]


async def test_an_answer_that_is_over_before_the_request(line: Open) -> None:
    """It counts, and the connection is cut."""
    at = line(room=0)
    task = at.ask(bytes(1 << 20))
    await turn()
    at.connection.data_received(HELLO)
    pieces: list[bytes] = []
    await (await task).copy_to(pieces.append)
    assert (pieces, at.keeper.said, at.transport.aborted) == ([b"hello"], [], True)


# Ends


async def test_stale_is_a_kept_connection_that_said_nothing(line: Open) -> None:
    """The first exchange never is, and a byte of an answer makes it a lost one."""
    at = line()
    task = at.ask()
    await turn()
    at.lose(ConnectionResetError())
    assert await end_of(task) is AttemptEnd.DISCONNECTED
    for heard, end in ((b"", AttemptEnd.STALE), (b"H", AttemptEnd.DISCONNECTED)):
        for way in ("lost", "eof"):
            at = line()
            task = at.ask()
            await turn()
            at.connection.data_received(HELLO)
            await task
            task = at.ask()
            await turn()
            if heard:
                at.connection.data_received(heard)
            at.lose() if way == "lost" else at.connection.eof_received()
            assert await end_of(task) is end


@pytest.mark.parametrize("way", ["lost", "eof"])
@pytest.mark.parametrize("size", [2, 1 << 20])
async def test_a_server_that_had_time_to_work_was_lost(
    line: Open, clock: ManualClock, way: str, size: int
) -> None:
    """However kept its connection was; the time counts from the first byte of the request."""
    for after_s, end in ((STALE_S, AttemptEnd.STALE), (STALE_S + 0.01, AttemptEnd.DISCONNECTED)):
        at = line(room=100_000)
        task = at.ask()
        await turn()
        at.connection.data_received(HELLO)
        await task
        clock.advance(60.0)
        task = at.ask(bytes(size))
        await turn()
        at.loop.advance(after_s)
        at.transport.take(1 << 20)
        at.lose(ConnectionResetError()) if way == "lost" else at.connection.eof_received()
        assert await end_of(task) is end


async def test_a_connection_that_is_gone_before_the_request(line: Open) -> None:
    """Nothing is written; a new one was lost, a kept one was stale."""
    at = line()
    at.lose()
    assert await end_of(at.ask()) is AttemptEnd.DISCONNECTED
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(HELLO)
    await task
    at.transport.aborted = True
    written = len(at.transport.writes)
    assert await end_of(at.ask()) is AttemptEnd.STALE
    assert len(at.transport.writes) == written


async def test_words_out_of_turn_cut_the_connection(line: Open) -> None:
    """They would be taken for the next answer."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(HELLO)
    await task
    at.connection.data_received(b"\r\n")
    assert (at.transport.aborted, at.connection.closing) == (True, True)


@pytest.mark.parametrize("end", ["open", "eof", "lost"])
async def test_an_answer_before_any_request(line: Open, end: str) -> None:
    """A server that is full may say so at once, and leave: the first request gets that answer."""
    at = line()
    at.connection.data_received(HELLO[:20])
    at.connection.data_received(HELLO[20:])
    if end != "open":
        at.connection.eof_received()
        at.transport.aborted = True
    if end == "lost":
        at.lose()
    pieces: list[bytes] = []
    await (await at.ask()).copy_to(pieces.append)
    assert (pieces, at.keeper.said) == ([b"hello"], ["lost"] if end == "lost" else [])
    at = line()
    at.connection.data_received(HELLO[:20])
    at.lose()
    assert await end_of(at.ask()) is AttemptEnd.DISCONNECTED


async def test_a_flood_before_any_request(line: Open) -> None:
    """It is no answer."""
    at = line()
    at.connection.data_received(bytes(60_000))
    at.connection.data_received(bytes(60_000))
    assert at.transport.aborted


async def test_quiet_is_a_connection_with_nothing_to_read(line: Open) -> None:
    """What the loop has not read yet counts, the end included."""
    silent, talking, leaving = line(), line(), line()
    talking.transport.theirs.send(b"x")
    leaving.transport.theirs.close()
    quiet = [at.connection.quiet for at in (silent, talking, leaving)]
    assert quiet == [True, False, False]


async def test_an_answer_in_the_moment_of_leaving(line: Open) -> None:
    """A head that comes together with the cancellation is cut, or its connection kept."""
    for answer, aborted in ((CHUNKED, True), (HELLO, False)):
        at = line()
        task = at.ask()
        await turn()
        at.connection.data_received(answer)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert at.transport.aborted is aborted
        at = line()
        task = at.ask()
        await turn()
        task.cancel()
        at.connection.data_received(answer)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert at.transport.aborted


async def test_a_failure_in_the_moment_of_leaving(line: Open) -> None:
    """Who leaves is told nothing else."""
    at = line()
    task = at.ask()
    await turn()
    at.lose()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_goes_round(line: Open) -> None:
    """Answers and what they hold are gone when nobody holds them, however they ended."""
    gc.collect()
    gc.disable()
    try:
        for end in ("complete", "lost", "aborted", "raised", "cancelled"):
            at = line()
            task = at.ask()
            await turn()
            at.connection.data_received(CHUNKED)
            response = await task
            del task
            holder = Holder()
            gone = weakref.ref(holder)
            copying = asyncio.ensure_future(response.copy_to(holder.receive))
            await turn()
            holder.raises = end == "raised"
            del holder
            at.connection.data_received(b"5\r\nhello\r\n")
            if end == "complete":
                at.connection.data_received(b"0\r\n\r\n")
            elif end == "lost":
                at.lose()
            elif end == "aborted":
                response.abort(UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "x"))
            elif end == "cancelled":
                copying.cancel()
            await asyncio.wait([copying])
            failed = copying.cancelled() or copying.exception() is not None
            assert failed is (end != "complete")
            response.close()
            del copying, response
            await turn()
            assert gone() is None, end
    finally:
        gc.enable()


class Holder:
    """Takes a body and keeps it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.raises = False

    def receive(self, piece: bytes) -> None:
        """Keeps a piece, or refuses it."""
        self.pieces.append(piece)
        if self.raises:
            raise KeyError("mine")


async def test_what_waits_for_the_copying_is_bounded(line: Open) -> None:
    """Beyond 64 KiB the server waits; the copying lets it go on."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(OK + b"Content-Length: 200000\r\n\r\n" + bytes(60_000))
    response = await task
    reading = [at.transport.reading]
    at.connection.data_received(bytes(60_000))
    reading.append(at.transport.reading)
    response.resume()
    reading.append(at.transport.reading)
    assert reading == [True, False, False]
    pieces: list[bytes] = []
    copying = asyncio.ensure_future(response.copy_to(pieces.append))
    await turn()
    assert (at.transport.reading, [len(x) for x in pieces]) == (True, [120_000])
    at.connection.data_received(bytes(80_000))
    await copying
    assert at.keeper.said == ["free"]


async def test_a_paused_connection_reads_again_when_it_is_free(line: Open) -> None:
    """An answer that is complete while paused does not leave its connection deaf."""
    at = line()
    task = at.ask()
    await turn()
    at.connection.data_received(CHUNKED)
    response = await task
    copying = asyncio.ensure_future(response.copy_to(lambda _: response.pause()))
    await turn()
    at.connection.data_received(b"1\r\nx\r\n0\r\n\r\n")
    await copying
    assert (at.transport.reading, at.keeper.said) == (True, ["free"])
