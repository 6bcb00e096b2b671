"""Failures before and after the first byte, and what a server's words are taken for (19-26, 28)."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import (
    Gate,
    ScriptedBackend,
    Step,
    close,
    reset,
    send,
    until_gone,
    wait,
)
from tests.support.flow_client import RawClient, Reply, ask, raw_client, request_bytes
from tests.support.flow_world import always, config_of, decisions, in_flight, only_decision, pool

OPENING, WORD, *_ = EVENTS = wire.llama_events()
WHOLE = wire.llama_chat("from plain")
SOON_S = 0.2


async def two_pools(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, folder: Path, **more: Any
) -> Application:
    """A proxy that always draws the second pool, which has the first one to fall back on."""
    limits = {"header_s": SOON_S, "idle_s": SOON_S}
    return await start(
        config_of(
            pool("plain", plain, timeouts=limits),
            pool("fast", fast, method="draft_model", timeouts=limits),
            folder=folder,
            policy=always("fast"),
            **more,
        )
    )


BEFORE: dict[str, tuple[list[Step], str, bool]] = {
    "reset": ([reset()], "disconnected", True),
    "closed": ([close()], "disconnected", True),
    "half a head": ([send(b"HTTP/1.1 200 OK\r\nContent-"), close()], "disconnected", True),
    "no HTTP": ([send(b"nonsense\r\n\r\n"), close()], "disconnected", True),
    "head alone, then reset": ([send(wire.STREAM_HEAD), reset()], "disconnected", True),
    "error": ([send(wire.whole(b"{}", "500 Broken"))], "server_error", True),
    "bad gateway": ([send(wire.whole(b"", "502 Bad Gateway"))], "server_error", True),
    "busy": ([send(wire.whole(b"{}", "503 Busy"))], "busy", True),
    "full": ([send(wire.whole(b"{}", "429 Full"))], "busy", True),
    "silent": ([until_gone()], "timeout", False),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("steps", "end", "replaced"), BEFORE.values(), ids=BEFORE)
async def test_before_the_first_byte(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    steps: list[Step],
    end: str,
    *,
    replaced: bool,
    streamed: bool,
) -> None:
    """Another server answers, unless the first may still be at work; the client sees one answer."""
    fast.always(lambda _: steps)
    plain.always(wire.stream(EVENTS) if streamed else WHOLE)
    app = await two_pools(start, plain, fast, tmp_path)
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=streamed)))
    line = await only_decision(app)
    assert line["attempts"][0] == ["fast/0", end]
    assert (len(fast.requests), len(plain.requests)) == (1, int(replaced))
    if replaced:
        expected = b"".join(EVENTS) if streamed else WHOLE.partition(b"\r\n\r\n")[2]
        assert (reply.status, reply.body, line["served_by"]) == (200, expected, "plain")
    else:
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
    assert in_flight(app) == 0


AFTER: dict[str, list[Step]] = {"reset": [reset()], "closed": [close()], "silent": [until_gone()]}


@pytest.mark.parametrize("kind", AFTER)
async def test_after_the_first_byte_of_a_stream(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, kind: str
) -> None:
    """Nobody else is asked: what there was, one error, then the mark; no text comes twice."""
    fast.always(lambda _: [send(wire.STREAM_HEAD + wire.chunk(OPENING + WORD)), *AFTER[kind]])
    plain.always(wire.stream(EVENTS))
    app = await two_pools(start, plain, fast, tmp_path)
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.status, plain.requests, len(fast.requests)) == (200, [], 1)
    assert reply.body.startswith(OPENING + WORD)
    added = [x for x in reply.body[len(OPENING + WORD) :].split(b"\n\n") if x]
    assert added.pop() == b"data: [DONE]"
    [error] = added
    assert set(json.loads(error[6:])["error"]) == {"message", "type", "param", "code"}
    assert (await only_decision(app))["status"] == "failed"


@pytest.mark.parametrize("kind", AFTER)
async def test_after_the_first_byte_of_a_whole_answer(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, kind: str
) -> None:
    """The connection is cut, so that nobody takes a part for the whole; nobody else is asked."""
    fast.always(lambda _: [send(WHOLE[:-10]), *AFTER[kind]])
    app = await two_pools(start, plain, fast, tmp_path)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        assert (await client.head()).status == 200
        with pytest.raises((EOFError, ConnectionError)):
            await client.rest()
    assert plain.requests == []
    assert (await only_decision(app))["status"] == "failed"


async def ask_whole(client: RawClient) -> Reply:
    """A request that is not streamed."""
    await client.send(request_bytes(wire.chat()))
    return await client.reply()


def replica(app: Application, arm: int = 0) -> dict[str, Any]:
    """The first server of a pool, as it is shown."""
    shown: dict[str, Any] = app.state()["routes"][0]["pools"][arm]["replicas"][0]
    return shown


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("400 Bad Request", "no such parameter"),
        ("404 Not Found", "no such model"),
        ("413 Payload Too Large", "images"),
        ("422 Unprocessable Entity", "schema"),
        ("500 Internal Server Error", "This model's maximum context length is 4096 tokens."),
        ("500 Internal Server Error", "input is too large to process. increase the batch size"),
    ],
)
async def test_what_is_the_request_s_fault_opens_no_breaker(
    start: Start, plain: ScriptedBackend, tmp_path: Path, status: str, said: str
) -> None:
    """However often it comes; the client gets the engine's own words, and nobody else is asked."""
    body = wire.dump({"error": {"message": said}})
    plain.always(wire.whole(body, status))
    app = await start(config_of(pool("plain", plain), folder=tmp_path), ManualClock())
    async with raw_client(app.data_url) as client:
        for _ in range(20):
            reply = await ask_whole(client)
            assert (reply.status, reply.body) == (int(status[:3]), body)
    assert len(plain.requests) == 20
    assert (replica(app)["state"], replica(app)["breaker"]) == ("up", "closed")


