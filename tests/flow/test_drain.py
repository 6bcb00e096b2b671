"""Stopping: readiness first, running answers to their end, and nobody left without a word."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from router.app import Application
from router.config.models import Config
from router.errors import ConfigError
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, opens, send, until_gone, wait
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import SEED, config_of, decisions, in_flight, pool

FIRST, *REST = wire.llama_events()


class Stoppable:
    """A proxy that a test stops while something else is going on."""

    def __init__(self, app: Application, stop: Gate, stopped: Gate) -> None:
        self.app = app
        self.stop = stop
        self.stopped = stopped


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Stoppable]:
    """Runs a proxy in a task of its own."""
    app = Application(config, seed=SEED)
    started, proxy = Gate(), Stoppable(app, Gate(), Gate())

    async def run() -> None:
        async with app.running():
            started.open()
            await proxy.stop.wait()
        proxy.stopped.open()

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await started.wait()
        yield proxy
        proxy.stop.open()


async def draining(app: Application) -> None:
    """Waits until the stop has begun."""
    async with asyncio.timeout(10):
        while app.not_ready() != "draining":
            await get(app.admin_url, "/api/state")


def refuses_connections(url: str) -> bool:
    """Whether nobody listens there."""
    parts = urlsplit(url)
    with socket.socket() as sock:
        return sock.connect_ex((parts.hostname, parts.port)) != 0


async def test_running_answers_are_finished(plain: ScriptedBackend, tmp_path: Path) -> None:
    """A stream, a whole answer and one not yet begun all come to their end, then all is closed."""
    go_on, silent = Gate(), Gate()
    rest = b"".join(wire.chunk(event) for event in REST)
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(go_on), send(rest + wire.END))
    plain.then(opens(silent), wait(go_on), send(wire.llama_chat()))
    config = config_of(pool("plain", plain), folder=tmp_path)
    async with (
        running(config) as proxy,
        raw_client(proxy.app.data_url) as streaming,
        raw_client(proxy.app.data_url) as whole,
        raw_client(proxy.app.data_url) as idle,
    ):
        app = proxy.app
        await idle.send(request_bytes(b"", "/ready", method="GET"))
        assert (await idle.reply()).json == {
            "status": "ready",
            "store": "answers",
        }
        await streaming.send(request_bytes(wire.chat(stream=True)))
        await streaming.head()
        assert await streaming.piece() == FIRST
        await whole.send(request_bytes(wire.chat()))
        await silent.wait()

        proxy.stop.open()
        await draining(app)
        state = (await get(app.admin_url, "/api/state")).json
        assert (state["ready"], state["not_ready"]) == (False, "draining")
        assert await idle.ended()
        assert refuses_connections(app.data_url)
        assert not proxy.stopped.opened

        go_on.open()
        assert FIRST + await streaming.rest() == b"".join([FIRST, *REST])
        assert (await whole.reply()).status == 200
        assert await streaming.ended()
        assert await whole.ended()
        await proxy.stopped.wait()
        assert refuses_connections(app.admin_url)
    assert [line["status"] for line in await decisions(app)] == ["ok", "ok"]


async def test_last_decisions_and_sums_are_written(plain: ScriptedBackend, tmp_path: Path) -> None:
    """What was learned in the last moments is stored before the process ends."""
    plain.always(wire.llama_chat())
    config = config_of(pool("plain", plain), folder=tmp_path)
    async with running(config) as proxy:
        await ask(proxy.app.data_url, request_bytes(wire.chat()))
    assert (tmp_path / "decisions.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("by_signal", [True, False])
async def test_answers_that_take_too_long(
    plain: ScriptedBackend, tmp_path: Path, *, by_signal: bool
) -> None:
    """At the end of the grace, or at a second signal, each client is told, and engines are left."""
    silent = Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), until_gone())
    plain.then(send(wire.llama_chat()[:-20]), until_gone())
    plain.then(opens(silent), until_gone())
    config = config_of(
        pool("plain", plain), folder=tmp_path, listen={"drain_s": 60 if by_signal else 0}
    )
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(running(config))
        streaming, whole, unanswered = [
            await stack.enter_async_context(raw_client(proxy.app.data_url)) for _ in range(3)
        ]
        await streaming.send(request_bytes(wire.chat(stream=True)))
        await streaming.head()
        assert await streaming.piece() == FIRST
        await whole.send(request_bytes(wire.chat()))
        await whole.head()
        await unanswered.send(request_bytes(wire.chat()))
        await silent.wait()

        proxy.stop.open()
        if by_signal:
            await draining(proxy.app)
            assert in_flight(proxy.app) == 3
            proxy.app.end_answers()
        body = await streaming.rest()
        assert b'"code":"draining"' in body
        assert body.endswith(wire.DONE)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await whole.rest()
        reply = await unanswered.reply()
        assert (reply.status, reply.error["code"]) == (503, "draining")
        assert reply.head.one("x-specroute-reason") == "draining"
        await proxy.stopped.wait()
        for received in plain.requests:
            await received.gone.wait()
    assert [line["status"] for line in await decisions(proxy.app)] == ["aborted"] * 3
    assert in_flight(proxy.app) == 0


async def ended_within(
    plain: ScriptedBackend, folder: Path, sent: bytes, asked: bytes, *, engine: str = "llamacpp"
) -> tuple[bytes, bool, str]:
    """What a client has got when answers are ended, whether in order, and what became of it.

    Args:
        plain: Sends the chunks in `sent`, and then nothing.
        folder: Of the proxy.
        sent: The last of what the client has when the answers are ended.
        asked: The request.
        engine: What the pool is said to be.
    """
    plain.then(send(wire.STREAM_HEAD + sent), until_gone())
    config = config_of(pool("plain", plain, engine=engine), folder=folder, listen={"drain_s": 60})
    async with running(config) as proxy, raw_client(proxy.app.data_url) as client:
        await client.send(asked)
        await client.head()
        body = await client.piece()
        proxy.stop.open()
        await draining(proxy.app)
        proxy.app.end_answers()
        in_order = True
        try:
            while piece := await client.piece():
                body += piece
        except (asyncio.IncompleteReadError, ConnectionError):
            in_order = False
        await proxy.stopped.wait()
    [line] = await decisions(proxy.app)
    return body, in_order, line["status"]


HALF = REST[0][: len(REST[0]) // 2]


async def test_an_answer_that_is_ended_inside_an_event(
    plain: ScriptedBackend, tmp_path: Path
) -> None:
    """It is cut: no client could read what would follow."""
    sent = wire.chunk(FIRST + HALF)
    asked = request_bytes(wire.chat(stream=True, stream_options={"include_usage": True}))
    body, in_order, status = await ended_within(plain, tmp_path, sent, asked)
    assert (body, in_order, status) == (FIRST + HALF, False, "aborted")


async def test_an_answer_that_is_ended_while_half_an_event_is_held_back(
    plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The client has got whole events only, so it is told."""
    sent = wire.chunk(FIRST + HALF)
    asked = request_bytes(wire.chat(stream=True))
    body, in_order, _ = await ended_within(plain, tmp_path, sent, asked, engine="vllm")
    assert body.startswith(FIRST + b'\n\ndata: {"error"')
    assert (body.endswith(wire.DONE), in_order) == (True, True)


