"""The whole upstream, where it is stricter than the contract that both upstreams keep."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from router.errors import Reason
from router.fleet.model import Replica
from router.relay.upstream import UpstreamError, UpstreamRequest
from router.relay.wire.dial import trusting_system
from router.relay.wire.upstream import WireUpstream
from router.types import AttemptEnd, ReplicaId
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

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
TLS = Path(__file__).parents[3] / "support" / "tls"


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedBackend]:
    """A server that does what the test says."""
    async with scripted_backend() as backend:
        yield backend


@pytest.fixture
async def upstream() -> AsyncIterator[WireUpstream]:
    """The upstream that serves."""
    made = WireUpstream()
    yield made
    await made.close()


def server(url: str, connect_s: float = GUARD_S) -> Replica:
    """A server of the fleet."""
    return Replica(ReplicaId("pool/0"), url, connect_s, GUARD_S)


def asked(*, body: bytes = b"{}", fresh: bool = False, idle_s: float = GUARD_S) -> UpstreamRequest:
    """A request."""
    return UpstreamRequest("POST", "/v1/x", (), body, GUARD_S, idle_s, fresh)


async def ask(upstream: WireUpstream, url: str, request: UpstreamRequest | None = None) -> bytes:
    """The body of an answer."""
    pieces: list[bytes] = []
    async with asyncio.timeout(GUARD_S):
        response = await upstream.send(server(url), request or asked())
        await response.copy_to(pieces.append)
    response.close()
    return b"".join(pieces)


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"], ids=["length", "chunks"])
async def test_a_surplus_in_the_same_read(
    upstream: WireUpstream, engine: ScriptedBackend, end: bytes
) -> None:
    """The answer counts, what follows it reaches nobody, and the connection is not used again."""
    answer = CHUNKED + b"5\r\nhello\r\n" + end if end else HELLO
    engine.then(send(answer + HELLO), until_gone())
    engine.always(HELLO)
    assert await ask(upstream, engine.url) == b"hello"
    await engine.requests[0].gone.wait()
    assert await ask(upstream, engine.url) == b"hello"
    assert engine.connections == 2


async def test_a_surplus_that_nobody_has_read_yet(
    upstream: WireUpstream, engine: ScriptedBackend
) -> None:
    """What lies in the kernel when a request comes is never taken for its answer."""
    finished, sent = Gate(), Gate()
    poison = OK + b"Content-Length: 6\r\n\r\npoison"
    engine.then(send(HELLO), wait(finished), send(poison), opens(sent), until_gone())
    engine.always(HELLO)
    await ask(upstream, engine.url)
    finished.open()
    await sent.wait()
    assert await ask(upstream, engine.url) == b"hello"


BREAKS: dict[str, tuple[bytes, Step]] = {
    "chunks broken": (CHUNKED + b"5\r\nhello\r\n", send(b"zz\r\n")),
    "a reset where the end ends it": (OK + b"\r\nhello", reset()),
}


@pytest.mark.parametrize(("start", "step"), BREAKS.values(), ids=BREAKS.keys())
async def test_a_break_is_noticed_at_once(
    upstream: WireUpstream, engine: ScriptedBackend, start: bytes, step: Step
) -> None:
    """Not by the limit, and never taken for the end."""
    there = Gate()
    engine.then(send(start), wait(there), step, until_gone())
    response = await upstream.send(server(engine.url), asked())
    with pytest.raises(UpstreamError) as caught:
        await response.copy_to(lambda _: there.open())
    assert caught.value.end is AttemptEnd.DISCONNECTED


async def test_a_control_character_is_refused(
    upstream: WireUpstream, engine: ScriptedBackend
) -> None:
    """In a header line it has no meaning, and might have one for the client."""
    engine.then(send(OK + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n"), until_gone())
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(server(engine.url), asked())
    assert caught.value.reason is Reason.UPSTREAM_PROTOCOL


async def test_pools_know_nothing_of_each_other(upstream: WireUpstream) -> None:
    """A connection to one server is never used for another, not even of the same host."""
    async with scripted_backend() as one, scripted_backend() as two:
        one.always(OK + b"Content-Length: 3\r\n\r\none")
        two.always(OK + b"Content-Length: 3\r\n\r\ntwo")
        for _ in range(3):
            assert await ask(upstream, one.url) == b"one"
            assert await ask(upstream, two.url) == b"two"
        assert (one.connections, two.connections) == (1, 1)


async def test_old_connections_are_swept(engine: ScriptedBackend) -> None:
    """A server sees the end of a connection that is not needed any more."""
    upstream = WireUpstream(keep_s=0.02)
    engine.then(send(HELLO), until_gone())
    await ask(upstream, engine.url)
    await engine.requests[0].gone.wait()
    await upstream.close()


@pytest.mark.parametrize("url", ["http://", "gopher://engine", "http://engine:0x"])
async def test_a_url_that_is_none(upstream: WireUpstream, url: str) -> None:
    """It is an unreachable server."""
    with pytest.raises(UpstreamError) as caught:
        await upstream.send(server(url), asked())
    assert caught.value.end is AttemptEnd.UNREACHABLE


async def test_after_its_end_there_is_no_beginning(engine: ScriptedBackend) -> None:
    """Neither to a server that it knew nor to another."""
    upstream = WireUpstream()
    engine.always(HELLO)
    await ask(upstream, engine.url)
    await upstream.close()
    await upstream.close()
    for url in (engine.url, "http://127.0.0.1:9"):
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(server(url), asked())
        assert caught.value.end is AttemptEnd.UNREACHABLE


# TLS


def showing_localhost() -> ssl.SSLContext:
    """A server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem")
    return context


