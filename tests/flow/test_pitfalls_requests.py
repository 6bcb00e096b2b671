"""Requests that other gateways changed, let in or refused wrongly (docs/pitfalls.md, 5 and 32-35)."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, close, send
from tests.support.flow_client import ask, raw_client, request_bytes
from tests.support.flow_world import config_of, in_flight, pool

LIMIT = 4096


@pytest.fixture
async def app(start: Start, plain: ScriptedBackend, tmp_path: Path) -> Application:
    plain.always(wire.llama_chat())
    config = config_of(pool("plain", plain), folder=tmp_path, listen={"max_body_bytes": LIMIT})
    return await start(config)


def compressed(body: bytes, *lines: str, target: str = "/v1/chat/completions") -> bytes:
    """A request that says how its body is coded."""
    return request_bytes(body, target, headers=tuple(f"Content-Encoding: {x}" for x in lines))


@pytest.mark.parametrize("lines", [("gzip",), ("GZIP",), ("deflate",), ("identity",)])
async def test_a_coding_that_is_undone_is_not_named(
    app: Application, plain: ScriptedBackend, lines: tuple[str, ...]
) -> None:
    """The engine gets what the body means, and `identity` means nothing."""
    body = wire.chat()
    coded = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "identity": body}
    reply = await ask(app.data_url, compressed(coded[lines[0].lower()], *lines))
    assert reply.status == 200
    [received] = plain.requests
    assert received.body == wire.chat()
    assert received.header("content-encoding") == [x for x in lines if x == "identity"]


@pytest.mark.parametrize("lines", [("gzip, gzip",), ("x-vendor",), ("gzip", "x-vendor")])
async def test_codings_that_are_not_undone_stay_named(
    app: Application, plain: ScriptedBackend, lines: tuple[str, ...]
) -> None:
    """What is passed on unread goes as it came, body and header together."""
    data = compressed(b"\x1f\x8bwhatever", *lines, target="/v1/anything")
    assert (await ask(app.data_url, data)).status == 200
    [received] = plain.requests
    assert (received.body, received.header("content-encoding")) == (b"\x1f\x8bwhatever", [*lines])


async def test_one_of_two_codings_is_undone(app: Application, plain: ScriptedBackend) -> None:
    """The last one is, and the header names the other."""
    inner = gzip.compress(b"whatever", mtime=0)
    data = compressed(gzip.compress(inner), "gzip", "gzip", target="/v1/anything")
    assert (await ask(app.data_url, data)).status == 200
    [received] = plain.requests
    assert (received.body, received.header("content-encoding")) == (inner, ["gzip"])


@pytest.mark.parametrize("lines", [("gzip, gzip",), ("x-vendor",)])
async def test_what_must_be_read_and_cannot_is_refused(
    app: Application, plain: ScriptedBackend, lines: tuple[str, ...]
) -> None:
    """With what is wrong, before any engine hears of it."""
    reply = await ask(app.data_url, compressed(gzip.compress(wire.chat()), *lines))
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert "coding" in reply.error["message"]
    assert plain.requests == []


async def test_a_body_that_unfolds_beyond_the_limit(
    app: Application, plain: ScriptedBackend
) -> None:
    """The limit is on what a body means: a few bytes of zeros are 413 like many."""
    bomb = gzip.compress(b"0" * 50_000_000)
    reply = await ask(app.data_url, compressed(gzip.compress(b"0" * (LIMIT + 1)), "gzip"))
    assert (reply.status, reply.error["code"]) == (413, "body_too_large")
    whole = await ask(app.data_url, compressed(bomb[:LIMIT], "gzip"))
    assert whole.status == 413
    assert plain.requests == []


def hostile(*lines: str, body: bytes = b"") -> bytes:
    """A request of these header lines."""
    head = "\r\n".join(("POST /v1/chat/completions HTTP/1.1", "Host: localhost", *lines))
    return head.encode("latin-1") + b"\r\n\r\n" + body


CHAT = wire.chat()
SMUGGLED = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
CONFLICTS = {
    "length and chunks": hostile(
        f"Content-Length: {len(CHAT)}", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED
    ),
    "chunks and length": hostile(
        "Transfer-Encoding: chunked", "Content-Length: 5", body=b"0\r\n\r\n" + SMUGGLED
    ),
    "two lengths": hostile("Content-Length: 3", f"Content-Length: {len(CHAT)}", body=CHAT),
    "lengths in one line": hostile(f"Content-Length: {len(CHAT)}, 3", body=CHAT),
    "signed length": hostile(f"Content-Length: +{len(CHAT)}", body=CHAT),
    "negative length": hostile("Content-Length: -1", body=CHAT),
    "hexadecimal length": hostile(f"Content-Length: {len(CHAT):#x}", body=CHAT),
    "chunked not last": hostile("Transfer-Encoding: chunked, identity", body=SMUGGLED),
    "unknown framing": hostile("Transfer-Encoding: xchunked", body=SMUGGLED),
    "space before the colon": hostile(f"Content-Length : {len(CHAT)}", body=CHAT),
    "folded line": hostile("X-A: 1\r\n  Content-Length: 3", f"Content-Length: {len(CHAT)}"),
    "NUL in a value": hostile("X-A: a\0b", f"Content-Length: {len(CHAT)}", body=CHAT),
    "CR in a value": hostile("X-A: a\rContent-Length: 3", f"Content-Length: {len(CHAT)}"),
    "chunk size with a sign": hostile("Transfer-Encoding: chunked", body=b"+5\r\nhello\r\n0\r\n"),
    "chunk without its line end": hostile(
        "Transfer-Encoding: chunked", body=b"2\r\nhello\r\n0\r\n\r\n"
    ),
}


@pytest.mark.parametrize("data", CONFLICTS.values(), ids=CONFLICTS)
async def test_framing_that_can_be_read_in_two_ways(
    app: Application, plain: ScriptedBackend, data: bytes
) -> None:
    """It is refused and the connection ends: nothing of it becomes another request."""
    async with raw_client(app.data_url) as client:
        await client.send(data)
        assert (await client.reply()).status == 400
        await client.ended()
    assert plain.requests == []
    assert in_flight(app) == 0


def head_of(lines: int) -> bytes:
    """A request whose head has so many lines of eight thousand bytes, and is not finished."""
    return hostile(*("X-A: " + "a" * 8_000,) * lines)[:-2]


async def test_a_head_of_many_lines_is_a_head(app: Application, plain: ScriptedBackend) -> None:
    """Each of them within its limit, and all together within theirs."""
    data = head_of(30) + b"Content-Length: %d\r\n\r\n%b" % (len(CHAT), CHAT)
    assert (await ask(app.data_url, data)).status == 200
    assert len(plain.requests[0].header("x-a")) == 30


@pytest.mark.parametrize("before", [0, 1])
async def test_a_head_without_end_is_not_kept(
    app: Application, plain: ScriptedBackend, before: int
) -> None:
    """It is refused long before its end, also on a connection that has served a request."""
    async with raw_client(app.data_url) as client:
        for _ in range(before):
            await client.send(request_bytes(wire.chat()))
            assert (await client.reply()).status == 200
        await client.send(head_of(33))
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (431, "invalid_request")
        await client.ended()
    assert len(plain.requests) == before


async def test_the_host_of_a_client_decides_nothing(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend
) -> None:
    """No header, target or member of a body names the server that is asked."""
    where = f"127.0.0.1:{fast.port}"
    body = wire.chat(base_url=fast.url, api_base=fast.url, provider={"url": fast.url})
    data = request_bytes(
        body,
        f"{fast.url}/v1/chat/completions",
        headers=(
            f"X-Forwarded-Host: {where}",
            f"Forwarded: host={where}",
            f"X-Specroute-Pool: {where}",
            f"x-gateway-destination-endpoint: {where}",
            f"x-portkey-custom-host: {fast.url}",
            f"X-Original-URL: {fast.url}",
        ),
    ).replace(b"Host: localhost", f"Host: {where}".encode())
    assert (await ask(app.data_url, data)).status == 200
    assert fast.requests == []
    [received] = plain.requests
    assert received.header("host") == [f"127.0.0.1:{plain.port}"]
    assert received.header("x-specroute-pool") == []
    assert received.target == "/v1/chat/completions"


async def test_control_headers_choose_no_arm(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing that a client says under our name changes the draw, or reaches an engine."""
    plain.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path))
    names = ("pool", "arm", "method", "class", "tenant", "policy", "request-id", "reason")
    for name in names:
        line = f"X-SpecRoute-{name}: fast"
        reply = await ask(app.data_url, request_bytes(wire.chat(), headers=(line,)))
        assert reply.head.all("x-specroute-pool") == ["plain"]
    assert fast.requests == []
    sent = {key.lower() for received in plain.requests for key, _ in received.headers}
    assert [key for key in sent if key.startswith("x-specroute")] == []