async def test_an_engine_that_took_too_long_is_no_long_prompt(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Its words hold "too long", and it is replaced all the same."""
    said = wire.dump({"error": {"message": "The engine took too long to respond."}})
    fast.always(wire.whole(said, "504 Gateway Timeout"))
    plain.always(WHOLE)
    app = await two_pools(start, plain, fast, tmp_path)
    assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
    assert (await only_decision(app))["attempts"][0] == ["fast/0", "server_error"]


@pytest.mark.parametrize("form", ["seconds", "date", "far", "none", "nonsense"])
async def test_a_busy_server_rests_as_long_as_it_asks(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, form: str
) -> None:
    """In seconds or to a date, up to the cap; meanwhile its peer serves, then it serves again."""
    clock = ManualClock()
    line, rest_s = {
        "seconds": ("Retry-After: 9", 9.0),
        "date": (f"Retry-After: {formatdate(clock.wall() + 9, usegmt=True)}", 9.0),
        "far": ("Retry-After: 86400", 30.0),
        "none": ("X-Nothing: 1", 1.0),
        "nonsense": ("Retry-After: soon", 1.0),
    }[form]
    fast.then(send(wire.whole(b"{}", "503 Busy", (line,))))
    fast.always(wire.llama_chat("second"))
    plain.always(wire.llama_chat("first"))
    made = pool("plain", plain, fast, balance={"affinity": 0, "slow_start_s": 0})
    app = await start(config_of(made, folder=tmp_path), clock)
    async with raw_client(app.data_url) as client:
        for _ in range(50):
            assert b"first" in (await ask_whole(client)).body
            if fast.requests:
                break
        clock.advance(rest_s - 0.5)
        for _ in range(10):
            assert b"first" in (await ask_whole(client)).body
        assert len(fast.requests) == 1
        clock.advance(1.0)
        said = {(await ask_whole(client)).body.partition(b"second")[1] for _ in range(30)}
    assert b"second" in said
    assert app.state()["routes"][0]["pools"][0]["replicas"][1]["breaker"] == "closed"


@pytest.mark.parametrize(
    ("status", "lines", "expected"),
    [
        ("429 Too Many Requests", ("Retry-After: 7",), "7"),
        ("503 Service Unavailable", ("Retry-After: 7",), "7"),
        ("429 Too Many Requests", (), "1"),
        ("503 Service Unavailable", (), "1"),
    ],
)
async def test_all_are_busy(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    status: str,
    lines: tuple[str, ...],
    expected: str,
) -> None:
    """The client gets an engine's own refusal, and when to come again."""
    for backend in (plain, fast):
        backend.always(wire.whole(b'{"error":{"message":"full"}}', status, lines))
    app = await two_pools(start, plain, fast, tmp_path)
    for _ in range(3):
        reply = await ask(app.data_url, request_bytes(wire.chat()))
        assert (reply.status, reply.body) == (int(status[:3]), b'{"error":{"message":"full"}}')
        assert reply.head.all("retry-after") == [expected]


POLICIES: dict[str, dict[str, Any]] = {
    "fixed": always("fast"),
    "rules": {"name": "rules"},
    "thompson": {"name": "thompson"},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["500", "reset", "error in place of a stream"])
async def test_a_pool_that_fails_fast_is_left_alone(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    policy: str,
    kind: str,
) -> None:
    """Under every policy: its breaker opens, every client is served, and probes stay rare."""
    failing: list[Step] = {
        "500": [send(wire.whole(b"{}", "500 Broken"))],
        "reset": [reset()],
        "error in place of a stream": [send(wire.stream([wire.event({"error": {"code": 500}})]))],
    }[kind]
    fast.always(lambda _: failing)
    plain.always(wire.stream(EVENTS))
    clock = ManualClock()
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy=POLICIES[policy]), clock)
    async with raw_client(app.data_url) as client:
        for _ in range(60):
            await client.send(request_bytes(wire.chat(stream=True)))
            reply = await client.reply()
            assert (reply.status, reply.body) == (200, b"".join(EVENTS))
            clock.advance(0.1)
    assert len(fast.requests) <= 8
    assert {line["served_by"] for line in await decisions(app)} == {"plain"}


