"""Which requests are asked again, and with what body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.endpoints.table import OPENAI
from router.outputs.said import Said
from router.sentinel.asking import MOST_BODY, read_repeat, repeat_body, repeatable
from router.sentinel.compare import Token
from router.types import Endpoint
from tests.support.builders import request

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (Endpoint.CHAT, {"temperature": 0}, True),
        (Endpoint.CHAT, {"temperature": 0.0, "tools": [TOOL]}, True),
        (Endpoint.MESSAGES, {"temperature": 0}, True),
        (Endpoint.RESPONSES, {"temperature": 0}, True),
        (Endpoint.CHAT, {}, False),
        (Endpoint.CHAT, {"temperature": None}, False),
        (Endpoint.CHAT, {"temperature": False}, False),
        (Endpoint.CHAT, {"temperature": 0.1}, False),
        (Endpoint.CHAT, {"temperature": 0, "n": 2}, False),
        (Endpoint.CHAT, {"temperature": 0, "pad": "x" * MOST_BODY}, False),
        (Endpoint.RESPONSES, {"temperature": 0, "previous_response_id": "r1"}, False),
        (Endpoint.RESPONSES, {"temperature": 0, "tools": [{"type": "web_search"}]}, False),
        (Endpoint.EMBEDDINGS, {"temperature": 0}, False),
    ],
)
def test_what_is_asked_again(
    endpoint: Endpoint,
    fields: dict[str, Any],
    expected: bool,  # noqa: FBT001
) -> None:
    """What decodes greedily, has one answer, and changes nothing at its engine."""
    assert repeatable(request(endpoint=endpoint, **fields)) is expected


def test_the_same_is_asked_and_log_probabilities_where_they_are_told() -> None:
    """Nothing else changes but that nothing is stored."""
    asked: dict[str, Any] = {"temperature": 0, "stream": True, "stop": ["x"]}
    body = repeat_body(request(**asked), logprobs=True)
    assert body is not None
    sent = json.loads(body)
    assert {name: sent[name] for name in asked} == asked
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 2)
    plain = repeat_body(request(**asked), logprobs=False)
    assert plain is not None
    assert "logprobs" not in json.loads(plain)
    stored = repeat_body(request(endpoint=Endpoint.RESPONSES, temperature=0), logprobs=True)
    assert stored is not None
    assert json.loads(stored)["store"] is False


def test_a_body_that_cannot_be_written_is_not_asked() -> None:
    """Half of a surrogate is no text in UTF-8."""
    odd = request(body=b'{"model":"m","temperature":0,"x":"\\ud800"}')
    assert repeat_body(odd, logprobs=False) is None


def choice(text: str, finish: str | None, key: str = "delta") -> dict[str, Any]:
    """A choice with a token's log probabilities."""
    top = [{"token": text, "logprob": -0.5}, {"token": "x", "logprob": -1.0}]
    logprobs = {"content": [{"token": text, "top_logprobs": top}]}
    return {"index": 0, key: {"content": text}, "logprobs": logprobs, "finish_reason": finish}


def test_answers_are_read_whole_and_in_events() -> None:
    """With their tokens; one that tells no end is not read."""
    whole = json.dumps({"choices": [choice("ab", "stop", "message")]}).encode()
    read = read_repeat(OPENAI, whole, streamed=False)
    assert read is not None
    assert (read.said, read.tokens) == (Said("ab", finish="stop"), (Token("ab", "x", 0.5),))
    events = [choice("a", None), choice("b", "stop")]
    stream = b"".join(b"data: %b\n\n" % json.dumps({"choices": [of]}).encode() for of in events)
    read = read_repeat(OPENAI, stream + b"data: [DONE]\n\n", streamed=True)
    assert read is not None
    assert read.said == Said("ab", finish="stop")
    assert [token.text for token in read.tokens] == ["a", "b"]
    assert read_repeat(OPENAI, b"{}", streamed=False) is None
    assert read_repeat(OPENAI, b"<html>", streamed=False) is None
