"""What answers say, in each dialect, whole and in events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.endpoints.dialect import Dialect
from router.endpoints.table import ANTHROPIC, LLAMA, OPENAI, OTHER, RESPONSES
from router.outputs.said import MOST_SAID, Call, Said, Words, hear, said_by

Members = dict[str, Any]


def delta(finish: str | None = None, **part: Any) -> Members:
    """An event of a chat."""
    return {"choices": [{"index": 0, "delta": part, "finish_reason": finish}]}


def calling(arguments: str, index: int = 0, **more: Any) -> Members:
    """An event with a piece of a call's arguments."""
    function = {"arguments": arguments, **more}
    return delta(tool_calls=[{"index": index, "function": function}])


def block(index: int, **of: Any) -> Members:
    """A block of Messages that begins."""
    return {"type": "content_block_start", "index": index, "content_block": of}


def heard(dialect: Dialect, *events: Members, most: int = MOST_SAID) -> Said | None:
    """What events say."""
    words = Words(most)
    for members in events:
        hear(dialect, words, members)
    return words.said()


MESSAGE_END = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
OUTPUT = [
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "content": [{"type": "output_text", "text": "ok"}]},
    {"type": "function_call", "name": "f", "arguments": '{"a":1}'},
]


@pytest.mark.parametrize(
    ("dialect", "events", "expected"),
    [
        (
            OPENAI,
            [
                delta(role="assistant", content=""),
                delta(reasoning_content="hm"),
                delta(content="o"),
                delta(content="k"),
                delta("stop"),
                {"choices": [], "usage": {"completion_tokens": 2}},
            ],
            Said("ok", finish="stop"),
        ),
        (
            OPENAI,
            [
                calling("", name="f"),
                calling('{"a"'),
                calling(":1}"),
                calling("{}", 1, name="g"),
                delta("tool_calls"),
            ],
            Said(calls=(Call("f", '{"a":1}'), Call("g", "{}")), finish="tool_calls"),
        ),
        (
            OPENAI,
            [
                {"choices": [{"index": 1, "text": "other"}]},
                {"choices": [{"index": 0, "text": "ok", "finish_reason": "length"}]},
            ],
            Said("ok", finish="length"),
        ),
        (
            OPENAI,
            [delta(function_call={"name": "f", "arguments": "{"}), delta("function_call")],
            Said(calls=(Call("f", "{"),), finish="function_call"),
        ),
        (
            ANTHROPIC,
            [
                block(0, type="thinking", thinking=""),
                {"type": "content_block_delta", "index": 0, "delta": {"thinking": "hm"}},
                block(1, type="text", text=""),
                {"type": "content_block_delta", "index": 1, "delta": {"text": "ok"}},
                block(2, type="tool_use", name="f", input={}),
                {"type": "content_block_delta", "index": 2, "delta": {"partial_json": '{"a"'}},
                {"type": "content_block_delta", "index": 2, "delta": {"partial_json": ":1}"}},
                block(3, type="tool_use", name="g", input={}),
                MESSAGE_END,
            ],
            Said("ok", (Call("f", '{"a":1}'), Call("g", "{}")), "tool_use"),
        ),
        (
            RESPONSES,
            [
                {"type": "response.output_text.delta", "delta": "ok"},
                {
                    "type": "response.completed",
                    "response": {"output": OUTPUT, "status": "completed"},
                },
            ],
            Said("ok", (Call("f", '{"a":1}'),), "completed"),
        ),
        (
            LLAMA,
            [{"content": "o"}, {"content": "k", "stop": True, "stop_type": "eos"}],
            Said("ok", finish="eos"),
        ),
        (OTHER, [delta(content="ok")], Said()),
    ],
)
def test_streams(dialect: Dialect, events: list[Members], expected: Said) -> None:
    """Text without what was thought, calls in their order, and the engine's word for the end."""
    assert heard(dialect, *events) == expected


@pytest.mark.parametrize(
    ("dialect", "answer", "expected"),
    [
        (
            OPENAI,
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "content": None,
                            "tool_calls": [
                                {"id": "1", "function": {"name": "f", "arguments": '{"a":1}'}},
                                {"id": "2", "function": {"name": "g", "arguments": {"b": 2}}},
                                {"id": "3", "custom": {"name": "h", "input": "free"}},
                            ],
                        },
                    }
                ]
            },
            Said(
                calls=(Call("f", '{"a":1}'), Call("g", '{"b":2}'), Call("h", None)),
                finish="tool_calls",
            ),
        ),
        (
            ANTHROPIC,
            {
                "type": "message",
                "content": [
                    {"type": "text", "text": "ok"},
                    {"type": "tool_use", "name": "f", "input": {"a": 1}},
                ],
                "stop_reason": "tool_use",
            },
            Said("ok", (Call("f", '{"a":1}'),), "tool_use"),
        ),
        (
            RESPONSES,
            {
                "object": "response",
                "output": OUTPUT[:2],
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            },
            Said("ok", finish="max_output_tokens"),
        ),
        (LLAMA, {"content": "ok", "stop_type": "limit"}, Said("ok", finish="limit")),
    ],
)
def test_whole_answers(dialect: Dialect, answer: Members, expected: Said) -> None:
    """The same, all at once."""
    assert said_by(dialect, answer) == expected


def test_calls_without_numbers_belong_to_the_last() -> None:
    """Some servers number no calls."""
    events = [
        delta(tool_calls=[{"function": {"name": "f", "arguments": '{"a"'}}]),
        delta(tool_calls=[{"function": {"arguments": ":1}"}}]),
    ]
    assert heard(OPENAI, *events) == Said(calls=(Call("f", '{"a":1}'),))


def test_more_than_is_kept_is_unknown() -> None:
    """However it comes: as text, or as many calls without any."""
    text = [delta(content="12345"), delta(content="12345")]
    assert heard(OPENAI, *text, most=10) == Said("1234512345")
    assert heard(OPENAI, *text, delta(content="1"), most=10) is None
    many = [{"index": index, "function": {"name": ""}} for index in range(2000)]
    assert heard(OPENAI, delta(tool_calls=many)) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("choices", "delta", "message", "index", "text", "content", "tool_calls"),
                    *("function", "name", "arguments", "finish_reason", "type", "content_block"),
                    *("response", "output", "status", "incomplete_details", "input", "custom"),
                    *("function_call", "partial_json", "object", "stop_reason", "stop_type"),
                ]
            ),
            inner | st.sampled_from(["message", "tool_use", "content_block_start", "response"]),
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(st.sampled_from([OPENAI, LLAMA, ANTHROPIC, RESPONSES]), _json)
def test_nothing_that_an_engine_may_write_is_too_odd(dialect: Dialect, value: object) -> None:
    """Whatever is no answer says nothing."""
    if isinstance(value, dict):
        said_by(dialect, value)
