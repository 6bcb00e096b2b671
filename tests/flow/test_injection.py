"""What we ask an engine on top of what the client asked, and take out of its answer again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, close, send
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import always, config_of, only_decision, pool


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
    assert line["accepted"] == (None if engine == "llamacpp" else 1)


@pytest.mark.parametrize("engine", ["llamacpp", "generic"])
async def test_nothing_is_injected_elsewhere(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """llama.cpp tells its figures unasked, and they are known whatever the server is called."""
    plain.always(wire.stream(wire.llama_events(accepted=3)))
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    body = wire.chat(stream=True)
    reply = await ask(app.data_url, request_bytes(body, headers=("Accept-Encoding: gzip",)))
    assert plain.requests[0].body == body
    assert plain.requests[0].header("accept-encoding") == ["gzip"]
    assert reply.body == b"".join(wire.llama_events(accepted=3))
    line = await only_decision(app)
    assert tuple(line[key] for key in ("tokens", "steps", "drafted", "accepted")) == (5, 2, 5, 3)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_error_of_the_engine_to_an_injected_request(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """An engine's refusal of a stream passes with its length and its body untouched."""
    body = wire.dump({"error": {"message": "no", "type": "BadRequestError", "code": 400}})
    plain.always(wire.whole(body, "400 Bad Request"))
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.status, reply.body) == (400, body)
    assert reply.head.one("content-length") == str(len(body))
    assert (await only_decision(app))["status"] == "rejected"


CHUNK = '{"id":"x","choices":%s,"usage":null%s}'
RECORD = (
    '{"spec_tokens_details":{"spec_num_correct_drafts":5,"spec_num_proposed_drafts":10,'
    '"spec_verify_ct":2,"spec_correct_drafts_histogram":[1,0,0,0,0,1]}}'
)


def sglang_event(choices: str, more: str = "") -> bytes:
    """One event as SGLang writes it: usage is null in all of them."""
    return f"data: {CHUNK % (choices, more)}\n\n".encode()


def sglang_stream(*, record: bool, usage: bool) -> list[bytes]:
    """A streamed chat: the opening, two steps, the end, then what was asked for."""
    delta = '[{"index":0,"delta":%s,"finish_reason":%s}]'
    events = [
        sglang_event(delta % ('{"role":"assistant","content":""}', "null")),
        sglang_event(delta % ('{"content":"The"}', "null")),
        sglang_event(delta % ('{"content":" capital is Paris"}', "null")),
        sglang_event(delta % ("{}", '"stop"')),
    ]
    if record:
        events.append(sglang_event("[]", f',"sglext":{RECORD}'))
    if usage:
        told = b'{"prompt_tokens":40,"total_tokens":48,"completion_tokens":8}'
        events.append(b'data: {"id":"x","choices":[],"usage":' + told + b"}\n\n")
    return [*events, b"data: [DONE]\n\n"]


@pytest.mark.parametrize("asked_usage", [True, False])
@pytest.mark.parametrize("asked_record", [True, False])
async def test_sglang_s_record_is_asked_for_and_taken_out_again(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, asked_usage: bool, asked_record: bool
) -> None:
    """Record and usage go each by whether the client asked; its nulls are nobody's doing."""
    plain.always(wire.stream(sglang_stream(record=True, usage=True), wire.VLLM_STREAM_HEAD))
    app = await start(config_of(pool("plain", plain, engine="sglang"), folder=tmp_path))
    more: dict[str, Any] = {"return_spec_tokens_details": True} if asked_record else {}
    if asked_usage:
        more["stream_options"] = {"include_usage": True}
    body = wire.chat(stream=True, **more)
    reply = await ask(app.data_url, request_bytes(body))
    assert reply.body == b"".join(sglang_stream(record=asked_record, usage=asked_usage))
    sent = json.loads(plain.requests[0].body)
    assert sent["return_spec_tokens_details"] is True
    assert sent["stream_options"] == {"include_usage": True}
    line = await only_decision(app)
    assert (line["tokens"], line["drafted"], line["accepted"], line["steps"]) == (8, 10, 5, 3)


