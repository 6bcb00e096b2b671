"""What the scripted engine answers: bytes recorded from real engines, and a few written by hand.

Written are only those that the engines at hand could not be made to say: tool calls and errors in
the dialects of the Responses and Messages endpoints, in the shapes their documentation gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import orjson

from tests.clients.cases import HEADER, Case
from tests.support import flow_wire as wire
from tests.support.flow_backend import Received, Step, send

_TESTS = Path(__file__).parents[1]
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_WEATHER = '{"city": "Rome", "unit": "C"}'


def script(cases: Sequence[Case]) -> Callable[[Received], list[Step]]:
    """Answers each request as its case says."""
    answers = {case.name: case.answer for case in cases}

    def answered(received: Received) -> list[Step]:
        named = received.header(HEADER)
        # The proxy asks for things of its own: figures of load, for instance.
        data = answer(answers[named[0]], received) if named else _NOT_FOUND
        return [send(data)]

    return answered


def answer(name: str, received: Received) -> bytes:
    """The whole response, framing included."""
    if name in WRITTEN:
        return WRITTEN[name]
    return _without_usage(name) if _usage_unasked(received) else recorded(name)


@cache
def recorded(name: str) -> bytes:
    """A recorded response that leaves its connection open."""
    path = Path(name) if Path(name).is_absolute() else _TESTS / name
    data = path.with_name(f"{path.name}.http").read_bytes()
    return data.replace(b"\r\nConnection: close", b"", 1).replace(b"\r\nconnection: close", b"", 1)


def _usage_unasked(received: Received) -> bool:
    """Whether a stream was asked for without its usage."""
    if not received.header("content-type")[0].startswith("application/json"):
        return False
    body = orjson.loads(received.body)
    options = body.get("stream_options") or {}
    return body.get("stream") is True and not options.get("include_usage")


@cache
def _without_usage(name: str) -> bytes:
    """The same answer without the event that vLLM adds when it is asked for usage."""
    head, _, rest = recorded(name).partition(b"\r\n\r\n")
    if b"server: uvicorn" not in head:
        return recorded(name)
    kept = [part for part in _chunks(rest) if b'"choices":[],"usage":' not in part]
    return head + b"\r\n\r\n" + b"".join(map(wire.chunk, kept)) + wire.END


def _chunks(data: bytes) -> list[bytes]:
    found = []
    while size := int(data.partition(b"\r\n")[0], 16):
        data = data.partition(b"\r\n")[2]
        found.append(data[:size])
        data = data[size + 2 :]
    return found


def _named(name: str, /, **data: object) -> bytes:
    """An event in the dialects that name theirs."""
    return f"event: {name}\ndata: ".encode() + wire.dump({"type": name, **data}) + b"\n\n"


_CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": _WEATHER,
    "status": "completed",
}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1795986290,
    "model": "tiny",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [_CALL],
    "usage": {
        "input_tokens": 36,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 48,
    },
}
_BEGUN = {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}
_RESPONSE_EVENTS = (
    _named("response.created", sequence_number=0, response=_BEGUN),
    _named(
        "response.output_item.added",
        sequence_number=1,
        output_index=0,
        item={**_CALL, "arguments": "", "status": "in_progress"},
    ),
    *(
        _named(
            "response.function_call_arguments.delta",
            sequence_number=2 + index,
            output_index=0,
            item_id="fc_1",
            delta=part,
        )
        for index, part in enumerate((_WEATHER[:9], _WEATHER[9:]))
    ),
    _named(
        "response.function_call_arguments.done",
        sequence_number=4,
        output_index=0,
        item_id="fc_1",
        name="get_weather",
        arguments=_WEATHER,
    ),
    _named("response.output_item.done", sequence_number=5, output_index=0, item=_CALL),
    _named("response.completed", sequence_number=6, response=_RESPONSE),
)

_MESSAGE: dict[str, object] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "tiny",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 40, "output_tokens": 1},
}
_TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
_MESSAGE_BEGINS = (
    _named("message_start", message=_MESSAGE),
    _named("content_block_start", index=0, content_block=_TOOL_USE),
    b'event: ping\ndata: {"type": "ping"}\n\n',
)
_MESSAGE_EVENTS = (
    *_MESSAGE_BEGINS,
    *(
        _named(
            "content_block_delta",
            index=0,
            delta={"type": "input_json_delta", "partial_json": part},
        )
        for part in ("", _WEATHER[:9], _WEATHER[9:])
    ),
    _named("content_block_stop", index=0),
    _named(
        "message_delta",
        delta={"stop_reason": "tool_use", "stop_sequence": None},
        usage={"output_tokens": 12},
    ),
    _named("message_stop"),
)


def _error(status: str, error: dict[str, object], *headers: str, **beside: object) -> bytes:
    lines = ("Content-Type: application/json", *headers)
    return wire.whole(wire.dump({**beside, "error": error}), status, lines)


WRITTEN = {
    "response_tools": wire.whole(wire.dump(_RESPONSE)),
    "response_tools_stream": wire.stream(_RESPONSE_EVENTS),
    "message_tools": wire.whole(
        wire.dump(
            {
                **_MESSAGE,
                "content": [{**_TOOL_USE, "input": {"city": "Rome", "unit": "C"}}],
                "stop_reason": "tool_use",
            }
        )
    ),
    "message_tools_stream": wire.stream(_MESSAGE_EVENTS),
    "overloaded": _error(
        "529 Overloaded", {"type": "overloaded_error", "message": "Overloaded"}, type="error"
    ),
    "anthropic_error_event": wire.stream(
        (
            *_MESSAGE_BEGINS,
            _named("error", error={"type": "overloaded_error", "message": "Overloaded"}),
        )
    ),
    "rate_limited": _error(
        "429 Too Many Requests",
        {"message": "Too many requests.", "type": "rate_limit_error", "code": 429},
        "Retry-After: 7",
    ),
    "server_error": _error(
        "500 Internal Server Error",
        {"message": "The engine is broken.", "type": "server_error", "code": 500},
    ),
    "not_supported": _error(
        "501 Not Implemented",
        {"message": "Not supported.", "type": "not_supported_error", "code": 501},
    ),
    "error_event": wire.stream(
        (
            wire.llama_chunk({"role": "assistant", "content": None}),
            wire.llama_chunk({"content": "The"}),
            wire.event(
                {"error": {"message": "Out of memory.", "type": "server_error", "code": 500}}
            ),
            wire.DONE,
        )
    ),
    "transcription": wire.whole(wire.dump({"text": "One, two."})),
    "rerank": wire.whole(
        wire.dump(
            {
                "model": "tiny",
                "object": "list",
                "results": [
                    {"index": 0, "relevance_score": 0.25},
                    {"index": 1, "relevance_score": -1.5},
                ],
            }
        )
    ),
}
"""By name, the whole response."""
