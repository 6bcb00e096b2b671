"""Bytes in both directions: what is forwarded, and when."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.app import Application
from router.relay.early import SURE
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Exchange, Gate, ScriptedBackend, close, send, wait
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import config_of, only_decision, pool

BODIES = {
    "odd white space": b' \r\n\t{ "messages" :[ ] ,\n\n "model"\t:\t"tiny"  }\n\n',
    "unknown fields": b'{"model":"tiny","x_vendor":{"deep":[1,{"a":null}]},"messages":[]}',
    "order of keys": b'{"z":1,"model":"tiny","a":2,"messages":[],"m":3}',
    "a key twice": b'{"model":"other","messages":[],"model":"tiny"}',
    "escapes": rb'{"model":"\u0074iny","messages":[{"role":"user","content":"\u00e9\ud83d\ude00\/"}]}',
    "plain utf-8": '{"model":"tiny","messages":[{"role":"user","content":"سلام 你好 é😀"}]}'.encode(),
    "big numbers": b'{"model":"tiny","messages":[],"seed":123456789012345678901234567890,'
    b'"temperature":0.10000000000000000555,"top_p":1e-400,"n":1E0}',
    "not a number": b'{"model":"tiny","messages":[],"temperature":NaN}',
    "lone surrogate": rb'{"model":"tiny","messages":[{"role":"user","content":"\ud800"}]}',
    "a megabyte": wire.chat(prompt="ab\u00e9\n" * 210_000),
}


@pytest.fixture
async def app(start: Start, plain: ScriptedBackend, tmp_path: Path) -> Application:
    plain.always(wire.llama_chat())
    return await start(config_of(pool("plain", plain), folder=tmp_path))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_request_body_is_forwarded_as_it_is(
    app: Application, plain: ScriptedBackend, body: bytes
) -> None:
    """The engine gets the very bytes that the client sent, whatever JSON they spell."""
    reply = await ask(app.data_url, request_bytes(body))
    assert reply.status == 200
    [received] = plain.requests
    assert received.body == body
    assert received.header("content-length") == [str(len(body))]
    assert received.header("content-type") == ["application/json"]
    assert received.header("transfer-encoding") == []


@pytest.mark.parametrize(
    "target",
    [
        "/v1/chat/completions",
        "/v1/chat/completions?api-version=2026-01-01&x=a%2Fb%20c&empty=&plus=a+b&x=2",
        "/v1/chat/completions?",
        "/v1/chat/completions?q=%E2%82%AC&bad=%zz&semi=a;b",
        "/v1/completions?x=%2e%2E/..",
    ],
)
async def test_path_and_query_are_kept(
    app: Application, plain: ScriptedBackend, target: str
) -> None:
    """The request target goes on with every escape and empty part as it was."""
    assert (await ask(app.data_url, request_bytes(wire.chat(), target))).status == 200
    assert plain.requests[0].target.rstrip("?") == target.rstrip("?")


async def test_absolute_target_names_no_server(app: Application, plain: ScriptedBackend) -> None:
    """A target in absolute form reaches our engine by its path; its host decides nothing."""
    target = "http://elsewhere.test:1/v1/chat/completions?a=1"
    assert (await ask(app.data_url, request_bytes(wire.chat(), target))).status == 200
    assert plain.requests[0].target == "/v1/chat/completions?a=1"
    assert plain.requests[0].header("host") == [f"127.0.0.1:{plain.port}"]


async def test_request_headers(app: Application, plain: ScriptedBackend) -> None:
    """Headers go on with duplicates, order and case; hop-by-hop and reserved ones stay here."""
    headers = (
        "Authorization: Bearer sk-client",
        "X-Dup: 1",
        "X-Dup: 2",
        "X-Name: caf\u00e9",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "Connection: keep-alive, X-Hop",
        "X-Hop: no",
        "Keep-Alive: timeout=5",
        "TE: trailers",
        "Proxy-Authorization: Basic eA==",
        "x-specroute-class: chat",
        "Cookie: a=1; b=2",
    )
    await ask(app.data_url, request_bytes(wire.chat(), headers=headers))
    [received] = plain.requests
    assert received.header("authorization") == ["Bearer sk-client"]
    assert received.header("x-dup") == ["1", "2"]
    assert received.header("x-name") == ["caf\u00e9".encode().decode("latin-1")]
    assert received.header("cookie") == ["a=1; b=2"]
    assert received.header("host") == [f"127.0.0.1:{plain.port}"]
    assert received.header("content-type") == ["application/json"]
    names = {name.lower() for name, _ in received.headers}
    assert names == {
        *("host", "content-type", "content-length", "authorization", "x-dup", "x-name"),
        *("traceparent", "cookie"),
    }


async def test_pool_key_replaces_the_clients(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A pool with a credential of its own never sees the client's."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain, api_key="pool-secret"), folder=tmp_path))
    headers = ("Authorization: Bearer sk-client", "X-Api-Key: sk-client")
    await ask(app.data_url, request_bytes(wire.chat(), headers=headers))
    assert plain.requests[0].header("authorization") == ["Bearer pool-secret"]
    assert plain.requests[0].header("x-api-key") == []


async def test_chunked_request_body(app: Application, plain: ScriptedBackend) -> None:
    """A body without a length arrives whole, split anywhere."""
    body = wire.chat(prompt="\u00e9\u00e9")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_client(app.data_url) as client:
        await client.send(head)
        for start in range(0, len(body), 7):
            await client.send(wire.chunk(body[start : start + 7]))
        await client.send(wire.END)
        assert (await client.reply()).status == 200
    assert plain.requests[0].body == body
    assert plain.requests[0].header("transfer-encoding") == []


@pytest.mark.parametrize("model", ["tiny", "unknown"])
async def test_trailers_of_a_request_end_with_it(
    app: Application, plain: ScriptedBackend, model: str
) -> None:
    """What follows a chunked body is nobody's header, least of all the next request's.

    aiohttp's parser would make it one, so the connection carries no other request.
    """
    plain.always(wire.llama_chat())
    body = wire.chat().replace(b'"tiny"', f'"{model}"'.encode())
    chunked = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + wire.chunk(body)
        + b"0\r\nX-Admin: yes\r\n\r\n"
    )
    async with raw_client(app.data_url) as client:
        await client.send(chunked + request_bytes(wire.chat()))
        assert (await client.reply()).head.one("connection") == "close"
        assert await client.ended()
    assert not [line for received in plain.requests for line in received.header("x-admin")]


async def test_compressed_request_body(app: Application, plain: ScriptedBackend) -> None:
    """A compressed body reaches the engine as what it means, and no longer says it is compressed."""
    body = wire.chat()
    await ask(app.data_url, request_bytes(gzip.compress(body), headers=("Content-Encoding: gzip",)))
    assert plain.requests[0].body == body
    assert plain.requests[0].header("content-encoding") == []


async def test_chunks_that_break_are_refused_at_once(
    app: Application, plain: ScriptedBackend
) -> None:
    """Nobody waits for the rest of a body whose framing is broken, or holds what came of it."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_client(app.data_url) as client:
        await client.send(head + wire.chunk(b'{"model"'))
        assert (await get(app.data_url, "/health")).status == 200  # the head has been read
        await client.send(b"zz\r\n")
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (400, "invalid_request")
        assert await client.ended()
    assert plain.requests == []


