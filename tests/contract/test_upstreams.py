"""One contract for both upstreams, over real sockets and on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic

import pytest

from router.errors import Reason
from router.fleet.model import Replica
from router.relay.reference import AiohttpUpstream
from router.relay.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from router.relay.wire.upstream import WireUpstream
from router.types import AttemptEnd, Headers, ReplicaId
from tests.support.flow_backend import (
    GUARD_S,
    Gate,
    ScriptedBackend,
    Step,
    close,
    opens,
    reset,
    scripted_backend,
    send,
    until_gone,
    wait,
)

SHORT_S = 0.05
"""A limit that is meant to be reached."""
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
MEGABYTE = 1 << 20

UPSTREAMS: dict[str, Callable[[], Upstream]] = {
    "wire": WireUpstream,
    "reference": AiohttpUpstream,
}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedBackend]:
    """A server that does what the test says."""
    async with scripted_backend() as backend:
        yield backend


@pytest.fixture(params=[*UPSTREAMS.values()], ids=[*UPSTREAMS])
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[Upstream]:
    """Each of the upstreams."""
    made: Upstream = request.param()
    yield made
    await made.close()


def server(engine: ScriptedBackend, *, prefix: str = "", connect_s: float = GUARD_S) -> Replica:
    """The engine as the fleet knows it."""
    return Replica(ReplicaId("pool/0"), engine.url + prefix, connect_s, GUARD_S)


def asked(
    method: str = "POST",
    path_qs: str = "/v1/completions",
    *,
    headers: Headers = (),
    body: bytes = b"{}",
    header_s: float = GUARD_S,
    idle_s: float = GUARD_S,
    fresh: bool = False,
) -> UpstreamRequest:
    """A request of which the test says what matters."""
    return UpstreamRequest(method, path_qs, headers, body, header_s, idle_s, fresh)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


async def read(response: UpstreamResponse) -> bytes:
    """The body, and the end of the exchange."""
    pieces: list[bytes] = []
    async with asyncio.timeout(GUARD_S):
        await response.copy_to(pieces.append)
    response.close()
    assert all(pieces)
    return b"".join(pieces)


async def ask(
    upstream: Upstream, engine: ScriptedBackend, request: UpstreamRequest | None = None
) -> Reply:
    """One request, answered to its end."""
    async with asyncio.timeout(GUARD_S):
        response = await upstream.send(server(engine), request or asked())
    return Reply(response.status, response.headers, await read(response))


async def refused(
    upstream: Upstream, replica: Replica, request: UpstreamRequest | None = None
) -> UpstreamError:
    """Why there was no answer."""
    with pytest.raises(UpstreamError) as caught:
        async with asyncio.timeout(GUARD_S):
            await upstream.send(replica, request or asked())
    return caught.value


# What is sent


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("POST", b"{}", ["2"]),
        ("POST", b"", ["0"]),
        ("PUT", b"", ["0"]),
        ("PATCH", b"", ["0"]),
        ("GET", b"", []),
        ("GET", b"x", ["1"]),
        ("POST", b"x" * (64 * 1024 - 1), ["65535"]),
        ("POST", b"x" * (64 * 1024), ["65536"]),
        ("POST", b"x" * (64 * 1024 + 1), ["65537"]),
        ("POST", b"x" * (5 * MEGABYTE), [str(5 * MEGABYTE)]),
    ],
    ids=str,
)
async def test_the_body_goes_with_its_length(
    upstream: Upstream, engine: ScriptedBackend, method: str, body: bytes, length: list[str]
) -> None:
    """Bodies of any size arrive whole; without one there is a length only where one is due."""
    engine.always(HELLO)
    for _ in range(2):  # the second time on a kept connection
        await ask(upstream, engine, asked(method, body=body))
        got = engine.requests[-1]
        assert got.line == f"{method} /v1/completions HTTP/1.1"
        assert (got.body == body, got.header("content-length")) == (True, length)
        assert got.header("transfer-encoding") == []
    assert engine.connections == 1


async def test_target_and_header_lines_arrive_as_they_are(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """What came in goes out: order, spelling, duplicates, escapes, bytes above 0x7f."""
    engine.always(HELLO)
    utf8 = "Grüße".encode().decode("latin-1")
    lines = (("X-b", "1"), ("x-A", "2"), ("X-b", "3"), ("Accept", "*/*"), ("X-Name", utf8))
    target = "/v1/a%2Fb//c/../d?q=%C3%BC&q=a+b&&=x%zz"
    await ask(upstream, engine, asked("GET", target, headers=lines, body=b""))
    got = engine.requests[0]
    assert got.target == target
    assert [line for line in got.headers if line[0] != "Host"] == list(lines)
    assert got.header("host") == [f"127.0.0.1:{engine.port}"]


async def test_a_prefix_stands_before_the_path(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A server may live below a path of another one."""
    engine.always(HELLO)
    response = await upstream.send(server(engine, prefix="/team/a"), asked("POST", "/v1/x?y"))
    await read(response)
    assert engine.requests[0].target == "/team/a/v1/x?y"


