"""Answers that had to have a structure: judged when they are over, counted, never written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, send, until_gone
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import cell, config_of, only_decision, pool

CANARY = "zyzzyva"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "required": ["word"], "properties": {"word": {}}},
    },
}
GOOD = ('{"word": "', CANARY, '"}')
BAD = ('{"word": "', CANARY, "}")


def called(*pieces: str, finish: str = "tool_calls") -> list[bytes]:
    """A stream that calls the tool."""
    first, *rest = pieces
    return [
        wire.llama_chunk({"role": "assistant", "content": None}),
        wire.llama_chunk(
            {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": first}}]}
        ),
        *(
            wire.llama_chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in rest
        ),
        wire.llama_chunk({}, finish, timings=wire.llama_timings(8)),
        wire.DONE,
    ]


def whole(arguments: str) -> bytes:
    """An answer that calls the tool."""
    return wire.llama_chat("", tool_calls=[{"function": {"name": "look", "arguments": arguments}}])


@pytest.mark.parametrize(
    ("answer", "asked", "expected"),
    [
        (wire.stream(called(*GOOD)), {"stream": True, "tools": [TOOL]}, (True, False)),
        (wire.stream(called(*BAD)), {"stream": True, "tools": [TOOL]}, (False, False)),
        (
            wire.stream(called(*BAD[:2], finish="length")),
            {"stream": True, "tools": [TOOL]},
            (None, True),
        ),
        (whole("".join(GOOD)), {"tools": [TOOL]}, (True, False)),
        (whole("".join(BAD)), {"tools": [TOOL]}, (False, False)),
        (
            wire.llama_chat("".join(BAD)),
            {"response_format": {"type": "json_object"}},
            (False, False),
        ),
        (wire.llama_chat("".join(BAD)), {}, (None, None)),
        (
            wire.llama_chat("".join(GOOD)),
            {"response_format": {"type": "json_object"}},
            (True, False),
        ),
    ],
)
async def test_an_answer_is_judged_by_what_was_demanded(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    *,
    answer: bytes,
    asked: dict[str, Any],
    expected: tuple[bool | None, bool | None],
) -> None:
    """Streamed or whole, and nothing it said is written anywhere."""
    plain.always(answer)
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat(**asked)))
    assert CANARY.encode() in reply.body
    line = await only_decision(app)
    assert (line["valid"], line["truncated"]) == expected
    metrics = (await get(app.admin_url, "/metrics")).body
    state = json.dumps(app.state()).encode()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(CANARY.encode() in text for text in (metrics, state, *written))


def named(kind: str, **members: Any) -> bytes:
    """An event that has a name."""
    return b"event: %b\n" % kind.encode() + wire.event({"type": kind, **members})


def of_messages(*pieces: str) -> list[bytes]:
    """A stream of Messages that calls the tool."""
    block = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        named("message_start", message={"type": "message", "usage": {"input_tokens": 4}}),
        named("content_block_start", index=0, content_block=block),
        *(named("content_block_delta", index=0, delta=delta) for delta in deltas),
        named("content_block_stop", index=0),
        named("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9}),
        named("message_stop"),
    ]


def of_responses(*pieces: str) -> list[bytes]:
    """A stream of Responses that calls the tool."""
    call = {"type": "function_call", "name": "look", "arguments": "".join(pieces)}
    response = {"object": "response", "status": "completed", "output": [call]}
    deltas = [
        named("response.function_call_arguments.delta", item_id="i", delta=piece)
        for piece in pieces
    ]
    return [*deltas, named("response.completed", response=response)]


@pytest.mark.parametrize(
    ("target", "events", "tool"),
    [
        (
            "/v1/messages",
            of_messages,
            {"name": "look", "input_schema": TOOL["function"]["parameters"]},
        ),
        ("/v1/responses", of_responses, {"type": "function", **TOOL["function"]}),
    ],
)
@pytest.mark.parametrize(("pieces", "valid"), [(GOOD, True), (BAD, False)])
async def test_streams_of_newer_dialects_are_judged_too(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    *,
    target: str,
    events: Callable[..., list[bytes]],
    tool: dict[str, Any],
    pieces: tuple[str, ...],
    valid: bool,
) -> None:
    """Calls come as blocks, or as items of the response."""
    plain.always(wire.stream(events(*pieces)))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    body = wire.dump(
        {"model": wire.MODEL, "messages": [], "input": "x", "stream": True, "tools": [tool]}
    )
    reply = await ask(app.data_url, request_bytes(body, target))
    assert reply.body == b"".join(events(*pieces))
    line = await only_decision(app)
    assert (line["status"], line["valid"], line["truncated"]) == ("ok", valid, False)


async def test_structure_is_shown_for_each_pool(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Sums of what was judged, in the state and in the metrics."""
    plain.then(send(wire.stream(called(*GOOD))))
    plain.then(send(wire.stream(called(*BAD))))
    plain.then(send(wire.stream(called("{", finish="length"))))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    for _ in range(3):
        await ask(app.data_url, request_bytes(wire.chat(stream=True, tools=[TOOL])))
    await app.flush()
    await app.refresh()
    shown = cell(app, "plain")["structure"]
    assert shown == {"checked": 2, "invalid": 1, "finished": 3, "truncated": 1}
    text = (await get(app.admin_url, "/metrics")).body.decode()
    name = "specroute_structured_answers_total"
    counted = [line for line in text.splitlines() if line.startswith(name)]
    found = {line.split('result="')[1].split('"')[0]: line.split()[-1] for line in counted}
    assert found == {"valid": "1.0", "invalid": "1.0", "truncated": "1.0"}


async def test_a_client_that_leaves_before_the_end_says_nothing(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Half of an answer is no invalid one."""
    events = b"".join(wire.chunk(event) for event in called(*BAD)[:3])
    plain.then(send(wire.STREAM_HEAD + events), until_gone())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True, tools=[TOOL])))
        await client.head()
        await client.until(CANARY.encode())
        client.leave()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["valid"], line["truncated"]) == ("aborted", None, None)
