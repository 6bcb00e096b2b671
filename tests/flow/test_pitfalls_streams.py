"""Odd but legal streams, and figures in odd places (docs/pitfalls.md, 1-7 and 9-13)."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from router.relay.keepalive import COMMENT
from router.relay.whole import PassThrough
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, reset, send, wait
from tests.support.flow_client import Reply, ask, raw_client, request_bytes
from tests.support.flow_world import cell, config_of, only_decision, pool

WORD = '{"choices":[{"index":0,"delta":{"content":"你好 😀 é"}}],"x":"'
ODD = {
    "comments": f': one\n:\n: two\ndata: {WORD}a"}}\n\n: alone\n\ndata: [DONE]\n\n',
    "names, numbers and times": f'event: m\nid: 7\nretry: 10\ndata: {WORD}a"}}\n\ndata: [DONE]\n\n',
    "no space": f'data:{WORD}a"}}\n\ndata:[DONE]\n\n',
    "several lines": f'data: {WORD[:12]}\ndata: {WORD[12:]}a"}}\n\ndata: [DONE]\n\n',
    "empty data": f'data\n\ndata:\n\ndata: {WORD}a"}}\n\ndata: [DONE]\n\n',
    "blank lines": f'\n\n\ndata: {WORD}a"}}\n\n\n\n\ndata: [DONE]\n\n\n',
    "mark at the beginning": f'\ufeffdata: {WORD}a"}}\n\ndata: [DONE]\n\n',
    "fields nobody knows": f'x: y\nz\ndata: {WORD}a"}}\n\ndata: [DONE]\n\n',
    "no last blank line": f'data: {WORD}a"}}\n\ndata: [DONE]\n',
    "no last line end": f'data: {WORD}a"}}\n\ndata: [DONE]',
}
LINE_ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize("form", ODD)
async def test_every_legal_form_passes_and_is_read(  # noqa: PLR0917 - fixtures
    start: Start, plain: ScriptedBackend, tmp_path: Path, form: str, engine: str, end: str
) -> None:
    """In pieces of one byte, seven and all, whether usage is to be taken out or not."""
    text = ODD[form].replace("\n", LINE_ENDS[end]).encode()
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    for size in (1, 7, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        plain.then(*[send(x) for x in (wire.STREAM_HEAD, *map(wire.chunk, pieces), wire.END)])
        reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
        assert (reply.status, reply.body) == (200, text)
    await app.flush()
    await app.refresh()
    assert (cell(app, "plain")["ok"], cell(app, "plain")["failed"]) == (3, 0)
    assert cell(app, "plain")["ttft_s"]["n"] == 3


@pytest.mark.parametrize("kind", ["text/event-stream", "Text/Event-Stream; charset=UTF-8"])
@pytest.mark.parametrize("own", [(), ("Cache-Control: no-store",), ("X-Accel-Buffering: no",)])
async def test_hops_are_told_not_to_hold_a_stream_back(
    start: Start, plain: ScriptedBackend, tmp_path: Path, kind: str, own: tuple[str, ...]
) -> None:
    """Each line once; what the engine says itself stands; nothing else is said of other answers."""
    head = "\r\n".join(
        ("HTTP/1.1 200 OK", f"Content-Type: {kind}", "Transfer-Encoding: chunked", *own)
    )
    plain.then(send(wire.stream(wire.llama_events(), head.encode() + b"\r\n\r\n")))
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    streamed = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert streamed.head.all("x-accel-buffering") == ["no"]
    caching = ["no-store"] if own == ("Cache-Control: no-store",) else ["no-cache"]
    assert streamed.head.all("cache-control") == caching
    assert streamed.head.all("content-type") == [kind]
    whole = await ask(app.data_url, request_bytes(wire.chat()))
    assert whole.head.all("x-accel-buffering") + whole.head.all("cache-control") == []


@pytest.mark.parametrize("coding", ["gzip", "gzip, br", "BR"])
@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
async def test_an_engine_that_compresses_all_the_same(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str, coding: str
) -> None:
    """Its bytes and their coding pass together, though figures were to be taken out of them."""
    body = gzip.compress(b"".join(wire.vllm_events(usage=True)), mtime=0)
    lines = ("Content-Type: text/event-stream", f"Content-Encoding: {coding}")
    plain.then(send(wire.whole(body, headers=lines)))
    app = await start(config_of(pool("plain", plain, engine=engine), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.body, reply.head.all("content-encoding")) == (body, [coding])
    line = await only_decision(app)
    assert (line["status"], line["tokens"], line["ttft_s"]) == ("ok", None, None)


@pytest.mark.parametrize("kind", ["audio/mpeg", "image/png", "application/octet-stream", None])
@pytest.mark.parametrize("target", ["/v1/audio/speech", "/v1/images/generations"])
async def test_what_is_no_text_is_unharmed(
    start: Start, plain: ScriptedBackend, tmp_path: Path, kind: str | None, target: str
) -> None:
    """Even where its bytes look like figures that were to be taken out."""
    body = bytes(range(256)) * 40 + b'data: {"choices":[],"usage":{"x":1}}\n\n'
    lines = () if kind is None else (f"Content-Type: {kind}",)
    plain.then(send(wire.whole(body, headers=lines)))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    request = wire.dump({"model": "tiny", "input": "x", "stream": True})
    reply = await ask(app.data_url, request_bytes(request, target))
    assert (reply.body, reply.head.one("content-type")) == (body, kind)
    assert reply.head.all("content-length") == [str(len(body))]


# --- Usage in odd places --------------------------------------------------------------------------

TOKENS = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
FEWER = {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}
TEXT = wire.event({"choices": [{"index": 0, "delta": {"content": "word"}}]})
BARE = wire.event({"choices": [], "usage": TOKENS})
WITHOUT_CHOICES = wire.event({"usage": TOKENS})
BESIDE_NOTHING = wire.event({"choices": [{"index": 0, "delta": {}}], "usage": TOKENS})
EARLIER = wire.event({"choices": [], "usage": FEWER})
NULL_CHOICES = wire.event({"choices": None, "usage": TOKENS})

PLACES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "no choices": ([TEXT, BARE, wire.DONE], [BARE]),
    "choices missing": ([TEXT, WITHOUT_CHOICES, wire.DONE], [WITHOUT_CHOICES]),
    "choices null": ([TEXT, NULL_CHOICES, wire.DONE], [NULL_CHOICES]),
    "an empty delta": ([TEXT, BESIDE_NOTHING, wire.DONE], []),
    "in the middle": ([TEXT, BARE, TEXT, wire.DONE], [BARE]),
    "twice": ([TEXT, EARLIER, BARE, wire.DONE], [EARLIER, BARE]),
    "before all output": ([EARLIER, TEXT, BARE, wire.DONE], [EARLIER, BARE]),
}


async def streamed(
    start: Start,
    plain: ScriptedBackend,
    folder: Path,
    events: Sequence[bytes],
    *,
    engine: str = "vllm",
    **asked: Any,
) -> tuple[Reply, dict[str, Any]]:
    """What a client gets of these events, and what was written down."""
    plain.then(send(wire.stream(events)))
    app = await start(config_of(pool("plain", plain, engine=engine), folder=folder))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True, **asked)))
    return reply, await only_decision(app)


@pytest.mark.parametrize("place", PLACES)
async def test_usage_that_we_asked_for_is_found_and_taken_out(
    start: Start, plain: ScriptedBackend, tmp_path: Path, place: str
) -> None:
    """Wherever it stands by itself; beside a choice it is the engine's own wish to show it."""
    events, taken = PLACES[place]
    reply, line = await streamed(start, plain, tmp_path, events)
    assert reply.body == b"".join(event for event in events if event not in taken)
    assert (line["status"], line["tokens"], line["prompt_tokens"]) == ("ok", 8, 40)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "generic"])
