"""What an application sends along each time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.application import (
    client_kind,
    header_values,
    messages_of,
    system_head,
    texts_of,
    tool_names,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
NAMES = ("system", "instructions", "messages", "input", "tools", "functions", "content", "role")


def says(role: str, content: Any) -> dict[str, Any]:
    """One message."""
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"messages": [says("system", "abc"), says("user", "x")]}, "abc"),
        ({"messages": [says("system", "a"), says("developer", "b"), says("user", "x")]}, "a\nb"),
        ({"messages": [says("user", "x"), says("system", "late")]}, ""),
        ({"messages": [says("system", [{"type": "text", "text": "a"}, "b", 3])]}, "a\nb"),
        ({"system": "anthropic", "messages": [says("user", "x")]}, "anthropic"),
        ({"system": [{"type": "text", "text": "parts"}]}, "parts"),
        ({"instructions": "responses", "input": [says("user", "x")]}, "responses"),
        ({"prompt": "bare"}, ""),
        ({"messages": says("system", "no list")}, ""),
        ({}, ""),
    ],
)
def test_the_system_prompt_is_found_in_every_dialect(fields: Any, expected: str) -> None:
    """Messages of the system count up to the first turn of anyone else."""
    assert system_head(fields, 100) == expected


def test_no_more_than_asked_for_is_read() -> None:
    """However long it is, and of however many parts."""
    assert system_head({"messages": [says("system", "ab" * 10**6)]}, 5) == "ababa"
    assert system_head({"messages": [says("system", ["ab"] * 10**5)]}, 5) == "ab\nab"


def test_tools_are_read_in_every_dialect() -> None:
    """Nested or flat, and the older functions; what has no name is left out."""
    nested = {"type": "function", "function": {"name": "a"}}
    assert tool_names({"tools": [nested, {"name": "b"}, {}, 5, {"function": 1}]}) == ["a", "b"]
    assert tool_names({"functions": [{"name": "c" * 1000}]}) == ["c" * 64]
    assert tool_names({"tools": "all"}) == []
    assert len(tool_names({"tools": [nested] * 10_000})) == 64


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("OpenAI/Python 2.8.0", "openai-python"),
        ("AsyncOpenAI/Python 1.0", "openai-python"),
        ("OpenAI/JS 5.1", "openai-node"),
        ("langchain-core/0.3", "langchain"),
        ("curl/8.5.0", "curl"),
        ("Mozilla/5.0 (X11)", "browser"),
        ("python-httpx/0.28", "other"),
        ("", "other"),
    ],
)
def test_clients_are_known_by_their_family(agent: str, expected: str) -> None:
    """Versions do not matter."""
    assert client_kind((("Host", "h"), ("user-Agent", agent))) == expected
    assert client_kind(()) == "other"


def test_every_line_of_a_header_is_seen_up_to_a_bound() -> None:
    """In their order, whatever the case."""
    headers = (("X-A", "1"), ("x-b", "2"), ("x-a", "y" * 10**6))
    assert [len(value) for value in header_values(headers, "x-a")] == [1, 1024]


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5), JSON)
def test_any_json_is_read(fields: dict[str, Any], content: Any) -> None:
    """Nothing raises, and what comes back is text."""
    assert len(system_head(fields, 30)) <= 30
    assert all(isinstance(text, str) for text in (*tool_names(fields), *texts_of(content)))
    assert isinstance(messages_of(fields), list)