# How answers are framed


ANSWERS: dict[str, tuple[Sequence[Step], int, bytes]] = {
    "length": ([send(HELLO)], 200, b"hello"),
    "empty": ([send(OK + b"Content-Length: 0\r\n\r\n")], 200, b""),
    "chunks": ([send(CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")], 200, b"hello"),
    "extensions and trailers": (
        [send(CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0;e\r\nX-Trailer: 1\r\nExpires: 2\r\n\r\n')],
        200,
        b"hello",
    ),
    "many chunks": ([send(CHUNKED + b"1\r\nx\r\n" * 9999 + b"0\r\n\r\n")], 200, b"x" * 9999),
    "until the end": ([send(OK + b"\r\nhel"), send(b"lo"), close()], 200, b"hello"),
    "nothing until the end": ([send(OK + b"\r\n"), close()], 200, b""),
    "HTTP/1.0": ([send(b"HTTP/1.0 200 OK\r\n\r\nhello"), close()], 200, b"hello"),
    "HTTP/1.0 with length": (
        [send(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"), close()],
        200,
        b"hello",
    ),
    "length, then closed": ([send(HELLO), close()], 200, b"hello"),
    "length, then reset": ([send(HELLO), reset()], 200, b"hello"),
    "says it will close": (
        [send(OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello")],
        200,
        b"hello",
    ),
    "interim answers": (
        [
            send(b"HTTP/1.1 100 Continue\r\n\r\n"),
            send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + HELLO),
        ],
        200,
        b"hello",
    ),
    "204": ([send(b"HTTP/1.1 204 No Content\r\n\r\n")], 204, b""),
    "304": ([send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")], 304, b""),
    "error": ([send(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}")], 503, b"{}"),
    "large": (
        [send(OK + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3000000)],
        200,
        b"x" * 3000000,
    ),
}


@pytest.mark.parametrize(("steps", "status", "body"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_every_framing_is_read(
    upstream: Upstream, engine: ScriptedBackend, steps: Sequence[Step], status: int, body: bytes
) -> None:
    """Whatever says where an answer ends, its body comes whole, and the next request works."""
    engine.always(HELLO)
    engine.then(*steps)
    reply = await ask(upstream, engine)
    assert (reply.status, reply.body == body) == (status, True)
    assert (await ask(upstream, engine, asked(fresh=True))).body == b"hello"


async def test_the_head_comes_as_it_was_sent(upstream: Upstream, engine: ScriptedBackend) -> None:
    """Reason phrase and header lines are the server's, in latin-1, of interim answers nothing."""
    engine.then(
        send(
            b"HTTP/1.1 103 Hints\r\nX-Hint: 1\r\n\r\nHTTP/1.1 299 Fairly  gut\r\n"
            b"Content-Length: 2\r\nx-a:\xe9\xff\xc3\xbc\r\nX-A: \t2 \t\r\nX-Empty:\r\n\r\n{}"
        )
    )
    response = await upstream.send(server(engine), asked())
    assert (response.status, response.reason) == (299, "Fairly  gut")
    expected = (("Content-Length", "2"), ("x-a", "éÿÃ¼"), ("X-A", "2"), ("X-Empty", ""))
    assert response.headers == expected
    assert await read(response) == b"{}"


async def test_an_answer_to_head_has_no_body(upstream: Upstream, engine: ScriptedBackend) -> None:
    """Its length is that of the answer to GET."""
    engine.always(HELLO)
    engine.then(send(OK + b"Content-Length: 99\r\n\r\n"))
    reply = await ask(upstream, engine, asked("HEAD", body=b""))
    assert (reply.status, reply.headers, reply.body) == (200, (("Content-Length", "99"),), b"")
    assert (await ask(upstream, engine)).body == b"hello"


NO_HTTP: dict[str, bytes] = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x16" * 3,
    "no header": OK + b"nonsense\r\n\r\n",
    "switch of protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": OK
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "length of letters": OK + b"Content-Length: five\r\n\r\nhello",
    "negative length": OK + b"Content-Length: -5\r\n\r\nhello",
    "endless length": OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nhello",
    "NUL in a value": OK + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n",
    "status of letters": b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
    "huge line": OK + b"X-A: " + b"x" * 70000 + b"\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", NO_HTTP.values(), ids=NO_HTTP.keys())
async def test_what_is_no_http_is_no_answer(
    upstream: Upstream, engine: ScriptedBackend, answer: bytes
) -> None:
    """Nothing of it passes, and the server is left."""
    engine.then(send(answer), until_gone())
    error = await refused(upstream, server(engine))
    assert (error.end, error.reason) == (AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL)
    await engine.requests[0].gone.wait()


# How tries fail


async def test_nobody_listens(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A refused connection is an unreachable server."""
    await engine.stop()
    error = await refused(upstream, server(engine))
    assert (error.end, error.reason) == (AttemptEnd.UNREACHABLE, Reason.UPSTREAM_UNAVAILABLE)


@pytest.mark.parametrize("url", ["http://a..b:1", f"http://{'x' * 70}.invalid:1"])
async def test_a_name_that_is_none(upstream: Upstream, url: str) -> None:
    """A host that cannot be looked up is an unreachable server."""
    replica = Replica(ReplicaId("pool/0"), url, GUARD_S, GUARD_S)
    assert (await refused(upstream, replica)).end is AttemptEnd.UNREACHABLE


async def test_a_server_that_accepts_nothing(upstream: Upstream) -> None:
    """The limit to connect is kept where packets are swallowed."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # fills what the kernel accepts in the server's name
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        error = await refused(upstream, Replica(ReplicaId("pool/0"), url, SHORT_S, GUARD_S))
    assert (error.end, error.reason) == (AttemptEnd.UNREACHABLE, Reason.UPSTREAM_UNAVAILABLE)


async def test_a_server_that_never_shakes_hands(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """The limit to connect covers TLS."""
    url = engine.url.replace("http:", "https:")
    error = await refused(upstream, Replica(ReplicaId("pool/0"), url, SHORT_S, GUARD_S))
    assert error.end is AttemptEnd.UNREACHABLE


GOODBYES: dict[str, Sequence[Step]] = {
    "closed": [close()],
    "reset": [reset()],
    "closed inside the head": [send(OK + b"Content-Le"), close()],
    "reset inside the head": [send(OK + b"Content-Le"), reset()],
    "closed after an interim answer": [send(b"HTTP/1.1 100 Continue\r\n\r\n"), close()],
}


@pytest.mark.parametrize("steps", GOODBYES.values(), ids=GOODBYES.keys())
async def test_a_server_that_leaves_before_the_body(
    upstream: Upstream, engine: ScriptedBackend, steps: Sequence[Step]
) -> None:
    """A new connection that ends without an answer was a try that failed."""
    engine.then(*steps)
    assert (await refused(upstream, server(engine))).end is AttemptEnd.DISCONNECTED


def stale_within(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long after a request a kept connection may end as stale, however slow the machine."""
    for module in ("wire.connection", "reference"):
        monkeypatch.setattr(f"router.relay.{module}.STALE_S", seconds)


@pytest.mark.parametrize("goodbye", [close(), reset()], ids=["closed", "reset"])
async def test_a_kept_connection_that_was_dead(
    upstream: Upstream,
    engine: ScriptedBackend,
    goodbye: Step,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only it ends as stale: the same server may be asked again, on a fresh connection."""
    stale_within(GUARD_S, monkeypatch)
    engine.then(send(HELLO))
    engine.then(goodbye)
    engine.then(send(HELLO))
    await ask(upstream, engine)
    error = await refused(upstream, server(engine))
    assert (error.end, error.reason) == (AttemptEnd.STALE, Reason.UPSTREAM_UNAVAILABLE)
    assert (await ask(upstream, engine, asked(fresh=True))).body == b"hello"
    assert [got.connection for got in engine.requests] == [0, 0, 1]


@pytest.mark.parametrize("goodbye", [close(), reset()], ids=["closed", "reset"])
async def test_a_kept_connection_that_ended_late(
    upstream: Upstream,
    engine: ScriptedBackend,
    goodbye: Step,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its server had the request, and may have died of it."""
    stale_within(0.0, monkeypatch)
    engine.then(send(HELLO))
    engine.then(goodbye)
    await ask(upstream, engine)
    error = await refused(upstream, server(engine))
    assert (error.end, error.reason) == (AttemptEnd.DISCONNECTED, Reason.UPSTREAM_UNAVAILABLE)
    assert [got.connection for got in engine.requests] == [0, 0]


async def test_a_kept_connection_that_says_nothing(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """Its server is silent, not gone: nobody asks it again."""
    engine.then(send(HELLO))
    engine.then(until_gone())
    await ask(upstream, engine)
    error = await refused(upstream, server(engine), asked(header_s=SHORT_S))
    assert (error.end, error.reason) == (AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT)


async def test_a_server_that_says_nothing(upstream: Upstream, engine: ScriptedBackend) -> None:
    """No head within its limit: the try ends, and the server learns that nobody waits."""
    engine.then(until_gone())
    error = await refused(upstream, server(engine), asked(header_s=SHORT_S))
    assert (error.end, error.reason) == (AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT)
    await engine.requests[0].gone.wait()


async def test_the_wait_for_the_head_is_told(upstream: Upstream, engine: ScriptedBackend) -> None:
    """It is over when the head is here, and begins anew with each request of a connection."""
    for _ in range(2):
        asked_for, told = Gate(), Gate()
        engine.then(opens(asked_for), wait(told), send(HELLO))
        sending = asyncio.ensure_future(upstream.send(server(engine), asked()))
        begun_s = monotonic()
        await asked_for.wait()
        told.open()
        response = await sending
        waited_s = monotonic() - begun_s
        await read(response)
        assert 0.0 < response.waited_s <= waited_s


async def test_half_a_head_is_no_head(upstream: Upstream, engine: ScriptedBackend) -> None:
    """The limit counts to the head's end."""
    engine.then(send(OK + b"Content-Le"), until_gone())
    error = await refused(upstream, server(engine), asked(header_s=SHORT_S))
    assert error.end is AttemptEnd.TIMEOUT
    await engine.requests[0].gone.wait()


BREAKS: dict[str, tuple[bytes, Sequence[Step], AttemptEnd]] = {
    "closed inside a length": (
        OK + b"Content-Length: 9\r\n\r\nhello",
        [close()],
        AttemptEnd.DISCONNECTED,
    ),
    "reset inside a length": (
        OK + b"Content-Length: 9\r\n\r\nhello",
        [reset()],
        AttemptEnd.DISCONNECTED,
    ),
    "closed between chunks": (CHUNKED + b"5\r\nhello\r\n", [close()], AttemptEnd.DISCONNECTED),
    "closed inside a chunk": (CHUNKED + b"9\r\nhello", [close()], AttemptEnd.DISCONNECTED),
    "closed before the last line": (
        CHUNKED + b"5\r\nhello\r\n0\r\n",
        [close()],
        AttemptEnd.DISCONNECTED,
    ),
    "reset between chunks": (CHUNKED + b"5\r\nhello\r\n", [reset()], AttemptEnd.DISCONNECTED),
    "silent": (CHUNKED + b"5\r\nhello\r\n", [until_gone()], AttemptEnd.TIMEOUT),
}


@pytest.mark.parametrize(("start", "steps", "end"), BREAKS.values(), ids=BREAKS.keys())
async def test_a_body_that_breaks_off(
    upstream: Upstream,
    engine: ScriptedBackend,
    start: bytes,
    steps: Sequence[Step],
    end: AttemptEnd,
) -> None:
    """What there was is handed over, then the break is told."""
    there = Gate()
    engine.then(send(start), wait(there), *steps)
    limit_s = SHORT_S if end is AttemptEnd.TIMEOUT else GUARD_S
    response = await upstream.send(server(engine), asked(idle_s=limit_s))
    pieces: list[bytes] = []

    def receive(piece: bytes) -> None:
        pieces.append(piece)
        there.open()

    with pytest.raises(UpstreamError) as caught:
        await response.copy_to(receive)
    assert (b"".join(pieces), caught.value.end) == (b"hello", end)
    response.close()
    engine.always(HELLO)
    assert (await ask(upstream, engine)).body == b"hello"


# Which connections are used again


async def test_a_connection_is_used_again(upstream: Upstream, engine: ScriptedBackend) -> None:
    """After complete answers of either framing, one after the other."""
    engine.always(HELLO)
    for _ in range(3):
        engine.then(send(HELLO))
        engine.then(send(CHUNKED + b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"))
        engine.then(send(b"HTTP/1.1 204 No Content\r\n\r\n"))
    for _ in range(10):
        await ask(upstream, engine)
    assert engine.connections == 1


UNFIT: dict[str, bytes] = {
    "says it will close": OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "two answers": HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
}


@pytest.mark.parametrize("answer", UNFIT.values(), ids=UNFIT.keys())
async def test_a_connection_that_is_not_used_again(
    upstream: Upstream, engine: ScriptedBackend, answer: bytes
) -> None:
    """One that either side wants closed, or that brought more than an answer, is cut."""
    engine.then(send(answer), until_gone())
    engine.then(send(HELLO))
    assert (await ask(upstream, engine)).body == b"hello"
    await engine.requests[0].gone.wait()
    assert (await ask(upstream, engine)).body == b"hello"
    assert [got.connection for got in engine.requests] == [0, 1]


async def test_a_fresh_connection_on_demand(upstream: Upstream, engine: ScriptedBackend) -> None:
    """`fresh` takes none of those that are kept."""
    engine.always(HELLO)
    await ask(upstream, engine)
    await ask(upstream, engine, asked(fresh=True))
    assert [got.connection for got in engine.requests] == [0, 1]


async def test_requests_do_not_wait_for_each_other(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """Each request that runs has a connection of its own; all are kept."""
    together = Gate()
    count = 20

    def script(_: object) -> Sequence[Step]:
        if len(engine.requests) == count:
            together.open()
        return [wait(together), send(HELLO)]

    engine.always(script)
    replies = await asyncio.gather(*(ask(upstream, engine) for _ in range(count)))
    assert [reply.body for reply in replies] == [b"hello"] * count
    await asyncio.gather(*(ask(upstream, engine) for _ in range(count)))
    assert engine.connections == count


async def test_a_connection_that_died_in_peace(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A kept connection whose end has been noticed is not tried."""
    engine.then(send(HELLO), close())
    await ask(upstream, engine)
    other = await asyncio.open_connection("127.0.0.1", engine.port)
    engine.always(HELLO)
    other[1].write(b"GET / HTTP/1.1\r\n\r\n")
    await other[0].readexactly(len(HELLO))  # by now the loop has seen the end as well
    other[1].close()
    assert (await ask(upstream, engine)).body == b"hello"


# How our side ends it


async def test_closing_early_cuts(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A server whose answer nobody wants any more sees the end of the connection."""
    engine.then(send(CHUNKED + b"5\r\nhello\r\n"), until_gone())
    engine.then(send(HELLO))
    response = await upstream.send(server(engine), asked())
    response.close()
    response.close()
    await engine.requests[0].gone.wait()
    with pytest.raises(UpstreamError):
        await response.copy_to(lambda _: pytest.fail("handed over after the end"))
    assert (await ask(upstream, engine)).body == b"hello"


async def test_closing_within_a_piece_ends_the_copying(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """After `close` nothing is handed over."""
    engine.then(send(CHUNKED + b"5\r\nhello\r\n"), until_gone())
    response = await upstream.send(server(engine), asked())
    with pytest.raises(UpstreamError):
        await response.copy_to(lambda _: response.close())
    await engine.requests[0].gone.wait()


async def test_closing_late_is_nothing(upstream: Upstream, engine: ScriptedBackend) -> None:
    """After the end `close` and `abort` change nothing, however often and whoever has it now."""
    engine.always(HELLO)
    response = await upstream.send(server(engine), asked())
    await read(response)
    parted = Gate()
    engine.then(send(OK + b"Content-Length: 5\r\n\r\nhe"), wait(parted), send(b"llo"))
    second = await upstream.send(server(engine), asked())
    response.close()
    response.abort(UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "late"))
    response.pause()
    parted.open()
    assert await read(second) == b"hello"
    assert engine.connections == 1


@pytest.mark.parametrize("when", ["before", "between", "within"])
async def test_abort_says_why(upstream: Upstream, engine: ScriptedBackend, when: str) -> None:
    """The error given is what `copy_to` raises, and the server is left."""
    engine.then(send(CHUNKED + b"5\r\nhello\r\n"), until_gone())
    response = await upstream.send(server(engine), asked())
    why = UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "enough")
    loop = asyncio.get_running_loop()
    calls = 0

    def receive(_: bytes) -> None:
        nonlocal calls
        calls += 1
        if when == "within":
            response.abort(why)
        else:
            loop.call_soon(response.abort, why)

    if when == "before":
        response.abort(why)
    with pytest.raises(UpstreamError) as caught:
        await response.copy_to(receive)
    assert (caught.value is why, calls) == (True, 0 if when == "before" else 1)
    await engine.requests[0].gone.wait()
    response.close()


@pytest.mark.parametrize(
    "body", [b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n\r\n"], ids=["part", "all"]
)
async def test_what_the_receiver_raises_comes_out(
    upstream: Upstream, engine: ScriptedBackend, body: bytes
) -> None:
    """Whoever takes the body may refuse to go on."""
    engine.then(send(CHUNKED + body), until_gone())
    response = await upstream.send(server(engine), asked())

    def receive(_: bytes) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await response.copy_to(receive)
    response.close()
    if b"0\r\n" not in body:
        await engine.requests[0].gone.wait()


async def test_what_the_receiver_raises_later_comes_out(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """The same for a piece that comes while `copy_to` waits."""
    first = Gate()
    engine.then(send(CHUNKED + b"5\r\nhello\r\n"), wait(first), send(b"1\r\n!\r\n"), until_gone())
    response = await upstream.send(server(engine), asked())

    def receive(piece: bytes) -> None:
        first.open()
        if piece == b"!":
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await response.copy_to(receive)
    await engine.requests[0].gone.wait()
    response.close()


async def test_cancelling_a_request_cuts(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A caller that leaves while waiting for the head is missed by the server."""
    asked_for = Gate()
    engine.then(opens(asked_for), until_gone())
    task = asyncio.ensure_future(upstream.send(server(engine), asked()))
    await asked_for.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.requests[0].gone.wait()


async def test_cancelling_the_copying_cuts(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A caller that leaves within the body is missed by the server; no piece comes any more."""
    first = Gate()
    engine.then(send(CHUNKED + b"5\r\nhello\r\n"), until_gone())
    response = await upstream.send(server(engine), asked())
    task = asyncio.ensure_future(response.copy_to(lambda _: first.open()))
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    response.close()
    await engine.requests[0].gone.wait()


async def test_closing_the_upstream_closes_connections(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """Those that are kept and those at work; a request that waits is told."""
    waiting = Gate()
    engine.then(send(HELLO), until_gone())
    engine.then(opens(waiting), until_gone())
    await ask(upstream, engine)
    task = asyncio.ensure_future(refused(upstream, server(engine), asked(fresh=True)))
    await waiting.wait()
    await upstream.close()
    assert (await task).end is AttemptEnd.DISCONNECTED
    for got in engine.requests:
        await got.gone.wait()


# Flow


async def test_pause_and_resume(upstream: Upstream, engine: ScriptedBackend) -> None:
    """While paused nothing is handed over; both may be called at any time, and twice."""
    sent, first = Gate(), Gate()
    engine.then(
        send(CHUNKED + b"5\r\nhello\r\n"),
        wait(first),
        send(b"1\r\n!\r\n"),
        opens(sent),
        send(b"0\r\n\r\n"),
    )
    response = await upstream.send(server(engine), asked())
    pieces: list[bytes] = []

    def receive(piece: bytes) -> None:
        pieces.append(piece)
        if piece == b"hello":
            response.pause()
            response.pause()
            first.open()

    response.resume()
    copying = asyncio.ensure_future(response.copy_to(receive))
    await sent.wait()
    engine.then(send(HELLO))
    await ask(upstream, engine)  # what was sent has had its time to come
    assert pieces == [b"hello"]
    response.resume()
    response.resume()
    await copying
    assert pieces == [b"hello", b"!"]
    response.pause()
    response.close()


async def test_a_paused_answer_holds_its_server_up(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """However much there is to come: it stays with the server, not in our memory."""
    size = 64 * MEGABYTE
    sent, begun = Gate(), Gate()
    engine.then(
        send(OK + b"Content-Length: %d\r\n\r\nx" % (size + 1)), send(bytes(size)), opens(sent)
    )
    response = await upstream.send(server(engine), asked())
    taken = 0

    def receive(piece: bytes) -> None:
        nonlocal taken
        taken += len(piece)
        if not begun.opened:
            response.pause()
            begun.open()

    copying = asyncio.ensure_future(response.copy_to(receive))
    await begun.wait()
    engine.always(HELLO)
    for _ in range(20):
        await ask(upstream, engine)
    assert (sent.opened, taken < MEGABYTE) == (False, True)
    response.resume()
    await copying
    response.close()
    assert (sent.opened, taken) == (True, size + 1)


async def test_an_answer_nobody_takes_holds_its_server_up(
    upstream: Upstream, engine: ScriptedBackend
) -> None:
    """The same before `copy_to` is called."""
    size = 64 * MEGABYTE
    sent = Gate()
    engine.then(send(OK + b"Content-Length: %d\r\n\r\n" % size), send(bytes(size)), opens(sent))
    response = await upstream.send(server(engine), asked())
    engine.always(HELLO)
    for _ in range(20):
        await ask(upstream, engine)
    assert not sent.opened
    assert len(await read(response)) == size


async def test_an_early_refusal_arrives(upstream: Upstream, engine: ScriptedBackend) -> None:
    """A server may answer before it has read the request, and close."""
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
    refusing = await asyncio.start_server(_refuse(answer), "127.0.0.1", 0)
    async with refusing:
        url = f"http://127.0.0.1:{refusing.sockets[0].getsockname()[1]}"
        replica = Replica(ReplicaId("pool/0"), url, GUARD_S, GUARD_S)
        for _ in range(10):
            response = await upstream.send(replica, asked(body=bytes(16 * MEGABYTE)))
            assert (response.status, await read(response)) == (413, b"large")


def _refuse(
    answer: bytes,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    return serve