async def test_usage_that_the_client_asked_for_is_forwarded_as_received(
    start: Start, plain: ScriptedBackend, tmp_path: Path, place: str, engine: str
) -> None:
    """Wherever it stands, and as often as it comes."""
    events, _ = PLACES[place]
    asked = {"stream_options": {"include_usage": True}}
    reply, line = await streamed(start, plain, tmp_path, events, engine=engine, **asked)
    assert reply.body == b"".join(events)
    assert (line["status"], line["tokens"]) == ("ok", 8)


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "generic"])
@pytest.mark.parametrize(
    "members",
    [
        {"choices": [], "usage": 5},
        {"choices": [], "usage": []},
        {"choices": [], "usage": {"completion_tokens": "8", "prompt_tokens": -1}},
        {"choices": [], "usage": {"completion_tokens": 1e300}},
        {"choices": {"0": 1}, "usage": {}},
        {"choices": [None, 5, {"delta": [], "text": {}}], "usage": None, "timings": 7},
        {"choices": [], "usage": {}, "metrics": [], "timings": {"predicted_n": []}},
    ],
    ids=str,
)
async def test_figures_of_any_shape_harm_nobody(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str, members: dict[str, Any]
) -> None:
    """The client gets the output; what was not understood is unknown, never 0."""
    events = [TEXT, wire.event(members), wire.DONE]
    reply, line = await streamed(start, plain, tmp_path, events, engine=engine)
    assert reply.status == 200
    assert reply.body.startswith(TEXT)
    assert reply.body.endswith(wire.DONE)
    assert (line["status"], line["tokens"], line["accepted"]) == ("ok", None, None)


