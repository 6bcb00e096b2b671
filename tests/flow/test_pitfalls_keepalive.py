"""Comments in silent streams: they reach the client between events, and change nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from router.app import Application
from router.relay.keepalive import COMMENT
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, Step, opens, send, until_gone, wait
from tests.support.flow_client import RawClient, ask, raw_client, request_bytes
from tests.support.flow_world import always, config_of, decisions, in_flight, only_decision, pool

SOON_S = 0.05
FIRST, SECOND, *_ = EVENTS = wire.llama_events()
STREAM = b"".join(EVENTS)
REFUSED = {"error": {"message": "no such thing", "type": "invalid_request_error", "code": 400}}


def chunks(events: list[bytes]) -> bytes:
    """Events in chunks, and the end of the body."""
    return b"".join(wire.chunk(event) for event in events) + wire.END


async def kept_alive(
    start: Start, folder: Path, *pools: dict[str, Any], **more: Any
) -> Application:
    """A proxy that speaks up soon."""
    config = config_of(*pools, folder=folder, keepalive_comment_s=SOON_S, **more)
    return await start(config)


async def ask_stream(client: RawClient, target: str = "/v1/chat/completions") -> None:
    """Sends a request for a stream."""
    body = wire.chat(stream=True, max_tokens=8)
    await client.send(request_bytes(body, target))


async def some_time(app: Application, plain: ScriptedBackend) -> None:
    """Lets time pass by which a silent client has been spoken to several times: this one has."""
    plain.then(until_gone())
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await client.head()
        for _ in range(3):
            assert await client.piece() == COMMENT


async def test_a_client_that_waits_for_its_first_token(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """It gets a head and comments, then the engine's own bytes; a comment is no first token."""
    go_on = Gate()
    plain.then(wait(go_on), send(wire.stream(EVENTS)))
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        head = await client.head()
        assert head.line == "HTTP/1.1 200 OK"
        assert head.all("content-type") == ["text/event-stream"]
        assert head.all("x-accel-buffering") == ["no"]
        assert head.one("x-specroute-request-id") is not None
        assert head.one("x-specroute-pool") is None
        assert [await client.piece() for _ in range(2)] == [COMMENT] * 2
        go_on.open()
        assert (await client.rest()).replace(COMMENT, b"") == STREAM
    line = await only_decision(app)
    assert (line["status"], line["http_status"], line["served_by"]) == ("ok", 200, "plain")
    assert line["ttft_s"] >= 2 * SOON_S


async def test_between_events(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """A stream that pauses is kept alive in the pause, and says nothing after its end."""
    go_on = Gate()
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(FIRST + SECOND)), wait(go_on), send(chunks(EVENTS[2:]))
    )
    plain.always(wire.llama_chat())
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        assert (await client.head()).one("x-specroute-pool") == "plain"
        assert await client.piece() == FIRST + SECOND
        assert await client.piece() == COMMENT
        go_on.open()
        assert (await client.rest()).replace(COMMENT, b"") == b"".join(EVENTS[2:])
        await client.send(request_bytes(wire.chat()))
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
async def test_never_inside_an_event(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """However long an event stands half sent; one that is held back has not begun for the client."""
    there, go_on = Gate(), Gate()
    events = wire.vllm_events(usage=True) if engine == "vllm" else EVENTS
    shown = wire.vllm_events(usage=False) if engine == "vllm" else EVENTS
    first, second, *rest = events
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(first + second[:40])),
        opens(there),
        wait(go_on),
        send(wire.chunk(second[40:]) + chunks(rest)),
    )
    app = await kept_alive(start, tmp_path, pool("plain", plain, engine=engine))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await there.wait()
        await some_time(app, plain)
        go_on.open()
        body = (await client.reply()).body
    assert body.replace(COMMENT, b"") == b"".join(shown)
    assert (COMMENT in body) == (engine == "vllm")
    assert all(event in body for event in shown)


@pytest.mark.parametrize("end", [b"\r\r", b"\r\n\r\n"])
async def test_whatever_lines_end_in(
    start: Start, plain: ScriptedBackend, tmp_path: Path, end: bytes
) -> None:
    """A stream of other line ends is one of events too, and its mark at the beginning is gone."""
    go_on = Gate()
    events = [event.replace(b"\n\n", end) for event in EVENTS]
    plain.then(wait(go_on), send(wire.STREAM_HEAD + wire.chunk(b"\xef\xbb\xbf" + events[0])))
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await client.head()
        assert await client.piece() == COMMENT
        go_on.open()
        assert await client.until(events[0]) == events[0]


