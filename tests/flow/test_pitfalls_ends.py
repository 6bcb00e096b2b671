"""Ends of requests: who leaves is missed by the engine, and nothing is counted for ever (14-18)."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from router.app import Application
from router.relay.harvest import StreamHarvest
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import (
    Gate,
    ScriptedBackend,
    Step,
    close,
    does,
    opens,
    reset,
    send,
    until_gone,
    wait,
)
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import always, config_of, decisions, in_flight, only_decision, pool

EVENTS = wire.llama_events()
BODY = wire.dump({"model": "tiny", "input": "x", "messages": [], "prompt": "x"})
STREAMED = BODY[:-1] + b',"stream":true}'
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
)

ENDPOINTS = {
    "/v1/chat/completions": BODY,
    "/v1/completions": BODY,
    "/v1/responses": BODY,
    "/v1/messages": BODY,
    "/completion": BODY,
    "/v1/messages/count_tokens": BODY,
    "/v1/embeddings": BODY,
    "/v1/rerank": BODY,
    "/tokenize": BODY,
    "/v1/audio/speech": BODY,
    "/v1/audio/transcriptions": FORM,
    "/v1/anything/else": BODY,
}
GENERATING = tuple(ENDPOINTS)[:5]

PHASES: dict[str, list[Step]] = {
    "before the head": [],
    "after the head": [send(wire.STREAM_HEAD)],
    "within the body": [send(wire.STREAM_HEAD + wire.chunk(b": here\n\ndata: {"))],
}


def post(target: str, *, streamed: bool = False) -> bytes:
    """A request that fits its endpoint."""
    if ENDPOINTS[target] is FORM:
        data = request_bytes(FORM, target)
        return data.replace(b"application/json", b"multipart/form-data; boundary=b")
    return request_bytes(STREAMED if streamed else ENDPOINTS[target], target)


def nothing_left(app: Application) -> None:
    """No request is counted anywhere any more."""
    assert in_flight(app) == 0
    state = app.state()["admission"]
    assert (state["in_flight"], state["waiting"]) == (0, 0)


CASES = [
    (target, streamed)
    for target in ENDPOINTS
    for streamed in ((False, True) if target in GENERATING else (False,))
]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("target", "streamed"), CASES)
async def test_a_client_leaves(
    start: Start, plain: ScriptedBackend, tmp_path: Path, target: str, phase: str, *, streamed: bool
) -> None:
    """Of any endpoint, stream or not: the engine sees it within a second, and no slot is lost."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    there = Gate()
    plain.then(*PHASES[phase], opens(there), until_gone())
    async with raw_client(app.data_url) as client:
        await client.send(post(target, streamed=streamed))
        await there.wait()
        if phase == "within the body":
            await client.head()
        assert in_flight(app) == 1
        client.leave()
        left_s = time.monotonic()
        await plain.requests[0].gone.wait()
        assert time.monotonic() - left_s < 1.0
    await decisions(app)
    nothing_left(app)


@asynccontextmanager
async def deaf_server() -> AsyncIterator[tuple[int, Gate, Gate]]:
    """Takes connections and never shakes hands: its port, and when a client has come and gone.

    The first to come is the probe at the start.
    """
    there, gone, come = Gate(), Gate(), list[bytes]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        come.append(await reader.read(1))
        probe = len(come) == 1
        if not probe:
            there.open()
        while await reader.read(65536):
            pass
        if not probe:
            gone.open()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], there, gone
    finally:
        server.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_leaves_while_its_engine_is_being_connected(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, streamed: bool
) -> None:
    """The half-made connection is closed too."""
    async with deaf_server() as (port, there, gone):
        made = pool("plain", plain) | {"replicas": [{"url": f"https://127.0.0.1:{port}"}]}
        app = await start(config_of(made | {"health": {"timeout_s": 0.1}}, folder=tmp_path))
        async with raw_client(app.data_url) as client:
            await client.send(post("/v1/chat/completions", streamed=streamed))
            await there.wait()
            client.leave()
            await gone.wait()
        assert (await only_decision(app))["status"] == "aborted"
        nothing_left(app)