SPECULATION = wire.VLLM_METRICS["speculative_decoding"]
UNMEASURED: dict[str, Any] = {
    "absent": {},
    "null": {"metrics": None},
    "null inside": {"metrics": {"speculative_decoding": None}},
    "renamed": {"metrics": {"spec_decode": SPECULATION}},
    "reshaped": {"metrics": {"speculative_decoding": [SPECULATION]}},
    "negative": {
        "metrics": {
            "speculative_decoding": {
                **(SPECULATION if isinstance(SPECULATION, dict) else {}),
                "num_accepted_draft_tokens": -1,
            }
        }
    },
}


@pytest.mark.parametrize("case", UNMEASURED)
async def test_acceptance_that_was_not_measured_is_not_zero(
    start: Start, plain: ScriptedBackend, tmp_path: Path, case: str
) -> None:
    """Neither in the decision nor in what is learned from it; tokens are known all the same."""
    figures = wire.event({"choices": [], "usage": TOKENS, **UNMEASURED[case]})
    plain.then(send(wire.stream([TEXT, figures, wire.DONE])))
    app = await start(
        config_of(pool("plain", plain, engine="vllm", method="eagle3"), folder=tmp_path)
    )
    await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    line = await only_decision(app)
    assert (line["tokens"], line["drafted"], line["accepted"], line["steps"]) == (
        8,
        None,
        None,
        None,
    )
    await app.refresh()
    shown = cell(app, "plain")
    names = ("tokens_per_step", "acceptance_rate", "draft_acceptance_rate")
    assert ([shown[name] for name in names], shown["acceptance_requests"]) == ([None] * 3, 0)


# --- Streams that say how long they are -----------------------------------------------------------

EVENTS = wire.llama_events()
LENGTH = sum(map(len, EVENTS))
SIZED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % LENGTH


async def test_a_stream_with_a_length_that_breaks_off(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """What we add ends it; its length would have the client wait, or read the next answer for it."""
    plain.then(send(SIZED + EVENTS[0] + EVENTS[1]), reset())
    plain.always(wire.llama_chat("the next one"))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        broken = await client.reply()
        assert broken.head.all("content-length") == []
        assert broken.body.startswith(EVENTS[0] + EVENTS[1])
        assert b'"code":"upstream_unavailable"' in broken.body
        assert broken.body.endswith(wire.DONE)
        await client.send(request_bytes(wire.chat()))
        assert b"the next one" in (await client.reply()).body


async def test_a_stream_with_a_length_is_kept_alive(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A comment makes it longer than it said."""
    go_on = Gate()
    plain.then(send(SIZED + EVENTS[0]), wait(go_on), send(b"".join(EVENTS[1:])))
    config = config_of(pool("plain", plain), folder=tmp_path, keepalive_comment_s=0.05)
    app = await start(config)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        assert await client.piece() == EVENTS[0]
        assert await client.piece() == COMMENT
        go_on.open()
        assert (await client.rest()).replace(COMMENT, b"") == b"".join(EVENTS[1:])


@pytest.mark.parametrize("kind", ["flaw", "drain"])
async def test_nothing_is_added_to_a_compressed_stream(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """An error in clear would be noise inside it, or never be reached: the connection is cut."""
    body = gzip.compress(b"".join(EVENTS), mtime=0)
    head = SIZED.replace(b"%d" % LENGTH, b"%d\r\nContent-Encoding: gzip" % len(body))
    go_on = Gate()
    plain.then(send(head + body[:20]), wait(go_on), send(body[20:]))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))

    def spoiled(*_: object) -> bytes:
        raise LookupError

    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        assert (await client.head()).all("content-length") == [str(len(body))]
        if kind == "flaw":
            monkeypatch.setattr(PassThrough, "feed", spoiled)
            go_on.open()
        else:
            app.end_answers()
        with pytest.raises((EOFError, ConnectionError)):
            await client.rest()
    go_on.open()
