"""Every dialect: what its events are, and errors that the official clients understand."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from router.endpoints.anthropic import error_type
from router.endpoints.dialect import CONTENT, END, ERROR, MORE, Dialect
from router.endpoints.table import ANTHROPIC, LLAMA, OPENAI, OTHER, RESPONSES
from router.errors import Reason, RequestError
from tests.support.official import anthropic_reading, openai_reading

OUTPUT = CONTENT | MORE
FAILED = ERROR | END
STREAM = "text/event-stream"
MESSAGE = 'The "engine" broke off: 断线 😀\nreally.'
BROKE = RequestError(Reason.UPSTREAM_PROTOCOL, MESSAGE)


@pytest.mark.parametrize(
    ("dialect", "members", "expected"),
    [
        (OPENAI, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}, MORE),
        (OPENAI, {"choices": [{"delta": {"content": "x"}}]}, OUTPUT),
        (OPENAI, {"choices": [{"delta": {"reasoning": "x"}}]}, OUTPUT),
        (OPENAI, {"choices": [{"delta": {"tool_calls": [{}]}}]}, OUTPUT),
        (OPENAI, {"choices": [{"delta": {}}, {"delta": {"refusal": "x"}}]}, OUTPUT),
        (OPENAI, {"choices": [{"text": "x"}]}, OUTPUT),
        (OPENAI, {"choices": [{"text": ""}]}, MORE),
        (OPENAI, {"choices": [None]}, MORE),
        (OPENAI, {"choices": []}, 0),
        (OPENAI, {"choices": "x"}, 0),
        (OPENAI, {"error": {"message": "x"}}, ERROR),
        (OPENAI, {"object": "error", "message": "x"}, ERROR),
        (OPENAI, {"error": {}, "choices": [{"text": "x"}]}, OUTPUT),
        (LLAMA, {"content": "x", "stop": False}, OUTPUT),
        (LLAMA, {"content": "", "stop": False}, MORE),
        (LLAMA, {"content": "", "stop": True}, MORE | END),
        (LLAMA, {"content": "x", "stop": True}, OUTPUT | END),
        (LLAMA, {"error": {"code": 500}}, ERROR),
        (RESPONSES, {"type": "response.created", "response": {}}, 0),
        (RESPONSES, {"type": "response.output_text.delta", "delta": "x"}, OUTPUT),
        (RESPONSES, {"type": "response.output_text.delta", "delta": ""}, 0),
        (RESPONSES, {"type": "response.reasoning_text.delta", "delta": "x"}, OUTPUT),
        (RESPONSES, {"type": "response.reasoning_summary_text.delta", "delta": "x"}, OUTPUT),
        (RESPONSES, {"type": "response.function_call_arguments.delta", "delta": "{"}, OUTPUT),
        (RESPONSES, {"type": "response.output_item.added", "item": {"type": "message"}}, 0),
        (
            RESPONSES,
            {"type": "response.output_item.added", "item": {"type": "function_call"}},
            OUTPUT,
        ),
        (RESPONSES, {"type": "response.output_item.added", "item": None}, 0),
        (RESPONSES, {"type": "response.output_text.done", "text": "x"}, 0),
        (RESPONSES, {"type": "response.completed", "response": {}}, END),
        (RESPONSES, {"type": "response.incomplete", "response": {}}, END),
        (RESPONSES, {"type": "response.failed", "response": {}}, FAILED),
        (RESPONSES, {"type": "error", "message": "x"}, FAILED),
        (RESPONSES, {"error": {"message": "x"}}, FAILED),
        (RESPONSES, {"type": 7}, 0),
        (ANTHROPIC, {"type": "message_start", "message": {}}, 0),
        (ANTHROPIC, {"type": "ping"}, 0),
        (ANTHROPIC, {"type": "content_block_start", "content_block": {"type": "text"}}, 0),
        (
            ANTHROPIC,
            {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}},
            OUTPUT,
        ),
        (ANTHROPIC, {"type": "content_block_delta", "delta": {"text": "x"}}, OUTPUT),
        (ANTHROPIC, {"type": "content_block_delta", "delta": {"thinking": "x"}}, OUTPUT),
        (ANTHROPIC, {"type": "content_block_delta", "delta": {"partial_json": "{"}}, OUTPUT),
        (ANTHROPIC, {"type": "content_block_delta", "delta": {"signature": "x"}}, 0),
        (ANTHROPIC, {"type": "content_block_delta", "delta": None}, 0),
        (ANTHROPIC, {"type": "message_delta", "usage": {}}, 0),
        (ANTHROPIC, {"type": "message_stop"}, END),
        (ANTHROPIC, {"type": "error", "error": {}}, FAILED),
        (ANTHROPIC, {"error": {"message": "x"}}, FAILED),
        (OTHER, {"choices": [{"text": "x"}], "error": "x"}, 0),
    ],
)
def test_what_an_event_is(dialect: Dialect, members: dict[str, Any], expected: int) -> None:
    """Output, an end, an error, or nothing that counts."""
    assert dialect.look(members) == expected


@pytest.mark.parametrize("dialect", [OPENAI, LLAMA, RESPONSES, ANTHROPIC], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "value", [None, 7, "x", [], {}, [None], {"type": []}, {"delta": 1}, {"error": "x"}]
)
def test_no_value_of_a_member_is_too_odd(dialect: Dialect, value: Any) -> None:
    """Engines change; an event that is not understood counts for nothing."""
    names = ("choices", "type", "delta", "item", "error", "content_block", "message", "response")
    for name in names:
        dialect.look({name: value})
        dialect.look({"type": "response.output_item.added", name: value})
        dialect.look({"type": "content_block_start", name: value})
        dialect.figures({name: value})


def test_figures_are_found_where_each_dialect_puts_them() -> None:
    """Under the names that whole answers have at the top."""
    usage = {"input_tokens": 1}
    assert OPENAI.figures({"usage": usage})["usage"] == usage
    done = {"type": "response.completed", "response": {"usage": usage}, "timings": {"a": 1}}
    assert RESPONSES.figures(done)["usage"] == usage
    assert RESPONSES.figures(done)["timings"] == {"a": 1}
    started = {"type": "message_start", "message": {"usage": usage}}
    assert ANTHROPIC.figures(started)["usage"] == usage
    assert ANTHROPIC.figures({"type": "message_delta", "usage": usage})["usage"] == usage


@pytest.mark.parametrize("dialect", [OPENAI, LLAMA, RESPONSES, OTHER], ids=lambda d: d.name)
@pytest.mark.parametrize("reason", Reason)
def test_openai_clients_read_every_error(dialect: Dialect, reason: Reason) -> None:
    """The exception belongs to the status, and shows message, code and parameter."""
    error = RequestError(reason, MESSAGE, param="model")
    client = openai_reading(error.http_status, dialect.error_body(error, "req"))
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(model="m", input="x")
    assert caught.value.status_code == error.http_status
    assert (caught.value.code, caught.value.param) == (error.code, "model")
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"] == MESSAGE


@pytest.mark.parametrize("reason", Reason)
def test_anthropic_clients_read_every_error(reason: Reason) -> None:
    """With the kind that Anthropic's API has for the status."""
    error = RequestError(reason, MESSAGE)
    body = ANTHROPIC.error_body(error, "req_7")
    client = anthropic_reading(error.http_status, body)
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.messages.create(model="m", max_tokens=1, messages=[])
    assert caught.value.status_code == error.http_status
    assert caught.value.type == error_type(error.http_status)
    assert caught.value.api_message == MESSAGE
    assert json.loads(body)["request_id"] == "req_7"
    assert "request_id" not in json.loads(ANTHROPIC.error_body(error))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_kinds_of_errors_by_status(status: int, expected: str) -> None:
    """A reason that is added later has its kind at once."""
    assert error_type(status) == expected