ENDS: dict[str, tuple[list[Step], bytes]] = {
    "success": ([send(wire.llama_chat())], post("/v1/chat/completions")),
    "stream": ([send(wire.stream(EVENTS))], post("/v1/chat/completions", streamed=True)),
    "refused here": ([], request_bytes(b"{")),
    "refused by the engine": (
        [send(wire.whole(b"{}", "400 Bad Request"))],
        post("/v1/chat/completions"),
    ),
    "busy": ([send(wire.whole(b"{}", "503 Busy"))], post("/v1/chat/completions")),
    "error": ([send(wire.whole(b"{}", "500 Broken"))], post("/v1/chat/completions")),
    "error in place of a stream": (
        [send(wire.stream([wire.event({"error": {"code": 500, "message": "m"}})]))],
        post("/v1/chat/completions", streamed=True),
    ),
    "lost before the head": ([reset()], post("/v1/chat/completions")),
    "lost within a stream": (
        [send(wire.STREAM_HEAD + wire.chunk(EVENTS[1])), reset()],
        post("/v1/chat/completions", streamed=True),
    ),
    "no HTTP": ([send(b"nonsense\r\n\r\n"), close()], post("/v1/chat/completions")),
    "silent": ([until_gone()], post("/v1/chat/completions")),
    "silent within a stream": (
        [send(wire.STREAM_HEAD + wire.chunk(EVENTS[1])), until_gone()],
        post("/v1/chat/completions", streamed=True),
    ),
    "balanced": ([send(wire.llama_chat())], post("/v1/embeddings")),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_end_gives_everything_back(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, end: str
) -> None:
    """Places, load of servers and memory of bodies, once: the next request has all of them."""
    steps, data = ENDS[end]
    fast.always(lambda _: steps)
    plain.always(lambda _: steps)
    limits = {"header_s": 0.2, "idle_s": 0.2}
    pools = (
        pool("plain", plain, timeouts=limits),
        pool("fast", fast, method="draft_model", timeouts=limits),
    )
    size = 2048
    config = config_of(
        *pools,
        folder=tmp_path,
        policy=always("fast"),
        admission={"max_concurrent": 1, "max_wait_s": 0},
        listen={"max_body_bytes": size, "max_buffered_bytes": size},
    )
    app = await start(config)
    for _ in range(2):
        await ask(app.data_url, data)
        nothing_left(app)
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    largest = wire.chat()
    largest += b" " * (size - len(largest))
    assert (await ask(app.data_url, request_bytes(largest))).status == 200
    nothing_left(app)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_flaw_after_the_end_spoils_no_other_answer(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    streamed: bool,
) -> None:
    """The answer was whole: an error that follows it would be read as the next one."""
    from router.classify.sessions import SessionClassifier  # noqa: PLC0415 - patched below

    plain.then(send(wire.stream(EVENTS) if streamed else wire.llama_chat()))
    plain.always(wire.llama_chat("the next one"))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))

    def spoiled(*_: object) -> None:
        raise LookupError

    async with raw_client(app.data_url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(SessionClassifier, "learn", spoiled)
            await client.send(post("/v1/chat/completions", streamed=streamed))
            first = await client.reply()
        await client.send(post("/v1/chat/completions"))
        second = await client.reply()
    assert (first.status, second.status) == (200, 200)
    assert b"internal" not in first.body
    assert b"the next one" in second.body


@pytest.mark.parametrize("inside", [False, True], ids=["between events", "inside an event"])
async def test_a_flaw_within_a_stream_is_told_where_it_can_be_read(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    inside: bool,
) -> None:
    """Inside an event the stream is cut, as it is where its server fails."""
    there, feed = Gate(), StreamHarvest.feed
    first = EVENTS[0] + EVENTS[1][:20] if inside else EVENTS[0]
    plain.then(send(wire.STREAM_HEAD + wire.chunk(first)), wait(there), send(wire.chunk(b"flaw")))

    def flawed(harvest: StreamHarvest, data: bytes, now: float) -> bytes:
        if data == b"flaw":
            raise LookupError
        return feed(harvest, data, now)

    monkeypatch.setattr(StreamHarvest, "feed", flawed)
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    body = wire.chat(stream=True, stream_options={"include_usage": True})
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(body))
        await client.head()
        assert await client.piece() == first
        there.open()
        if inside:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.rest()
        else:
            assert b"Internal error." in await client.rest()


async def test_who_leaves_is_counted_as_such(
    start: Start, plain: ScriptedBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As aborted: no failure of the pool, no refusal, no open breaker, nothing above info."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    app = await start(config_of(pool("plain", plain), folder=tmp_path), clock)
    for _ in range(12):
        there = Gate()
        plain.then(opens(there), until_gone())
        async with raw_client(app.data_url) as client:
            await client.send(post("/v1/chat/completions", streamed=True))
            await there.wait()
            client.leave()
            await plain.requests[-1].gone.wait()
    assert {line["status"] for line in await decisions(app)} == {"aborted"}
    text = (await get(app.admin_url, "/metrics")).body.decode()
    [counted] = [x for x in text.splitlines() if 'status="aborted"' in x and "_total" in x]
    assert counted.endswith(" 12.0")
    failed = [x for x in text.splitlines() if 'status="failed"' in x and "_total" in x]
    assert [x.rsplit(" ", 1)[1] for x in failed] == ["0.0"]
    assert "specroute_refused_requests_total{" not in text
    [shown] = app.state()["routes"][0]["pools"][0]["replicas"]
    assert (shown["state"], shown["breaker"]) == ("up", "closed")
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_long_stream_takes_no_more_memory_than_a_short_one(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Figures are found in what passes; what has passed is not kept."""
    more, seen, done = Gate(), Gate(), Gate()
    event = wire.llama_chunk({"content": "x" * 30_000})
    burst: list[Step] = [send(wire.chunk(event)) for _ in range(300)]
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(EVENTS[0])),
        *burst[:50],
        opens(seen),
        wait(more),
        *burst,
        opens(done),
        send(b"".join(wire.chunk(event) for event in EVENTS[-2:]) + wire.END),
    )
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(post("/v1/chat/completions", streamed=True))
        await client.head()
        left = len(EVENTS[0]) + 50 * len(event)
        while left:
            left -= len(await client.piece())
        await seen.wait()
        gc.collect()
        tracemalloc.start()
        try:
            more.open()
            while not done.opened:
                await client.piece()
            gc.collect()
            grown, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (await client.rest()).endswith(wire.DONE)
    assert len(event) * 300 > 8_000_000
    assert grown < 1_000_000
    assert peak < 4_000_000
    assert (await only_decision(app))["tokens"] == 5


async def test_the_lag_of_the_loop_is_exported(
    start: Start, plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that holds everybody up shows in a histogram."""
    monkeypatch.setattr("router.app.INTERVAL_S", 0.01)
    plain.always(lambda _: [does(held), send(wire.llama_chat())])

    def held() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    late = 0.0
    async with asyncio.timeout(15):
        while not late:
            await ask(app.data_url, post("/v1/chat/completions"))
            text = (await get(app.admin_url, "/metrics")).body.decode()
            values = dict(x.rsplit(" ", 1) for x in text.splitlines() if "loop_lag" in x)
            below = float(values['specroute_loop_lag_seconds_bucket{le="0.1"}'])
            late = float(values["specroute_loop_lag_seconds_count"]) - below