async def test_a_redirect_gets_no_key(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Whoever an engine points to is not asked, least of all with the pool's credential."""
    where = f"Location: {fast.url}/v1/chat/completions"
    plain.always(wire.whole(b"{}", "307 Temporary Redirect", (where,)))
    app = await start(config_of(pool("plain", plain, api_key="pool-key"), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, fast.requests) == (307, [])


@pytest.mark.parametrize("value", ["x" * 8000, "a b", "../../etc", "\u00e9", "a" * 37])
async def test_names_of_requests_are_our_own(
    app: Application, plain: ScriptedBackend, value: str
) -> None:
    """A client's id goes to the engine as any header does, and into nothing of ours."""
    reply = await ask(app.data_url, request_bytes(wire.chat(), headers=(f"X-Request-Id: {value}",)))
    own = reply.head.one("x-specroute-request-id") or ""
    assert own.isascii()
    assert own.isprintable()
    assert len(own) <= 64
    assert value not in own
    [sent] = plain.requests[0].header("x-request-id")
    assert sent == value.encode().decode("latin-1")


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
@pytest.mark.parametrize("target", ["/v1/messages", "/v1/embeddings", "/v1/audio/speech"])
async def test_one_limit_for_all_endpoints(
    app: Application, plain: ScriptedBackend, target: str, size: int
) -> None:
    """At the boundary and one byte beyond, in the shape of the dialect."""
    body = wire.dump({"model": "tiny", "input": ""})
    body = body[:-2] + b"x" * (size - len(body)) + body[-2:]
    reply = await ask(app.data_url, request_bytes(body, target))
    assert (reply.status, len(plain.requests)) == ((200, 1) if size == LIMIT else (413, 0))
    if size > LIMIT:
        kind = {"/v1/messages": "request_too_large"}.get(target, "invalid_request_error")
        assert reply.json["error"]["type"] == kind


async def test_the_largest_image_passes_untouched(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Megabytes of base64 in a part of a message, with the member that we add in front of them."""
    image = "data:image/png;base64," + "iVBORw0KGgo" * 300_000
    parts = [{"type": "image_url", "image_url": {"url": image}}]
    body = wire.dump(
        {"messages": [{"role": "user", "content": parts}], "stream": True, "model": "tiny"}
    )
    plain.always(wire.stream(wire.vllm_events(usage=True), wire.VLLM_STREAM_HEAD))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    assert (await ask(app.data_url, request_bytes(body))).status == 200
    [received] = plain.requests
    added = b'"stream_options":{"include_usage":true},'
    assert received.body.replace(added, b"", 1) == body


async def test_members_of_answers_that_nobody_knows(
    app: Application, plain: ScriptedBackend
) -> None:
    """They pass, whatever shape they have, and the figures beside them are read."""
    answer = wire.llama_chat().partition(b"\r\n\r\n")[2]
    body = json.dumps({"x_new": [{"deep": None}], "usage_v2": 5, **json.loads(answer)}).encode()
    plain.then(send(wire.whole(body)), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(x_vendor={"a": [1]})))
    assert reply.body == body