async def test_only_streams_are_kept_alive(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """An answer that comes whole has no place for a comment, neither has one of numbers."""
    bodies = {
        "/v1/chat/completions": wire.chat(),
        "/v1/embeddings": wire.dump({"model": "tiny", "input": "x", "stream": True}),
    }
    for target, body in bodies.items():
        there, go_on = Gate(), Gate()
        plain.then(opens(there), wait(go_on), send(wire.whole(b'{"x":1}')))
        app = await kept_alive(start, tmp_path, pool("plain", plain))
        async with raw_client(app.data_url) as client:
            await client.send(request_bytes(body, target))
            await there.wait()
            await some_time(app, plain)
            go_on.open()
            reply = await client.reply()
        assert (reply.status, reply.body) == (200, b'{"x":1}')


async def test_another_server_may_still_answer(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A comment is no output: what the first server never said, the second one may."""
    go_on = Gate()
    fast.then(wait(go_on), send(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"))
    plain.always(wire.stream(EVENTS))
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await kept_alive(start, tmp_path, *pools, policy=always("fast"))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await client.head()
        assert await client.piece() == COMMENT
        go_on.open()
        assert (await client.rest()).replace(COMMENT, b"") == STREAM
    line = await only_decision(app)
    assert (line["status"], line["served_by"], line["http_status"]) == ("ok", "plain", 200)
    assert line["attempts"] == [["fast/0", "server_error"], ["plain/0", "answered"]]


LATE_ERRORS: dict[str, tuple[bytes, str, str]] = {
    "refused": (wire.whole(wire.dump(REFUSED), "400 Bad Request"), "rejected", "no such thing"),
    "busy": (wire.whole(b"{}", "429 Too Many Requests"), "failed", "status 429"),
    "broken": (wire.whole(b"oh", "500 Internal Server Error"), "failed", "status 500"),
    "no stream": (wire.llama_chat(), "failed", "status 200"),
    "error in place of a stream": (
        wire.stream([wire.event(REFUSED), wire.DONE]),
        "rejected",
        "no such thing",
    ),
    "no HTTP": (b"SSH-2.0-x\r\n\r\n", "failed", "not a complete HTTP answer"),
}


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(("answer", "status", "words"), LATE_ERRORS.values(), ids=LATE_ERRORS)
async def test_an_error_that_comes_after_a_comment(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    answer: bytes,
    status: str,
    words: str,
    target: str,
) -> None:
    """The status is settled, so it is one error event of the dialect, and the end of the stream."""
    go_on = Gate()
    steps: list[Step] = [wait(go_on), send(answer), until_gone()]
    plain.always(lambda _: steps)
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client, target)
        await client.head()
        assert await client.piece() == COMMENT
        go_on.open()
        body = (await client.rest()).replace(COMMENT, b"")
    events = [event for event in body.split(b"\n\n") if event]
    if target == "/v1/chat/completions":
        assert events.pop() == b"data: [DONE]"
    else:
        assert events[0].startswith(b"event: error\n")
    [event] = events
    error = json.loads(event.partition(b"data: ")[2])["error"]
    assert words in error["message"]
    line = await only_decision(app)
    assert (line["status"], line["http_status"], line["ttft_s"]) == (status, 200, None)
    assert in_flight(app) == 0


async def test_an_error_on_its_way_keeps_its_status(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Between the head of what is no stream and its body no comment may promise one."""
    there, go_on = Gate(), Gate()
    answer = wire.whole(wire.dump(REFUSED), "400 Bad Request")
    plain.then(send(answer[:-20]), opens(there), wait(go_on), send(answer[-20:]))
    silent = wire.whole(wire.dump(REFUSED), "422 Unprocessable Entity")
    end = silent.index(b"\r\n\r\n") + 4
    plain.then(send(silent[:end]), opens(there), wait(go_on), send(silent[end:]))
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as begun, raw_client(app.data_url) as bare:
        await ask_stream(begun)
        await there.wait()
        await ask_stream(bare)
        await some_time(app, plain)
        go_on.open()
        assert ((await begun.reply()).status, (await bare.reply()).status) == (400, 422)


async def test_a_server_that_never_answers(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Comments do not stop its limits: the stream ends with an error when they are over."""
    plain.then(send(wire.STREAM_HEAD), until_gone())
    limits = {"first_content_s": 4 * SOON_S}
    app = await kept_alive(start, tmp_path, pool("plain", plain, timeouts=limits))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body.startswith(COMMENT)
    assert b'"code":"upstream_timeout"' in reply.body
    assert reply.body.endswith(wire.DONE)
    assert (await only_decision(app))["error"] == "upstream_timeout"


async def test_a_client_that_leaves_after_a_comment(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Its engine is left at once, and nothing is learned."""
    plain.then(until_gone())
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await client.head()
        assert await client.piece() == COMMENT
        client.leave()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["http_status"], in_flight(app)) == ("aborted", 200, 0)


async def test_with_a_hedge(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Whoever is first serves into the stream that a comment has begun."""
    fast.then(until_gone())
    plain.always(wire.stream(EVENTS))
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    late_s = 4 * SOON_S
    app = await kept_alive(start, tmp_path, *pools, policy=always("fast"), hedge_s=late_s)
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body.startswith(COMMENT)
    assert reply.body.replace(COMMENT, b"") == STREAM
    await fast.requests[0].gone.wait()
    assert (await only_decision(app))["served_by"] == "plain"


async def test_a_drain_ends_a_stream_of_comments(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """With an error, like any that has begun."""
    plain.then(until_gone())
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with raw_client(app.data_url) as client:
        await ask_stream(client)
        await client.head()
        assert await client.piece() == COMMENT
        app.end_answers()
        body = await client.rest()
    assert b'"code":"draining"' in body
    assert body.endswith(wire.DONE)
    assert [line["status"] for line in await decisions(app)] == ["aborted"]


async def test_official_client(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """It sees the chunks alone, and raises an error that comes late."""
    refuses = [Gate(), Gate()]
    plain.then(wait(refuses[0]), send(wire.stream(EVENTS)))
    plain.then(wait(refuses[1]), send(wire.whole(wire.dump(REFUSED), "400 Bad Request")))
    app = await kept_alive(start, tmp_path, pool("plain", plain))
    async with openai.AsyncOpenAI(
        base_url=f"{app.data_url}/v1", api_key="k", max_retries=0
    ) as client:
        messages: Any = [{"role": "user", "content": "x"}]
        # The head has come by a comment: the engine is still waiting.
        stream = await client.chat.completions.create(model="tiny", messages=messages, stream=True)
        refuses[0].open()
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(text) == "The capital is Paris."
        stream = await client.chat.completions.create(model="tiny", messages=messages, stream=True)
        refuses[1].open()
        with pytest.raises(openai.APIError, match="no such thing"):
            [chunk async for chunk in stream]
