"""The admin port: what it shows, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.conftest import Start
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, get
from tests.support.flow_world import config_of, pool


@pytest.mark.parametrize("path", ["/", "/status.js", "/status.css", "/api/state", "/metrics"])
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