async def test_an_answer_that_is_ended_after_its_end_mark(
    plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing of it is missing, so nothing is said."""
    whole = FIRST + b"".join(REST)
    asked = request_bytes(wire.chat(stream=True, stream_options={"include_usage": True}))
    body, in_order, status = await ended_within(plain, tmp_path, wire.chunk(whole), asked)
    assert (body, in_order, status) == (whole, True, "ok")


async def test_an_answer_of_numbered_events_that_is_ended(
    plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The last event goes on with the numbers."""
    first = (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","delta":"a","sequence_number":4}\n\n'
    )
    asked = request_bytes(b'{"model":"tiny","input":"x","stream":true}', target="/v1/responses")
    body, in_order, _ = await ended_within(plain, tmp_path, wire.chunk(first), asked)
    assert (b'"sequence_number":5' in body, in_order) == (True, True)


async def test_port_that_is_taken(plain: ScriptedBackend, tmp_path: Path) -> None:
    """A taken port names its key, and leaves nothing running."""
    for key in ("listen", "admin"):
        config = config_of(pool("plain", plain), folder=tmp_path, store={"url": "embedded:"})
        taken = getattr(config, key).model_copy(update={"port": plain.port})
        app = Application(config.model_copy(update={key: taken}))
        with pytest.raises(ConfigError, match=rf"^{key}\.port: cannot listen on 127.0.0.1:"):
            async with app.running():
                pass
        assert not (tmp_path / "store" / "valkey.sock").exists()
