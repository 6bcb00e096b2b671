"""Events that are taken apart for their steps."""

from __future__ import annotations

from typing import Any

import pytest

from router.engines.rule import StreamCount
from router.relay.tally import Tally


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    """An event of one choice."""
    return {"choices": [{"index": 0, "delta": delta or {}, **choice}]}


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        (chunk({"role": "assistant", "content": ""}), 0),
        (chunk({"role": "assistant", "content": "Hi"}), 1),
        (chunk({"role": "assistant", "content": ""}, finish_reason="stop"), 1),
        (chunk({"content": "Hi"}), 1),
        (chunk({"content": ""}), 1),
        (chunk({"tool_calls": [{"index": 0}]}), 1),
        ({"choices": [{"text": "Hi"}]}, 1),
        ({"choices": [{"text": ""}]}, 1),
        ({"choices": [], "usage": {"completion_tokens": 3}}, 0),
        ({"choices": ["x"]}, 0),
        ({"choices": None}, 0),
        ({}, 0),
    ],
)
def test_an_event_with_a_choice_counts_but_for_the_opening_one(
    members: dict[str, Any], counts: int
) -> None:
    """A step may give no text."""
    assert Tally().see(members) == counts


@pytest.mark.parametrize(
    ("members", "empty"),
    [(chunk(finish_reason="stop"), True), (chunk({"content": "!"}, finish_reason="stop"), False)],
)
def test_the_end_is_kept(members: dict[str, Any], *, empty: bool) -> None:
    """With whether it carried output."""
    tally = Tally()
    tally.see(members)
    assert tally.counted(7) == StreamCount(7, "stop", finish_empty=empty)


@pytest.mark.parametrize(
    ("members", "reasoned"),
    [
        (chunk({"reasoning": "hm"}), True),
        (chunk({"reasoning_content": "hm"}), True),
        (chunk({"reasoning_content": None, "content": "x"}), False),
        ({"choices": [], "usage": {"reasoning_tokens": 3}}, True),
        ({"choices": [], "usage": {"completion_tokens_details": {"reasoning_tokens": 3}}}, True),
        ({"choices": [], "usage": {"reasoning_tokens": 0}}, False),
    ],
)
def test_reasoning_shows_in_events_and_in_usage(members: dict[str, Any], *, reasoned: bool) -> None:
    """Wherever it is told apart, a parser has stood between steps and events."""
    tally = Tally()
    tally.see(members)
    assert tally.counted(0).reasoning is reasoned


@pytest.mark.parametrize(
    ("event", "reasoned"),
    [
        (b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n', True),
        (b'data: {"choices":[{"delta":{"reasoning": "hm"}}]}\n\n', True),
        (b'data: {"choices":[{"delta":{"reasoning_content":null,"content":"x"}}]}\n\n', False),
        (b'data: {"choices":[{"delta":{"content":"\\"reasoning\\":\\"x\\""}}]}\n\n', False),
    ],
)
def test_a_glance_sees_reasoning_without_taking_apart(event: bytes, *, reasoned: bool) -> None:
    """Quotes inside a string are escaped, so that no text is taken for it."""
    tally = Tally()
    tally.glance(event)
    assert tally.counted(0).reasoning is reasoned
