"""Limits of time: each ends what it is about, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.relay.wire.response import WireResponse
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, send, until_gone
from tests.support.flow_client import ask, raw_client, request_bytes
from tests.support.flow_world import config_of, only_decision, pool

ROLE = wire.llama_chunk({"role": "assistant", "content": None})
WORD = wire.llama_chunk({"content": "word"})
SOON_S = 0.1
LONG_S = 600.0


async def reply_within(
    start: Start, plain: ScriptedBackend, folder: Path, sent: bytes, **timeouts: Any
) -> tuple[int, bytes, dict[str, Any]]:
    """What a client gets from an engine that sends `sent` and then nothing."""
    app = await start(config_of(pool("plain", plain, timeouts=timeouts), folder=folder))
    plain.then(send(sent), until_gone())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    await plain.requests[0].gone.wait()
    return reply.status, reply.body, await only_decision(app)


@pytest.mark.parametrize("limit", ["header_s", "first_content_s", "total_s"])
async def test_no_head_in_time(
    start: Start, plain: ScriptedBackend, tmp_path: Path, limit: str
) -> None:
    """The client gets 504, whichever of the limits that include the head it was."""
    status, body, line = await reply_within(start, plain, tmp_path, b"", **{limit: SOON_S})
    assert (status, line["attempts"]) == (504, [["plain/0", "timeout"]])
    assert b"upstream_timeout" in body


@pytest.mark.parametrize("longer", [{"total_s": LONG_S}, {"first_content_s": LONG_S}], ids=str)
async def test_no_limit_puts_off_that_of_the_head(
    start: Start, plain: ScriptedBackend, tmp_path: Path, longer: dict[str, float]
) -> None:
    """The first of them to be reached counts."""
    status, _, line = await reply_within(start, plain, tmp_path, b"", header_s=SOON_S, **longer)
    assert (status, line["attempts"]) == (504, [["plain/0", "timeout"]])


@pytest.mark.parametrize("limit", ["first_content_s", "total_s"])
async def test_the_wait_for_the_head_counts(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    """What it has taken is no longer there for the content."""
    monkeypatch.setattr(WireResponse, "waited_s", LONG_S - SOON_S)
    status, body, line = await reply_within(
        start, plain, tmp_path, wire.STREAM_HEAD + wire.chunk(ROLE), **{limit: LONG_S}
    )
    assert (status, line["error"]) == (200, "upstream_timeout")
    assert body.startswith(ROLE)


@pytest.mark.parametrize("limit", ["idle_s", "first_content_s", "total_s"])
async def test_head_alone_in_time(
    start: Start, plain: ScriptedBackend, tmp_path: Path, limit: str
) -> None:
    """A head without a body is no answer yet."""
    status, _, line = await reply_within(
        start, plain, tmp_path, wire.STREAM_HEAD, **{limit: SOON_S}
    )
    assert (status, line["status"], line["error"]) == (504, "failed", "upstream_timeout")


@pytest.mark.parametrize("limit", ["idle_s", "first_content_s", "total_s"])
async def test_no_content_in_time(
    start: Start, plain: ScriptedBackend, tmp_path: Path, limit: str
) -> None:
    """An opening event and a comment are no content; the stream ends with an error."""
    sent = wire.STREAM_HEAD + wire.chunk(ROLE) + wire.chunk(b": alive\n\n")
    status, body, line = await reply_within(start, plain, tmp_path, sent, **{limit: SOON_S})
    assert (status, line["status"]) == (200, "failed")
    assert body.startswith(ROLE)
    assert b'"code":"upstream_timeout"' in body


@pytest.mark.parametrize("limit", ["idle_s", "total_s"])
async def test_content_that_stops(
    start: Start, plain: ScriptedBackend, tmp_path: Path, limit: str
) -> None:
    """What has come stays, then an error says that the rest is missing."""
    sent = wire.STREAM_HEAD + wire.chunk(WORD)
    status, body, line = await reply_within(start, plain, tmp_path, sent, **{limit: SOON_S})
    assert (status, line["error"]) == (200, "upstream_timeout")
    assert body.startswith(WORD)
    assert body.endswith(wire.DONE)


async def test_a_client_that_holds_its_answer_up_past_the_limit(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The answer ends, but nobody is told that the server had failed: the client had."""
    block = wire.chunk(wire.llama_chunk({"content": "x" * 65_536}))
    plain.then(send(wire.STREAM_HEAD), *[send(block) for _ in range(1000)], until_gone())
    made = pool(
        "plain", plain, timeouts={"total_s": 5 * SOON_S}, health={"breaker": {"failures": 1}}
    )
    app = await start(config_of(made, folder=tmp_path))
    async with raw_client(app.data_url, buffer=65_536) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await plain.all_gone()
    line = await only_decision(app)
    assert (line["status"], line["error"], line["held"]) == ("aborted", "upstream_timeout", True)
    [shown] = app.state()["routes"][0]["pools"][0]["replicas"]
    assert shown["breaker"] == "closed"


async def test_a_stream_with_content_outlives_the_limit_of_the_first(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The first content settles its limit for good."""
    sent = wire.STREAM_HEAD + wire.chunk(WORD)
    limits = {"first_content_s": SOON_S, "idle_s": 3 * SOON_S}
    _, body, line = await reply_within(start, plain, tmp_path, sent, **limits)
    assert b"no data within the limit" in body
    assert line["e2e_s"] > 3 * SOON_S
