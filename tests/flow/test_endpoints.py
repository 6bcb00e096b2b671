"""Names of models over real sockets: aliases reach the engine under the route's own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import config_of, pool


async def test_an_alias_is_served_under_the_route_s_own_name(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Only the name changes in what the engine gets."""
    plain.always(wire.llama_chat("x"))
    app = await start(config_of(pool("plain", plain), folder=tmp_path, aliases=["default"]))
    body = b'{ "messages":[{"content":"\\"model\\"","model":"default"}], "model" : "default" }'
    reply = await ask(app.data_url, request_bytes(body))
    assert reply.status == 200
    assert plain.requests[0].body == body[::-1].replace(b"tluafed", b"ynit", 1)[::-1]


@pytest.mark.parametrize("model", ["", "Default", "x" * 1_000_000])
async def test_another_name_is_not_served(
    start: Start, plain: ScriptedBackend, tmp_path: Path, model: str
) -> None:
    """However long it is, the answer stays short and names what is served."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path, aliases=["default"]))
    body = wire.dump({"model": model, "messages": []})
    reply = await ask(app.data_url, request_bytes(body))
    assert (reply.status, reply.error["code"]) == (404, "model_not_found")
    assert len(reply.error["message"]) < 250
    assert reply.error["message"].endswith("Served: 'tiny', 'default'.")