def sglang_whole(*, record: bool, padding: int = 0) -> bytes:
    """A whole chat; the member stands in the middle of it."""
    middle = f', "sglext": {RECORD}' if record else ""
    text = '{ "id":"x"%s , "choices":[{"index":0,"message":{"content":"\\"sglext\\":{}%s"}}],\n%s}'
    usage = '"usage":{"prompt_tokens":40,"completion_tokens":8}'
    return (text % (middle, "x" * padding, usage)).encode()


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_whole_answer_is_told_by_its_new_length(
    start: Start, plain: ScriptedBackend, tmp_path: Path, framing: str, *, asked: bool
) -> None:
    """The member goes, no other byte does, and the head says how many there are."""
    body = sglang_whole(record=True)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: x\r\n"
    if framing == "length":
        answer = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    else:
        half = len(body) // 2
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:half], body[half:], b""))
        answer = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    plain.always(answer)
    app = await start(config_of(pool("plain", plain, engine="sglang"), folder=tmp_path))
    more: dict[str, Any] = {"return_spec_tokens_details": True} if asked else {}
    reply = await ask(app.data_url, request_bytes(wire.chat(**more)))
    expected = body if asked else sglang_whole(record=False)
    assert reply.body == expected
    lengths = [str(len(expected))] if framing == "length" else []
    assert reply.head.all("content-length") == lengths
    assert reply.head.all("etag") == (["x"] if asked else [])
    line = await only_decision(app)
    assert (line["tokens"], line["accepted"], line["steps"]) == (8, 5, 3)


async def test_a_whole_answer_beyond_the_limit_passes_as_it_is(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nobody holds megabytes back for a member; the figures are unknown then."""
    body = sglang_whole(record=True, padding=5 * 1024 * 1024)
    plain.always(wire.whole(body))
    app = await start(config_of(pool("plain", plain, engine="sglang"), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.body == body
    line = await only_decision(app)
    assert (line["tokens"], line["accepted"]) == (None, None)


async def test_steps_are_counted_where_there_is_no_record(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """One event is one step; the pool says how long a draft may be."""
    events = [event.replace(b'"metrics"', b'"no"') for event in wire.vllm_events(usage=True)]
    plain.always(wire.stream(events, wire.VLLM_STREAM_HEAD))
    fast = pool("fast", plain, engine="vllm", method="ngram", num_speculative_tokens=5)
    app = await start(config_of(fast, folder=tmp_path))
    await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    line = await only_decision(app)
    assert (line["tokens"], line["steps"], line["acceptance_source"]) == (8, 4, "stream")
    assert (line["drafted"], line["accepted"]) == (None, None)


async def test_a_held_answer_that_was_cut_is_no_answer(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Where only the end of the connection ends a body, the text shows that it is not whole."""
    body = sglang_whole(record=True)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    fast.always(lambda _: [send(head + body[: len(body) // 2]), close()])
    plain.always(wire.whole(body))
    pools = (
        pool("plain", plain, engine="sglang"),
        pool("fast", fast, engine="sglang", method="ngram"),
    )
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (200, sglang_whole(record=False))
    line = await only_decision(app)
    assert (line["arm"], line["served_by"]) == ("fast", "plain")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("400 Bad Request", b""),
        ("307 Temporary Redirect", b""),
        ("422 x", b'{"error": {"mess'),
        ("200 OK", b"\xa0"),
    ],
)
async def test_what_was_not_asked_for_is_passed_on_as_it_came(
    start: Start, plain: ScriptedBackend, tmp_path: Path, status: str, body: bytes
) -> None:
    """Ended by its connection, an error may be empty, and rubbish was never an answer that is cut."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-A: b\r\n\r\n".encode()
    plain.always(lambda _: [send(head + body), close()])
    app = await start(config_of(pool("plain", plain, engine="sglang"), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (int(status[:3]), body)
    assert len(plain.requests) == 1


async def test_a_held_answer_of_which_nothing_came_is_tried_elsewhere(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """An engine that ends between head and body has said 200, and given no answer."""
    fast.always(
        lambda _: [send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"), close()]
    )
    plain.always(wire.whole(sglang_whole(record=True)))
    pools = (
        pool("plain", plain, engine="sglang"),
        pool("fast", fast, engine="sglang", method="ngram"),
    )
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (200, sglang_whole(record=False))