async def test_request_body_in_a_coding_of_its_own(
    app: Application, plain: ScriptedBackend
) -> None:
    """A coding that nobody here can undo stays, and so does its name."""
    plain.always(wire.llama_chat())
    lines = ("Content-Encoding: x-custom",)
    await ask(app.data_url, request_bytes(b"?", "/v1/things/new", headers=lines))
    assert plain.requests[0].body == b"?"
    assert plain.requests[0].header("content-encoding") == ["x-custom"]


async def test_expect_continue(app: Application, plain: ScriptedBackend) -> None:
    """A client that waits for leave to send its body gets it; the engine is not asked to give it."""
    body = wire.chat()
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(body, headers=("Expect: 100-continue",))[: -len(body)])
        assert (await client.head()).line == "HTTP/1.1 100 Continue"
        await client.send(body)
        assert (await client.reply()).status == 200
    assert plain.requests[0].header("expect") == []


async def test_http_1_0_client_that_expects(app: Application, plain: ScriptedBackend) -> None:
    """It knows no interim answers: the first thing it gets is the answer."""
    plain.always(wire.llama_chat())
    lines = ("Expect: 100-continue",)
    reply = await ask(app.data_url, request_bytes(wire.chat(), headers=lines, version="HTTP/1.0"))
    assert reply.status == 200
    assert plain.requests[0].header("expect") == []


