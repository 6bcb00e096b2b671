"""What a request asks of its answer's shape."""

from __future__ import annotations

from typing import Any

import pytest

from router.simfleet.answer import Door
from router.simfleet.asking import asked_of
from router.simfleet.settings import Kind

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("first", "second")]


@pytest.mark.parametrize(
    ("door", "body", "limit"),
    [
        (Door.CHAT, {"max_tokens": 5, "max_completion_tokens": 7}, 7),
        (Door.CHAT, {"max_tokens": 5}, 5),
        (Door.COMPLETIONS, {"n_predict": 5}, 5),
        (Door.RESPONSES, {"max_output_tokens": 5, "max_tokens": 9}, 5),
        (Door.MESSAGES, {"max_tokens": 5}, 5),
        (Door.CHAT, {"max_tokens": -1}, None),
        (Door.CHAT, {}, None),
    ],
)
def test_limits(door: Door, body: dict[str, Any], limit: int | None) -> None:
    """Each dialect has its own name for it."""
    assert asked_of(door, body, Kind.LLAMACPP).max_tokens == limit


@pytest.mark.parametrize(
    ("choice", "tool"),
    [
        ("required", "first"),
        ({"type": "function", "function": {"name": "second"}}, "second"),
        ("auto", None),
        ("none", None),
        (None, None),
    ],
)
def test_only_a_forced_tool_is_called(choice: object, tool: str | None) -> None:
    """A simulated model decides nothing."""
    asked = asked_of(Door.CHAT, {"tools": TOOLS, "tool_choice": choice}, Kind.VLLM)
    assert (asked.tool, asked.offers_tools) == (tool, True)


def test_fields_of_another_engine_mean_nothing() -> None:
    """Engines ignore fields that they do not know."""
    body = {
        "return_token_ids": True,
        "return_spec_tokens_details": True,
        "return_meta_info": True,
        "timings_per_token": True,
    }
    told = {}
    for kind in Kind:
        asked = asked_of(Door.CHAT, body, kind)
        values = (asked.token_ids, asked.spec_details, asked.meta_info, asked.timings_per_token)
        told[kind] = values
    assert told == {
        Kind.VLLM: (True, False, False, False),
        Kind.SGLANG: (False, True, True, False),
        Kind.LLAMACPP: (False, False, False, True),
    }