async def test_an_answer_without_end(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """A stream that exceeds its limit of bytes ends with an error that says so; the engine stops."""
    most = 64 * 1024
    begun = Gate()
    endless: list[Step] = [send(wire.chunk(WORD * 10)) for _ in range(1000)]
    plain.then(send(wire.STREAM_HEAD + wire.chunk(OPENING)), wait(begun), *endless, until_gone())
    made = pool("plain", plain, timeouts={"max_stream_bytes": most})
    app = await start(config_of(made, folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        assert await client.piece() == OPENING
        begun.open()
        body = await client.rest()
    assert len(body) < most + 1000
    assert b"longer than the limit" in body
    assert body.endswith(wire.DONE)
    line = await only_decision(app)
    assert (line["status"], line["error"]) == ("failed", "upstream_protocol")
    assert in_flight(app) == 0
    await plain.all_gone()


async def test_a_whole_answer_without_end(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """It is cut; one of exactly the limit is not."""
    body = wire.llama_chat("x").partition(b"\r\n\r\n")[2]
    most = 200_000
    fits = body + b" " * (most - len(body))
    begun = Gate()
    longer = wire.whole(fits + b" ")
    plain.then(send(wire.whole(fits)))
    plain.then(send(longer[:1000]), wait(begun), send(longer[1000:]), until_gone())
    made = pool("plain", plain, timeouts={"max_stream_bytes": most})
    app = await start(config_of(made, folder=tmp_path))
    assert (await ask(app.data_url, request_bytes(wire.chat()))).body == fits
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        await client.head()
        begun.open()
        with pytest.raises((EOFError, ConnectionError)):
            await client.rest()
    await plain.requests[1].gone.wait()


async def test_an_answer_whose_first_piece_is_too_long(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing has reached the client yet, so it gets a status: 502, with the reason."""
    plain.always(wire.whole(b"{" + b" " * 4000))
    made = pool("plain", plain, timeouts={"max_stream_bytes": 2000})
    app = await start(config_of(made, folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.error["code"]) == (502, "upstream_protocol")
    assert "longer than the limit" in reply.error["message"]
