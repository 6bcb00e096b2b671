"""Hedging: a late pool is overtaken by plain decoding, and only by one of the two."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, send, until_gone, wait
from tests.support.flow_client import ask, raw_client, request_bytes
from tests.support.flow_world import (
    always,
    cell,
    config_of,
    in_flight,
    only_decision,
    pool,
)

SOON_S = 0.02
NEVER_S = 600.0
FIRST, *_ = wire.llama_events()


async def hedged(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, after_s: float
) -> Application:
    """A proxy that always draws `fast` and asks `plain` too after a while."""
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    return await start(config_of(*pools, folder=tmp_path, policy=always("fast"), hedge_s=after_s))


@pytest.mark.parametrize("begun", [b"", wire.STREAM_HEAD], ids=["silent", "head alone"])
async def test_a_silent_pool_is_overtaken(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, begun: bytes
) -> None:
    """The baseline's answer is the only one, and the late engine is told to stop."""
    app = await hedged(start, plain, fast, tmp_path, SOON_S)
    fast.then(send(begun), until_gone())
    plain.always(wire.stream(wire.llama_events()))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body == b"".join(wire.llama_events())
    assert reply.head.one("x-specroute-pool") == "plain"
    await fast.requests[0].gone.wait()
    line = await only_decision(app)
    assert sorted(line["attempts"]) == [["fast/0", "overtaken"], ["plain/0", "answered"]]
    assert (line["arm"], line["served_by"], in_flight(app)) == ("fast", "plain", 0)
    await app.flush()
    await app.refresh()
    overtaken = cell(app, "fast")
    assert (overtaken["failed"], overtaken["aborted"], overtaken["abandoned_share"]) == (0, 1, 1.0)


async def test_a_pool_in_time_is_not_hedged(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nobody else is asked, and the request's own arm learns from it."""
    app = await hedged(start, plain, fast, tmp_path, NEVER_S)
    fast.always(wire.llama_chat("from fast"))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.head.one("x-specroute-pool"), plain.requests) == ("fast", [])
    assert (await only_decision(app))["status"] == "ok"


async def test_the_late_pool_may_still_be_first(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Once both are at work, whoever sends the first byte serves to the end."""
    app = await hedged(start, plain, fast, tmp_path, SOON_S)
    asked = Gate()
    fast.then(wait(asked), send(wire.llama_chat("from fast")))
    plain.then(lambda _: _opened(asked), until_gone())
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert b"from fast" in reply.body
    await plain.requests[0].gone.wait()
    assert in_flight(app) == 0


async def _opened(gate: Gate) -> None:
    gate.open()


async def test_client_that_leaves_stops_both(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Neither engine goes on for nobody."""
    app = await hedged(start, plain, fast, tmp_path, SOON_S)
    both = Gate()
    fast.then(until_gone())
    plain.then(lambda _: _opened(both), until_gone())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await both.wait()
        client.leave()
        await fast.requests[0].gone.wait()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], in_flight(app)) == ("aborted", 0)


async def test_both_fail(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """The client gets an engine's own error."""
    app = await hedged(start, plain, fast, tmp_path, SOON_S)
    asked = Gate()
    error = wire.whole(b'{"error":{"message":"broken"}}', "500 Internal Server Error")
    fast.then(wait(asked), send(error))
    plain.then(lambda _: _opened(asked), send(error))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (500, b'{"error":{"message":"broken"}}')


async def test_a_pool_that_fails_before_its_time_is_replaced_at_once(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Hedging takes nothing away from ordinary failover."""
    app = await hedged(start, plain, fast, tmp_path, NEVER_S)
    await fast.stop()
    plain.always(wire.llama_chat("from plain"))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert b"from plain" in reply.body
