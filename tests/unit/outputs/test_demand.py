"""What structure a request demands, in the spellings of clients and engines."""

from __future__ import annotations

from typing import Any

import pytest

from router.outputs.demand import Demand, demand_of, demands_structure
from router.types import Endpoint
from tests.support.builders import request

SCHEMA = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
WEATHER = {"name": "weather", "parameters": SCHEMA}
TOOL = {"type": "function", "function": WEATHER}
JSON = Demand(json=True, object_only=True, required=("a",))
ANY_OBJECT = Demand(json=True, object_only=True)
CALLS = {"weather": ("a",)}

Fields = dict[str, Any]


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (Endpoint.CHAT, {"response_format": {"type": "json_object"}}, ANY_OBJECT),
        (
            Endpoint.CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            JSON,
        ),
        (Endpoint.CHAT, {"response_format": {"type": "json_object", "schema": SCHEMA}}, JSON),
        (
            Endpoint.CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            Demand(json=True),
        ),
        (Endpoint.COMPLETIONS, {"prompt": "x", "guided_json": SCHEMA}, JSON),
        (Endpoint.CHAT, {"guided_json": '{"type":"object"}'}, Demand(json=True)),
        (Endpoint.CHAT, {"structured_outputs": {"json": SCHEMA}}, JSON),
        (Endpoint.CHAT, {"structured_outputs": {"json_object": True}}, ANY_OBJECT),
        (Endpoint.LLAMA_COMPLETION, {"json_schema": SCHEMA}, JSON),
        (Endpoint.CHAT, {"guided_choice": ["yes", "no"]}, Demand(choices=("yes", "no"))),
        (Endpoint.CHAT, {"structured_outputs": {"choice": ["yes"]}}, Demand(choices=("yes",))),
        (
            Endpoint.RESPONSES,
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
            JSON,
        ),
        (
            Endpoint.MESSAGES,
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            JSON,
        ),
        (Endpoint.MESSAGES, {"output_format": {"type": "json_schema", "schema": SCHEMA}}, JSON),
    ],
)
def test_text_that_has_to_be_json(endpoint: Endpoint, fields: Fields, expected: Demand) -> None:
    """With the members that its schema requires, as far as that is written plainly."""
    assert demand_of(request(endpoint=endpoint, **fields)) == expected


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (Endpoint.CHAT, {"tools": [TOOL]}, Demand(tools=CALLS)),
        (Endpoint.CHAT, {"tools": [TOOL], "tool_choice": "auto"}, Demand(tools=CALLS)),
        (
            Endpoint.CHAT,
            {"tools": [TOOL], "tool_choice": "required"},
            Demand(tools=CALLS, must_call=True),
        ),
        (
            Endpoint.CHAT,
            {
                "tools": [TOOL],
                "tool_choice": {"type": "function", "function": {"name": "weather"}},
            },
            Demand(tools=CALLS, must_call=True, only="weather"),
        ),
        (
            Endpoint.CHAT,
            {"functions": [WEATHER], "function_call": {"name": "weather"}},
            Demand(tools=CALLS, must_call=True, only="weather"),
        ),
        (
            Endpoint.RESPONSES,
            {
                "tools": [{"type": "function", **WEATHER}, {"type": "web_search"}],
                "tool_choice": {"type": "function", "name": "weather"},
            },
            Demand(tools=CALLS, others=True, must_call=True, only="weather"),
        ),
        (
            Endpoint.MESSAGES,
            {
                "tools": [{"name": "weather", "input_schema": SCHEMA}],
                "tool_choice": {"type": "any"},
            },
            Demand(tools=CALLS, must_call=True),
        ),
        (
            Endpoint.MESSAGES,
            {
                "tools": [{"name": "weather", "input_schema": SCHEMA}],
                "tool_choice": {"type": "tool", "name": "weather"},
            },
            Demand(tools=CALLS, must_call=True, only="weather"),
        ),
    ],
)
def test_tools_that_may_or_must_be_called(
    endpoint: Endpoint, fields: Fields, expected: Demand
) -> None:
    """By name, with the members that their arguments must have."""
    assert demand_of(request(endpoint=endpoint, **fields)) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": []},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}, "n": 2},
        {"tools": "no list", "functions": 7, "response_format": [], "text": None},
        {"structured_outputs": None, "guided_json": None, "guided_choice": None},
    ],
)
def test_nothing_is_demanded(fields: Fields) -> None:
    """Nor looked at where several answers come."""
    assert demand_of(request(**fields)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_regex": "a+"},
        {"grammar": "root ::= x"},
        {"structured_outputs": {"regex": "(a+)+$"}},
        {"response_format": {"type": "structural_tag", "structures": []}},
    ],
)
def test_what_is_not_checked_is_demanded_all_the_same(fields: Fields) -> None:
    """Whether such an answer was cut is known."""
    assert demand_of(request(**fields)) == Demand()


def test_most_requests_are_not_looked_at() -> None:
    """The cheap look says no only where the dear one would."""
    assert not demands_structure(request(temperature=0, stream=True))
    assert demands_structure(request(tools=[TOOL]))