@pytest.mark.parametrize("dialect", [OPENAI, LLAMA, OTHER], ids=lambda d: d.name)
@pytest.mark.parametrize("cut", [b"", b"data: {}", b": half a com"])
def test_a_broken_chat_stream_raises(dialect: Dialect, cut: bytes) -> None:
    """After what came, even if that ends inside an event."""
    sent = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' + cut
    ending = dialect.error_ending(BROKE)
    assert ending.endswith(b"\n\ndata: [DONE]\n\n")
    stream = openai_reading(200, sent + ending, STREAM).chat.completions.create(
        model="m", messages=[], stream=True
    )
    assert next(stream).choices[0].delta.content == "x"
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)


def test_a_broken_stream_of_responses_raises() -> None:
    """The event has the members that are documented, and the one that the client raises."""
    ending = RESPONSES.error_ending(BROKE, request_id="req", sequence=5)
    name, data = ending.strip().split(b"\n")
    assert name == b"event: error"
    members = json.loads(data.removeprefix(b"data: "))
    assert (members["type"], members["sequence_number"]) == ("error", 5)
    assert (members["message"], members["code"]) == (MESSAGE, "upstream_protocol")
    event = openai.types.responses.ResponseErrorEvent.model_validate(members)
    assert event.message == MESSAGE
    stream = openai_reading(200, ending, STREAM).responses.create(model="m", input="", stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        next(stream)


def test_a_broken_stream_of_messages_raises() -> None:
    """With Anthropic's kind, message and the name of the request."""
    started = b'event: ping\ndata: {"type":"ping"}\n\n'
    ending = ANTHROPIC.error_ending(BROKE, request_id="req_7")
    assert b"message_stop" not in ending
    stream = anthropic_reading(200, started + ending, STREAM).messages.create(
        model="m", max_tokens=1, messages=[], stream=True
    )
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(stream)
    assert (caught.value.type, caught.value.api_message) == ("api_error", MESSAGE)
    assert caught.value.body == json.loads(ANTHROPIC.error_body(BROKE, "req_7"))
