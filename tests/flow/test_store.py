"""The store may die, freeze and come back: no request notices, and no sum is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from pathlib import Path

import pytest

from router.app import Application
from router.stores.embedded import EmbeddedStore
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import GUARD_S, ScriptedBackend
from tests.support.flow_client import ask, get, request_bytes
from tests.support.flow_world import cell, config_of, pool


@pytest.fixture
async def app(start: Start, plain: ScriptedBackend, tmp_path: Path) -> Application:
    """A proxy with a server of its own for a store; the limit of a call is short."""
    plain.always(wire.llama_chat())
    store = {"url": "embedded:", "timeout_s": 0.3}
    return await start(config_of(pool("plain", plain), folder=tmp_path, store=store))


def server_pid(app: Application) -> int:
    """The process that holds the sums."""
    assert isinstance(app._store, EmbeddedStore)
    assert app._store.pid is not None
    return app._store.pid


async def serve(app: Application, n: int) -> None:
    """All of these requests must succeed."""
    for _ in range(n):
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200


async def answers_again(app: Application) -> None:
    """Goes on as the background work does until the store is up."""
    async with asyncio.timeout(GUARD_S):
        while True:
            await app.flush()
            await app.refresh()
            if app.state()["store"]["up"]:
                return


async def counted(app: Application) -> int:
    """Requests that the estimates know of."""
    await answers_again(app)
    return int(cell(app, "plain")["ok"])


async def test_killed_store(app: Application) -> None:
    """After `kill -9` requests go on, the server is started again, and every sum is there."""
    await serve(app, 5)
    await app.flush()
    await serve(app, 5)
    first = server_pid(app)
    os.kill(first, signal.SIGKILL)
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(app, 5))
        group.create_task(app.flush())
        group.create_task(app.refresh())
    assert await counted(app) == 15
    assert server_pid(app) != first


async def test_frozen_store(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    """A server that answers nothing delays no request; what it missed is added, and once."""
    caplog.set_level(logging.INFO)
    await serve(app, 3)
    frozen = server_pid(app)
    os.kill(frozen, signal.SIGSTOP)
    try:
        async with asyncio.TaskGroup() as group:
            flushing = group.create_task(app.flush())
            group.create_task(app.refresh())
            await serve(app, 3)
            assert not flushing.done()
        shown = app.state()["store"]
        assert (shown["up"], shown["error"]) == (False, "no reply within 0.3 s")
        text = (await get(app.admin_url, "/metrics")).body.decode()
        assert "specroute_store_up 0.0" in text
        await app.refresh()
        assert cell(app, "plain")["ok"] == 6
        await serve(app, 3)
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert await counted(app) == 9
    assert server_pid(app) == frozen
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("store lost; serving and learning go on") == 1
    assert messages.count("store answers") == 1


async def test_sums_outlive_the_proxy(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """A proxy that is stopped adds what it has, and the next one begins with it."""
    plain.always(wire.llama_chat())
    config = config_of(pool("plain", plain), folder=tmp_path, store={"url": "embedded:"})
    async with Application(config, seed=1).running() as first:
        await serve(first, 4)
    app = await start(config)
    assert cell(app, "plain")["ok"] == 4


async def test_store_that_never_answers(
    start: Start, plain: ScriptedBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that is away from the start is said once; serving and learning go on without."""
    plain.always(wire.llama_chat())
    store = {"url": "redis://:secret@127.0.0.1:1/0", "timeout_s": 0.3}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, store=store))
    await serve(app, 4)
    await app.flush()
    await app.refresh()
    assert cell(app, "plain")["ok"] == 4
    assert (await get(app.data_url, "/ready")).status == 200
    shown = app.state()["store"]
    assert (shown["up"], shown["snapshot_age_s"]) == (False, None)
    assert "secret" not in json.dumps(shown)
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("store lost; serving and learning go on") == 1
