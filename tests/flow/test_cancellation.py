"""Clients that leave: the engine must learn of it at once, and nobody may learn from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import openai
import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import GUARD_S, Gate, ScriptedBackend, Step, opens, send, until_gone
from tests.support.flow_client import get, raw_client, request_bytes
from tests.support.flow_world import cell, config_of, in_flight, only_decision, pool

FIRST, SECOND, *_ = wire.llama_events()

PHASES: dict[str, tuple[bool, list[Step]]] = {
    "accepted, silent": (True, []),
    "accepted, silent, not streaming": (False, []),
    "headers sent": (True, [send(wire.STREAM_HEAD)]),
    "headers sent, not streaming": (False, [send(wire.llama_chat().split(b"{")[0])]),
    "opening event sent": (True, [send(wire.STREAM_HEAD + wire.chunk(FIRST))]),
    "mid-stream": (True, [send(wire.STREAM_HEAD + wire.chunk(FIRST) + wire.chunk(SECOND))]),
    "in the middle of an event": (True, [send(wire.STREAM_HEAD + wire.chunk(FIRST + SECOND[:40]))]),
    "mid-answer, not streaming": (False, [send(wire.llama_chat()[:-20])]),
}


HEAD_ALONE = ("headers sent", "headers sent, not streaming")
"""The engine's head waits for the first byte of the body: until then another server may answer."""


async def assert_nothing_learned(app: Application, arm: str = "plain") -> None:
    """One request was aborted on the arm, and no figure of it counts."""
    await app.flush()
    await app.refresh()
    shown = cell(app, arm)
    assert (shown["ok"], shown["failed"], shown["rejected"], shown["aborted"]) == (0, 0, 0, 1)
    assert [shown[name]["n"] for name in ("ttft_s", "tpot_s", "e2e_s", "e2e_whole_s")] == [0] * 4
    assert shown["tokens"] is None


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize("phase", PHASES)
async def test_client_leaves(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    engine: str,
    phase: str,
) -> None:
    """In each phase the engine's connection is closed, and the one outcome is censored."""
    streamed, steps = PHASES[phase]
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    there = Gate()
    plain.then(*steps, opens(there), until_gone())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=streamed)))
        await there.wait()
        begun = bool(steps) and phase not in HEAD_ALONE
        if begun:
            await client.head()
        assert in_flight(app) == 1
        client.leave()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["error"]) == ("aborted", None)
    assert line["http_status"] == (200 if begun else None)
    assert in_flight(app) == 0
    await assert_nothing_learned(app)


async def test_client_leaves_while_its_connection_is_reused(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A connection that was aborted in mid-answer never serves another request."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), until_gone())
    plain.always(wire.llama_chat())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.piece()
        client.leave()
        await plain.requests[0].gone.wait()
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        assert (await client.reply()).status == 200
    first, second = plain.requests
    assert first.connection != second.connection


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
async def test_client_that_leaves_at_the_end_mark_was_served(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """Many clients close at `[DONE]`, before the last chunk: that is a request that ended well."""
    vllm = engine == "vllm"
    events = wire.vllm_events(usage=True) if vllm else wire.llama_events(accepted=2)
    plain.then(
        send(wire.STREAM_HEAD + b"".join(wire.chunk(event) for event in events)), until_gone()
    )
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.until(wire.DONE)
        client.leave()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["http_status"]) == ("ok", 200)
    assert line["accepted"] == (1 if vllm else 2)
    assert line["ttft_s"] is not None
    assert in_flight(app) == 0


async def test_official_client_that_stops_reading(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Closing a stream of OpenAI's client stops the generation."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST) + wire.chunk(SECOND)), until_gone())
    async with openai.AsyncOpenAI(base_url=f"{app.data_url}/v1", api_key="x") as client:
        stream = await client.chat.completions.create(model="tiny", messages=[], stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await plain.requests[0].gone.wait()
    assert (await only_decision(app))["status"] == "aborted"


async def test_leaving_is_no_error_anywhere(
    start: Start, plain: ScriptedBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves makes no error line, no refusal, and marks no server as down."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    there = Gate()
    plain.then(opens(there), until_gone())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        await there.wait()
        client.leave()
        await plain.requests[0].gone.wait()
    text = (await get(app.admin_url, "/metrics")).body.decode()
    assert "specroute_refused_requests_total{" not in text
    assert 'specroute_replica_up{model="tiny",pool="plain",replica="plain/0"} 1.0' in text
    assert 'pool="plain",status="aborted"} 1.0' in text
    assert [r for r in caplog.records if r.name.startswith(("specroute", "aiohttp"))] == []


async def test_client_that_takes_nothing_any_more(
    start: Start, plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stops reading and stays connected does not hold its engine for ever."""
    monkeypatch.setattr("router.intake.server.STALLED_S", 0.2)
    block = wire.chunk(wire.llama_chunk({"content": "x" * 65_536}))
    flood = [send(block) for _ in range(1000)]
    plain.then(send(wire.STREAM_HEAD), *flood, until_gone())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url, buffer=65_536) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        async with asyncio.timeout(GUARD_S):
            while in_flight(app):
                await get(app.data_url, "/health")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.rest()
    assert (await only_decision(app))["status"] == "aborted"
