"""The admin port: what it shows, and to whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pydantic import SecretStr

from router.config.ports import Admin
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import GUARD_S, ScriptedBackend
from tests.support.flow_client import ask, get, request_bytes
from tests.support.flow_world import config_of, pool


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/app.css", "/vendor/uPlot.iife.min.js", "/api/state", "/metrics"]
)
async def test_everything_is_there(
    start: Start, plain: ScriptedBackend, tmp_path: Path, path: str
) -> None:
    """The page, its parts, the state and the metrics are served, the page under a strict policy."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await get(app.admin_url, path)
    assert reply.status == 200
    assert reply.body
    if path == "/":
        assert "default-src 'none'" in (reply.head.one("content-security-policy") or "")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80"])
async def test_other_names_are_refused(
    start: Start, plain: ScriptedBackend, tmp_path: Path, host: str
) -> None:
    """A web page whose name was pointed at this address cannot read what the admin port shows."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    request = f"GET /api/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert (await ask(app.admin_url, request.encode())).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8081", "127.0.0.1:1", "[::1]:8081"])
async def test_loopback_names_are_served(
    start: Start, plain: ScriptedBackend, tmp_path: Path, host: str
) -> None:
    """Any port of a loopback name is fine: tunnels change it."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    request = f"GET /api/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert (await ask(app.admin_url, request.encode())).status == 200


async def test_the_feed_tells_all_and_then_beats(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Server-sent events: the whole state, then what changed of it."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with (
        asyncio.timeout(GUARD_S),
        ClientSession() as session,
        session.get(f"{app.admin_url}/api/events") as reply,
    ):
        assert reply.content_type == "text/event-stream"
        lines: list[str] = []
        while not any(line.startswith("event: change") for line in lines):
            lines.append((await reply.content.readline()).decode())
    names = [line.split(":")[1].strip() for line in lines if line.startswith("event:")]
    assert names == ["state", "change"]
    data = next(line for line in lines if line.startswith("data: "))
    assert json.loads(data.removeprefix("data: "))["routes"][0]["model"] == wire.MODEL


async def test_history_and_decisions_of_a_request(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A request is a point of the past and a decision that is found by the id its client got."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    await app.flush()
    request_id = reply.head.one("x-specroute-request-id")
    found = (await get(app.admin_url, f"/api/decisions/{request_id}")).json
    assert (found["request_id"], found["arm"]) == (request_id, "plain")
    listed = (await get(app.admin_url, "/api/decisions?limit=5")).json["decisions"]
    assert listed == [found]
    assert (await get(app.admin_url, "/api/decisions/none")).status == 404
    since = app.state()["time"] - 600
    [route] = (await get(app.admin_url, f"/api/history?since={since}")).json["routes"]
    [plain_pool] = route["pools"]
    assert sum(plain_pool["requests"]) == 1
    assert (await get(app.admin_url, "/api/history?since=nan")).status == 400


async def test_with_a_token_nobody_else_gets_in(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Everything but the pages' files needs it."""
    config = config_of(pool("plain", plain), folder=tmp_path)
    admin = Admin(port=0, token=SecretStr("a-token-of-some-length"))
    app = await start(config.model_copy(update={"admin": admin}))
    assert (await get(app.admin_url, "/")).status == 200
    for path in ("/api/state", "/metrics", "/api/events", "/api/history", "/api/decisions"):
        assert (await get(app.admin_url, path)).status == 401