async def test_http_1_0_client(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """A client of HTTP/1.0 gets a stream without chunks, ended by the end of the connection."""
    events = wire.llama_events()
    plain.always(wire.stream(events))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True), version="HTTP/1.0"))
    assert reply.head.line.startswith("HTTP/1.1 200")  # RFC 9112, section 2.3: our own version
    assert reply.head.one("transfer-encoding") is None
    assert reply.body == b"".join(events)


async def test_one_connection_serves_many_requests(
    app: Application, plain: ScriptedBackend
) -> None:
    """The client's connection is kept, and so is the one to the engine."""
    async with raw_client(app.data_url) as client:
        for _ in range(3):
            await client.send(request_bytes(wire.chat()))
            assert (await client.reply()).status == 200
    assert len({received.connection for received in plain.requests}) == 1


async def test_whole_answer_and_headers(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Body, status and headers come through; duplicates too, hop-by-hop ones and ours do not."""
    body = b'{"choices":[ ],\n "x":"\\u00e9", "n":1.0 }\n'
    plain.always(
        wire.whole(
            body,
            headers=(
                "Server: llama.cpp",
                "Date: Sun, 29 Nov 2026 16:28:03 GMT",
                "Content-Type: application/json; charset=utf-8",
                "Set-Cookie: a=1; Path=/",
                "Set-Cookie: b=2; HttpOnly",
                "X-Name: caf\u00e9",
                "Access-Control-Allow-Origin:",
                "X-Request-Id: from-engine",
                "ETag: W/abc",
                "Connection: keep-alive, X-Hop",
                "X-Hop: 1",
                "Keep-Alive: timeout=5, max=100",
                "x-specroute-pool: forged",
            ),
        )
    )
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.head.line == "HTTP/1.1 200 OK"
    assert reply.body == body
    own = {name: value for name, value in reply.head.headers if name.startswith("x-specroute-")}
    assert own.pop("x-specroute-request-id") == (await only_decision(app))["request_id"]
    assert own == {
        "x-specroute-pool": "plain",
        "x-specroute-method": "none",
        "x-specroute-class": (await only_decision(app))["class"],
    }
    assert [line for line in reply.head.headers if not line[0].startswith("x-specroute-")] == [
        ("Server", "llama.cpp"),
        ("Date", "Sun, 29 Nov 2026 16:28:03 GMT"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("Set-Cookie", "a=1; Path=/"),
        ("Set-Cookie", "b=2; HttpOnly"),
        ("X-Name", "caf\u00e9".encode().decode("latin-1")),
        ("Access-Control-Allow-Origin", ""),
        ("X-Request-Id", "from-engine"),
        ("ETag", "W/abc"),
        ("Content-Length", str(len(body))),
    ]


async def test_own_headers_can_be_switched_off(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """With `response_headers: false` nothing shows that a router was there."""
    plain.always(wire.llama_chat())
    app = await start(
        config_of(pool("plain", plain), folder=tmp_path, listen={"response_headers": False})
    )
    for request in (wire.chat(), b"{"):
        reply = await ask(app.data_url, request_bytes(request))
        names = [name.lower() for name, _ in reply.head.headers]
        assert not [name for name in names if name.startswith("x-specroute")]


async def test_content_type_decides_what_is_a_stream(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The engine's content type is passed on whatever was asked, and binary bodies are unharmed."""
    body = bytes(range(256)) * 40
    plain.always(wire.whole(body, headers=("Content-Type: audio/wav",)))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.head.all("content-type") == ["audio/wav"]
    assert reply.body == body


async def test_compressed_answer_passes_as_it_is(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A compressed body goes to the client compressed, with its length and its coding."""
    body = gzip.compress(wire.dump({"choices": [{"text": "x" * 1000}]}))
    plain.always(
        wire.whole(body, headers=("Content-Type: application/json", "Content-Encoding: gzip"))
    )
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(), headers=("Accept-Encoding: gzip",)))
    assert reply.body == body
    assert reply.head.all("content-encoding") == ["gzip"]
    assert reply.head.all("content-length") == [str(len(body))]
    assert plain.requests[0].header("accept-encoding") == ["gzip"]


async def test_answer_ended_by_its_connection(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """An answer of unknown length, ended by the engine's close, is a whole answer."""
    body = wire.dump({"choices": []})
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    plain.then(send(head + body), close())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.body == body
    assert (await only_decision(app))["status"] == "ok"


STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}\r\n\r\n'
    b'event: x\r\nid: 7\r\nretry: 10\r\ndata:{"choices":\r\ndata:  []}\r\n\r\n'
    + 'data: {"choices":[{"index":0,"delta":{"content":"é你😀"}}]}\n\n'.encode()
    + b": ping\n\n\n\ndata:\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"\\r\\n"}}]}\r\r'
    b'data: {"choices":[],"usage":null}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)
"""Everything the grammar of event streams allows."""


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "generic"])
async def test_stream_bytes_survive_every_split(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """The client's bytes are the engine's, wherever they are cut: in CRLF, in a character."""
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    request = request_bytes(wire.chat(stream=True, stream_options={"include_usage": True}))
    async with raw_client(app.data_url) as client:
        for at in range(1, len(STREAM), 1 if engine == "vllm" else 5):
            cut = Gate()
            plain.then(
                send(wire.STREAM_HEAD + wire.chunk(STREAM[:at])),
                wait(cut),
                send(wire.chunk(STREAM[at:]) + wire.END),
            )
            await client.send(request)
            if at < SURE:  # it may still become an error, which would be answered as one
                cut.open()
            await client.head()
            first = await client.piece()
            assert first == STREAM[: len(first)]
            assert at < SURE or len(first) == at
            cut.open()
            assert first + await client.rest() == STREAM


async def test_each_event_comes_before_the_next_is_sent(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing is held back: the client has each event while the engine still waits to go on."""
    events = wire.llama_events()
    gates = [Gate() for _ in events]
    steps = [
        step
        for event, gate in zip(events, gates, strict=True)
        for step in (send(wire.chunk(event)), wait(gate))
    ]
    plain.then(send(wire.STREAM_HEAD), *steps, send(wire.END))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        head = await client.head()
        for event, gate in zip(events, gates, strict=True):
            assert await client.piece() == event
            gate.open()
        assert await client.rest() == b""
    assert head.one("x-accel-buffering") == "no"
    assert head.one("cache-control") == "no-cache"
    assert head.one("content-length") is None


async def test_vllm_events_are_not_held_back_either(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Looking for the usage event to take out delays no other event."""
    events = wire.vllm_events(usage=False)
    gates = [Gate() for _ in events]
    steps = [
        step
        for event, gate in zip(events, gates, strict=True)
        for step in (send(wire.chunk(event)), wait(gate))
    ]
    plain.then(send(wire.VLLM_STREAM_HEAD), *steps, send(wire.END))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        for event, gate in zip(events, gates, strict=True):
            assert await client.piece() == event
            gate.open()
        assert await client.rest() == b""


@pytest.mark.parametrize("streamed", [True, False])
async def test_head_comes_with_the_first_byte_of_the_body(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, streamed: bool
) -> None:
    """The head waits for one byte of the body, because another server may answer until then."""
    went_on = Gate()
    answer = wire.stream(wire.llama_events()) if streamed else wire.llama_chat()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, rest = (body[:-20], body[-20:])
    plain.then(send(head + b"\r\n\r\n"), send(first), wait(went_on), send(rest))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=streamed)))
        assert (await client.head()).status == 200
        went_on.open()
        assert await client.rest()