@pytest.fixture
async def safe() -> AsyncIterator[WireUpstream]:
    """One that believes the tests' authority."""
    context = trusting_system()
    context.load_verify_locations(TLS / "ca.pem")
    made = WireUpstream(context)
    yield made
    await made.close()


async def test_over_tls(safe: WireUpstream) -> None:
    """Small and large, both ways, on one connection that is kept."""
    size = 3_000_000
    async with scripted_backend(tls=showing_localhost()) as engine:
        engine.always(OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
        for body in (b"{}", b"x" * size, b""):
            assert await ask(safe, engine.url, asked(body=body)) == bytes(size)
            assert engine.requests[-1].body == body
        assert engine.connections == 1


async def test_pausing_over_tls(safe: WireUpstream) -> None:
    """What has not been read stays unread, and comes afterwards."""
    size = 16_000_000
    begun = Gate()
    async with scripted_backend(tls=showing_localhost()) as engine:
        engine.then(send(OK + b"Content-Length: %d\r\n\r\nx" % (size + 1)), send(bytes(size)))
        engine.always(HELLO)
        response = await safe.send(server(engine.url), asked())
        taken = 0

        def receive(piece: bytes) -> None:
            nonlocal taken
            taken += len(piece)
            if not begun.opened:
                response.pause()
                begun.open()

        copying = asyncio.ensure_future(response.copy_to(receive))
        await begun.wait()
        for _ in range(5):
            await ask(safe, engine.url)
        assert taken < 2_000_000
        response.resume()
        await copying
        assert taken == size + 1


GOODBYES: dict[str, tuple[Sequence[Step], AttemptEnd]] = {
    "closed": ([close()], AttemptEnd.DISCONNECTED),
    "in the head": ([send(OK), close()], AttemptEnd.DISCONNECTED),
}


@pytest.mark.parametrize(("steps", "end"), GOODBYES.values(), ids=GOODBYES.keys())
async def test_goodbyes_over_tls(
    safe: WireUpstream, steps: Sequence[Step], end: AttemptEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end as those in clear do, stale ones included."""
    monkeypatch.setattr("router.relay.wire.connection.STALE_S", GUARD_S)
    async with scripted_backend(tls=showing_localhost()) as engine:
        engine.then(*steps)
        with pytest.raises(UpstreamError) as caught:
            await safe.send(server(engine.url), asked())
        assert caught.value.end is end
        engine.then(send(HELLO))
        engine.then(close())
        await ask(safe, engine.url)
        with pytest.raises(UpstreamError) as caught:
            await safe.send(server(engine.url), asked())
        assert caught.value.end is AttemptEnd.STALE


async def test_a_server_that_is_not_believed(upstream: WireUpstream) -> None:
    """It is an unreachable one."""
    async with scripted_backend(tls=showing_localhost()) as engine:
        with pytest.raises(UpstreamError) as caught:
            await upstream.send(server(engine.url), asked())
        assert caught.value.end is AttemptEnd.UNREACHABLE


# Nothing is left behind


def _sockets() -> list[str]:
    links = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own, which is closed by now
            links.append(str(path.readlink()))
    return sorted(link for link in links if link.startswith("socket:"))


ENDINGS: tuple[Sequence[Step], ...] = (
    [send(HELLO)],
    [send(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")],
    [send(HELLO), close()],
    [send(HELLO + b"surplus"), until_gone()],
    [send(OK + b"\r\nhello"), close()],
    [close()],
    [reset()],
    [send(OK), close()],
    [send(CHUNKED + b"5\r\nhello\r\n"), close()],
    [send(CHUNKED + b"5\r\nhello\r\n"), reset()],
    [send(CHUNKED + b"5\r\nhello\r\nzz"), until_gone()],
    [send(CHUNKED + b"5\r\nhello\r\n"), until_gone()],
    [until_gone()],
    [send(b"nonsense"), until_gone()],
)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files here")
@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
async def test_nothing_is_left_behind(safe: WireUpstream, *, secure: bool) -> None:
    """After hundreds of exchanges that ended in all ways no connection is open on either side."""
    rng = random.Random(7)
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = _sockets()
    async with scripted_backend(tls=showing_localhost() if secure else None) as engine:
        engine.always(lambda _: rng.choice(ENDINGS))

        async def one(way: str) -> None:
            def receive(_: bytes) -> None:
                if way == "raise":
                    raise KeyError(way)
                if way == "abort":
                    response.abort(UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, ""))

            body = b"x" * rng.choice((0, 10, 300_000))
            response = await safe.send(server(engine.url), asked(body=body, idle_s=0.5))
            try:
                if way != "leave":
                    await response.copy_to(receive)
            finally:
                response.close()

        async def cancelled(after: int) -> None:
            task = asyncio.ensure_future(one("read"))
            for _ in range(after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        for _ in range(25):
            ways = [rng.choice(("read", "raise", "abort", "leave")) for _ in range(10)]
            tasks = [asyncio.ensure_future(_within(one(way))) for way in ways]
            tasks += [asyncio.ensure_future(cancelled(rng.randrange(40))) for _ in range(10)]
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                assert end is None or isinstance(end, UpstreamError | KeyError | TimeoutError), end
        await safe.close()
        await engine.all_gone()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (complaints, _sockets()) == ([], before)


async def _within(work: object) -> None:
    async with asyncio.timeout(0.1):
        await work  # type: ignore[misc]
