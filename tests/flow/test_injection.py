"""What we ask an engine on top of what the client asked, and take out of its answer again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import config_of, only_decision, pool


def vllm_stream(*, usage: bool) -> bytes:
    """A whole streamed answer."""
    return wire.stream(wire.vllm_events(usage=usage), wire.VLLM_STREAM_HEAD)


@pytest.mark.parametrize("more", [{}, {"stream_options": None}, {"stream_options": {"x": [1]}}])
async def test_usage_is_asked_for_and_taken_out_again(
    start: Start, plain: ScriptedBackend, tmp_path: Path, more: dict[str, Any]
) -> None:
    """A client that did not ask for usage gets the stream it would have got without us."""
    plain.always(vllm_stream(usage=True))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    body = wire.chat(stream=True, **more)
    headers = ("Accept-Encoding: gzip",)
    reply = await ask(app.data_url, request_bytes(body, headers=headers))
    assert reply.body == b"".join(wire.vllm_events(usage=False))
    [received] = plain.requests
    sent = json.loads(received.body)
    options = sent.pop("stream_options")
    assert options == {**(more.get("stream_options") or {}), "include_usage": True}
    expected = json.loads(body)
    expected.pop("stream_options", None)
    assert sent == expected
    assert received.header("accept-encoding") == ["identity"]
    line = await only_decision(app)
    assert (line["tokens"], line["drafted"], line["accepted"], line["steps"]) == (8, 5, 1, 7)
    assert line["acceptance_source"] == "request"


async def test_only_the_injected_member_differs(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Around the injected member every byte of the request is the client's."""
    plain.always(vllm_stream(usage=True))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    body = b'{ "model" : "tiny",\n "stream":true, "x": 1.50e0,"messages":[] ,"s":"\\u00e9"}\n'
    await ask(app.data_url, request_bytes(body))
    injected = b'"stream_options":{"include_usage":true},'
    assert plain.requests[0].body.replace(injected, b"") == body


async def test_client_that_asked_gets_usage_once(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A client's own `include_usage` is left alone in both directions."""
    plain.always(vllm_stream(usage=True))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    body = wire.chat(stream=True, stream_options={"include_usage": True})
    reply = await ask(app.data_url, request_bytes(body))
    assert plain.requests[0].body == body
    assert reply.body == b"".join(wire.vllm_events(usage=True))
    assert reply.body.count(b'"usage":{') == 1
    assert (await only_decision(app))["accepted"] == 1


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "generic"])
async def test_nothing_is_injected_without_a_stream(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """`stream_options` without a stream is an error to engines: such a request stays as it is."""
    plain.always(wire.vllm_chat())
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    body = wire.chat(stream_options=None) if engine == "vllm" else wire.chat()
    reply = await ask(app.data_url, request_bytes(body))
    assert plain.requests[0].body == body
    assert reply.body == wire.vllm_chat().partition(b"\r\n\r\n")[2]
    line = await only_decision(app)
    assert line["tokens"] == 8
    assert line["accepted"] == (1 if engine == "vllm" else None)


@pytest.mark.parametrize("engine", ["llamacpp", "generic"])
async def test_nothing_is_injected_elsewhere(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """llama.cpp tells its figures unasked, and an unknown server is asked for nothing."""
    plain.always(wire.stream(wire.llama_events(accepted=3)))
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    body = wire.chat(stream=True)
    reply = await ask(app.data_url, request_bytes(body, headers=("Accept-Encoding: gzip",)))
    assert plain.requests[0].body == body
    assert plain.requests[0].header("accept-encoding") == ["gzip"]
    assert reply.body == b"".join(wire.llama_events(accepted=3))
    expected = (5, 2, 5, 3) if engine == "llamacpp" else (None, None, None, None)
    line = await only_decision(app)
    assert tuple(line[key] for key in ("tokens", "steps", "drafted", "accepted")) == expected


async def test_error_of_the_engine_to_an_injected_request(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """An engine's refusal of a stream passes with its length and its body untouched."""
    body = wire.dump({"error": {"message": "no", "type": "BadRequestError", "code": 400}})
    plain.always(wire.whole(body, "400 Bad Request"))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.status, reply.body) == (400, body)
    assert reply.head.one("content-length") == str(len(body))
    assert (await only_decision(app))["status"] == "rejected"