async def test_slow_client_slows_the_engine(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Memory of a stream is bounded: what the client does not take, the engine cannot send."""
    block = wire.llama_chunk({"content": "x" * 65_536})
    total, sent = 240, [0]

    async def flood(exchange: Exchange) -> None:
        for _ in range(total):
            await send(wire.chunk(block))(exchange)
            sent[0] += 1

    plain.then(send(wire.STREAM_HEAD), flood, send(wire.chunk(wire.DONE) + wire.END))
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url, buffer=65_536) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        # Others are served meanwhile: enough rounds of the loop to fill every buffer.
        for _ in range(20):
            assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
        before = sent[0]
        body = await client.rest()
    assert before < total
    assert sent[0] == total
    assert len(body) == total * len(block) + len(wire.DONE)


def recordings() -> Sequence[Path]:
    """All recorded generations of both engines, if they are there."""
    folder = Path(__file__).parents[3] / "shared" / "fixtures"
    files = [*folder.glob("llamacpp-*/*/*.http"), *folder.glob("vllm-*/*/*.http")]
    return sorted(path for path in files if path.name.startswith(("chat", "completions", "error")))


@pytest.mark.shared
@pytest.mark.skipif(not recordings(), reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
async def test_recorded_answers_pass_unchanged(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """Every recorded answer reaches a client that sends the recorded request, byte for byte."""
    model = "smollm2-135m-instruct"
    config = config_of(pool("plain", plain, engine=engine), folder=tmp_path, model=model)
    app = await start(config)
    passed = 0
    for path in recordings():
        if not path.parts[-3].startswith(engine):
            continue
        record = json.loads(path.with_suffix("").with_suffix(".request.json").read_text())
        body = record.get("body")
        if record["method"] != "POST" or not isinstance(body, dict) or body.get("model") != model:
            continue
        if record["path"] not in ("/v1/chat/completions", "/v1/completions"):
            continue
        raw = path.read_bytes()
        plain.then(send(raw), close())
        reply = await ask(app.data_url, request_bytes(wire.dump(body), record["path"]))
        head, _, rest = raw.partition(b"\r\n\r\n")
        expected = await _unchunked(rest) if b"chunked" in head else rest
        assert reply.body == expected, path
        assert reply.head.line.split()[1] == head.split()[1].decode(), path
        passed += 1
    assert passed > 40


async def _unchunked(data: bytes) -> bytes:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return body


async def test_pipelined_requests_are_answered_in_order(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A client may send the next request before it has the answer to the last one."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    for index in range(3):
        plain.then(send(wire.llama_chat(f"answer {index}")))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()) * 3)
        for index in range(3):
            assert f"answer {index}".encode() in (await client.reply()).body


async def test_each_model_has_its_own_pools(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Two routes share nothing: requests, pools and figures go by the model."""
    plain.always(wire.llama_chat("from plain"))
    fast.always(wire.llama_chat("from fast"))
    one = config_of(pool("plain", plain), folder=tmp_path)
    other = config_of(pool("plain", fast), folder=tmp_path, model="org/other:7b")
    app = await start(one.model_copy(update={"routes": (*one.routes, *other.routes)}))
    body = wire.chat().replace(b'"tiny"', b'"org/other:7b"')
    assert b"from fast" in (await ask(app.data_url, request_bytes(body))).body
    assert b"from plain" in (await ask(app.data_url, request_bytes(wire.chat()))).body
    listed = (await get(app.data_url, "/v1/models")).json["data"]
    assert [model["id"] for model in listed] == ["tiny", "org/other:7b"]
    assert (await get(app.data_url, "/v1/models/org/other:7b")).json["id"] == "org/other:7b"
    await app.flush()
    await app.refresh()
    counts = [
        [cell["ok"] for entry in route["classes"] for cell in entry["cells"]]
        for route in app.state()["routes"]
    ]
    assert counts == [[1], [1]]
