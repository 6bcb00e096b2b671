"""Who leaves or fails when, on which endpoint, streamed or not: every combination, from tables."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import (
    GUARD_S,
    Gate,
    ScriptedBackend,
    Step,
    close,
    opens,
    reset,
    send,
    until_gone,
    wait,
)
from tests.support.flow_client import RawClient, Reply, ask, get, raw_client
from tests.support.flow_endpoints import ENDPOINTS, Asked
from tests.support.flow_world import always, cell, config_of, decisions, in_flight, pool

SOON_S = 0.05
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

streamed_or_not = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
endpoints_with_a_dialect = pytest.mark.parametrize(
    "endpoint", [name for name, asked in ENDPOINTS.items() if asked.dialect]
)


def pieces_of(asked: Asked, *, streamed: bool) -> list[bytes]:
    """The engine's answer: its head, the beginning, the middle, half of the rest, that rest."""
    if streamed:
        first, second, *_, last = asked.events
        middle = b"".join(asked.events[2:-1])
        chunks = (first, second + middle, last[: len(last) // 2], last[len(last) // 2 :])
        return [STREAM_HEAD, *map(wire.chunk, chunks)]
    head, body = wire.whole(asked.answer).split(b"\r\n\r\n", 1)
    half = len(body) // 2
    return [head + b"\r\n\r\n", body[:1], body[1:half], body[half:-1], body[-1:]]


# --- Clients that leave ---------------------------------------------------------------------------

PHASES = {
    "waiting for the head": 0,
    "head here": 1,
    "first event": 2,
    "mid-stream": 3,
    "mid-event": 4,
    "after the end mark": 5,
}
"""How many pieces of the answer are out."""


async def assert_settled(app: Application) -> None:
    """Nothing is counted as running; other requests go on meanwhile, which lets the loop turn."""
    async with asyncio.timeout(GUARD_S):
        while in_flight(app) or app.state()["admission"]["in_flight"]:
            await get(app.data_url, "/health")
    admission = app.state()["admission"]
    assert (in_flight(app), admission["in_flight"], admission["waiting"]) == (0, 0, 0)


async def ends(app: Application, asked: Asked) -> list[str]:
    """How requests ended: by the decision log, or by the count of those nothing is decided for."""
    if asked.decided:
        return [line["status"] for line in await decisions(app)]
    text = (await get(app.admin_url, "/metrics")).body.decode()
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("specroute_balanced_requests_total{"):
            status = line.partition('status="')[2].partition('"')[0]
            found += [status] * int(float(line.rpartition(" ")[2]))
    return found


@streamed_or_not
@endpoints
@pytest.mark.parametrize("phase", PHASES)
async def test_client_leaves_while_it_is_served(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    *,
    phase: str,
    endpoint: str,
    streamed: bool,
) -> None:
    """The engine's connection is closed, nothing is left, and there is one censored outcome.

    A stream that has come to its end mark was served, even if its connection had not ended.
    """
    asked = ENDPOINTS[endpoint]
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    pieces = pieces_of(asked, streamed=streamed)[: PHASES[phase]]
    whole = phase == "after the end mark" and not streamed
    there = Gate()
    plain.then(*map(send, pieces), opens(there), until_gone())
    async with raw_client(app.data_url) as client:
        await client.send(asked.request(streamed=streamed))
        await there.wait()
        if PHASES[phase] >= 2:
            await client.head()
            if PHASES[phase] >= 3 and streamed:
                await client.until(asked.events[1])
            if whole:
                assert await client.rest() == asked.answer
        client.leave()
        if whole:
            await plain.stop()  # the connection was kept, as it should be
        await plain.requests[0].gone.wait()
    await assert_settled(app)
    served = phase == "after the end mark" and (whole or asked.decided)
    assert await ends(app, asked) == ["ok" if served else "aborted"]
    assert len(plain.requests) == 1
    if asked.decided and not served:
        await app.refresh()
        shown = cell(app, "plain")
        assert (shown["ok"], shown["failed"], shown["aborted"]) == (0, 0, 1)
        assert [shown[name]["n"] for name in ("ttft_s", "tpot_s", "e2e_s")] == [0] * 3


@streamed_or_not
@endpoints
async def test_client_leaves_while_it_waits_for_a_place(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, endpoint: str, streamed: bool
) -> None:
    """Its turn never comes: no engine hears of it, and nothing was decided."""
    asked = ENDPOINTS[endpoint]
    app = await start(
        config_of(pool("plain", plain), folder=tmp_path, admission={"max_concurrent": 1})
    )
    there, goes_on = Gate(), Gate()
    plain.then(opens(there), wait(goes_on), send(wire.whole(asked.answer)))
    async with raw_client(app.data_url) as first, raw_client(app.data_url) as client:
        await first.send(asked.request(streamed=False))
        await there.wait()
        await client.send(asked.request(streamed=streamed))
        await waiting(app, 1)
        client.leave()
        await waiting(app, 0)
        goes_on.open()
        assert (await first.reply()).body == asked.answer
    await assert_settled(app)
    assert await ends(app, asked) == ["ok"]
    assert len(plain.requests) == 1


async def waiting(app: Application, count: int) -> None:
    """Goes on once so many requests wait for a place."""
    async with asyncio.timeout(GUARD_S):
        while app.state()["admission"]["waiting"] != count:
            await get(app.data_url, "/health")


@streamed_or_not
@endpoints
async def test_client_leaves_while_its_engine_is_dialled(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, endpoint: str, streamed: bool
) -> None:
    """Connecting stops, and the outcome is censored: nobody knows what would have come."""
    asked = ENDPOINTS[endpoint]
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    await plain.stop()
    with ExitStack() as stack:
        deaf(stack, plain.port)
        async with raw_client(app.data_url) as client:
            await client.send(asked.request(streamed=streamed))
            async with asyncio.timeout(GUARD_S):
                while not in_flight(app):
                    await get(app.data_url, "/health")
            client.leave()
            await assert_settled(app)
    assert await ends(app, asked) == ["aborted"]


def deaf(stack: ExitStack, port: int) -> None:
    """A server that takes no connection and refuses none: its queue is full."""
    server = stack.enter_context(socket.socket())
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(0)
    for _ in range(3):
        waiting_for_ever = stack.enter_context(socket.socket())
        waiting_for_ever.settimeout(0)
        waiting_for_ever.connect_ex(("127.0.0.1", port))


# --- Engines that fail before the first byte ------------------------------------------------------

TOO_LONG = wire.dump({"error": {"message": "the prompt exceeds the context size", "code": 500}})
OOPS = wire.dump({"error": {"message": "oops", "type": "server_error", "code": 500}})
BUSY = wire.dump({"error": {"message": "busy", "type": "x", "code": 429}})
REFUSED = wire.dump({"error": {"message": "no such thing", "type": "x", "code": 400}})


@dataclass(frozen=True, slots=True)
class Failure:
    """What an engine does, and what follows."""

    steps: Sequence[Step]
    end: str
    """How the try ends, by the decision log."""
    status: int
    """That the client gets where there is no other server."""
    theirs: bytes | None = None
    """The engine's own error, which is passed on then; None where it is one of ours."""
    retry_after: str | None = None
    tried_elsewhere: bool = True
    streams_only: bool = False


BEFORE: dict[str, Failure] = {
    "refuses the connection": Failure((), "unreachable", 502),
    "closes": Failure([close()], "disconnected", 502),
    "resets": Failure([reset()], "disconnected", 502),
    "closes after its head": Failure([send(STREAM_HEAD), close()], "disconnected", 502),
    "garbage": Failure([send(b"SSH-2.0-OpenSSH\r\n\r\n"), close()], "disconnected", 502),
    "429": Failure(
        [send(wire.whole(BUSY, "429 Too Many Requests"))], "busy", 429, BUSY, retry_after="1"
    ),
    "503 with Retry-After": Failure(
        [send(wire.whole(OOPS, "503 Loading", ["Retry-After: 7"]))], "busy", 503, OOPS, "7"
    ),
    "500": Failure([send(wire.whole(OOPS, "500 Oops"))], "server_error", 500, OOPS),
    "prompt too long as 500": Failure(
        [send(wire.whole(TOO_LONG, "500 Oops"))], "answered", 500, TOO_LONG, tried_elsewhere=False
    ),
    "400": Failure(
        [send(wire.whole(REFUSED, "400 No"))], "answered", 400, REFUSED, tried_elsewhere=False
    ),
    "hangs": Failure([until_gone()], "timeout", 504, tried_elsewhere=False),
    "refusal as a first event": Failure(
        [send(STREAM_HEAD + wire.chunk(b"data: " + REFUSED + b"\n\n") + wire.END)],
        "answered",
        400,
        REFUSED,
        tried_elsewhere=False,
        streams_only=True,
    ),
    "error as a first event": Failure(
        [send(STREAM_HEAD + wire.chunk(b"data: " + OOPS + b"\n\n") + wire.END)],
        "server_error",
        500,
        OOPS,
        streams_only=True,
    ),
}


def assert_error_of_ours(reply: Reply, asked: Asked) -> None:
    """It has the shape that clients of the endpoint parse."""
    assert reply.head.one("x-specroute-reason") is not None
    if asked.dialect == "anthropic":
        assert reply.json["type"] == "error"
        assert set(reply.json["error"]) == {"type", "message"}
    else:
        assert reply.error["code"] == reply.head.one("x-specroute-reason")


@endpoints_with_a_dialect
@pytest.mark.parametrize("others", [True, False], ids=["of two", "alone"])
@pytest.mark.parametrize(
    ("failure", "streamed"),
    [
        (name, streamed)
        for name, row in BEFORE.items()
        for streamed in (True, False)
        if streamed or not row.streams_only
    ],
)
async def test_engine_fails_before_the_first_byte(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    failure: str,
    others: bool,
    endpoint: str,
    streamed: bool,
) -> None:
    """Another server answers where that may help; else the client gets the error, in its dialect."""
    asked, row = ENDPOINTS[endpoint], BEFORE[failure]
    good = asked.events if streamed else (asked.answer,)
    plain.always(wire.stream(asked.events) if streamed else wire.whole(asked.answer))
    # Only where the limit is what it is about: a busy machine must not come near it elsewhere.
    limits = {"header_s": SOON_S} if row.end == "timeout" else {}
    failing = pool("fast", fast, method="mtp", timeouts=limits)
    pools = [pool("plain", plain), failing] if others else [failing]
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    if row.steps:
        fast.then(*row.steps)
    else:
        await fast.stop()
    reply = await ask(app.data_url, asked.request(streamed=streamed))
    [line] = await decisions(app)
    tries = [["fast/0", row.end]]
    if others and row.tried_elsewhere:
        assert (reply.status, reply.body) == (200, b"".join(good))
        assert line["attempts"] == [*tries, ["plain/0", "answered"]]
        assert (line["status"], line["served_by"]) == ("ok", "plain")
    else:
        assert (reply.status, line["attempts"]) == (row.status, tries)
        assert reply.head.all("retry-after") == ([row.retry_after] if row.retry_after else [])
        if row.theirs is None:
            assert_error_of_ours(reply, asked)
        else:
            assert reply.body == row.theirs
        assert line["status"] == ("rejected" if row.end == "answered" else "failed")
        assert len(plain.requests) == 0
    assert len(fast.requests) == (1 if row.steps else 0)
    await assert_settled(app)


# --- Engines that fail after the first byte -------------------------------------------------------

INSIDE = "in the middle of an event"


@dataclass(frozen=True, slots=True)
class Break:
    """How an answer that has begun does not go on."""

    steps: Sequence[Step]
    reason: str
    """Of the error that ends a stream; empty where none can be added."""


AFTER: dict[str, Break] = {
    "closes": Break([close()], "upstream_unavailable"),
    "resets": Break([reset()], "upstream_unavailable"),
    "garbage": Break([send(b"zz\r\n"), close()], "upstream_protocol"),
    "hangs": Break([until_gone()], "upstream_timeout"),
    INSIDE: Break([close()], ""),
}


def ending_of(body: bytes) -> tuple[str, dict[str, Any]]:
    """The name and the data of the error event that a body ends with."""
    events = [event for event in body.split(b"\n\n") if event and event != b"data: [DONE]"]
    lines = dict(line.split(b": ", 1) for line in events[-1].split(b"\n"))
    return lines.get(b"event", b"").decode(), json.loads(lines[b"data"])


def assert_ending(body: bytes, asked: Asked, reason: str) -> None:
    """The body ends with an error event that clients of the endpoint raise."""
    name, data = ending_of(body)
    assert body.endswith(b"data: [DONE]\n\n") == (asked.dialect == "openai")
    match asked.dialect:
        case "anthropic":
            assert (name, data["type"], set(data["error"])) == (
                "error",
                "error",
                {"type", "message"},
            )
        case "responses":
            assert (name, data["type"], data["code"]) == ("error", "error", reason)
            assert data["sequence_number"] == 2
        case _:
            assert (name, data["error"]["code"]) == ("", reason)


@streamed_or_not
@endpoints_with_a_dialect
@pytest.mark.parametrize("failure", AFTER)
async def test_engine_fails_after_the_first_byte(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    failure: str,
    endpoint: str,
    streamed: bool,
) -> None:
    """No text comes twice and nothing is tried again; no client can take the answer for a whole one."""
    asked, row = ENDPOINTS[endpoint], AFTER[failure]
    plain.always(wire.stream(asked.events) if streamed else wire.whole(asked.answer))
    limits = {"idle_s": SOON_S} if failure == "hangs" else {}
    pools = [pool("plain", plain), pool("fast", fast, method="mtp", timeouts=limits)]
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    head, first, *_ = pieces_of(asked, streamed=streamed)
    begun = head + first
    if streamed:
        begun += wire.chunk(asked.events[1])
        if failure == INSIDE:
            begun += wire.chunk(asked.events[2][:9])
    there = Gate()
    fast.then(send(begun), wait(there), *row.steps)
    async with raw_client(app.data_url) as client:
        await client.send(asked.request(streamed=streamed))
        assert (await client.head()).status == 200
        seen = await client.until(asked.events[1]) if streamed else b""
        there.open()
        if streamed and row.reason:
            seen += await client.rest()
            assert seen.startswith(asked.events[0] + asked.events[1])
            assert_ending(seen, asked, row.reason)
        else:
            await assert_cut(client)
    [line] = await decisions(app)
    assert (line["status"], line["http_status"]) == ("failed", 200)
    assert line["attempts"] == [["fast/0", "answered"]]
    assert (len(fast.requests), len(plain.requests)) == (1, 0)
    await assert_settled(app)


async def assert_cut(client: RawClient) -> None:
    """The connection ends before the body does."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.rest()
