"""Answers that are what was demanded, and answers that are not."""

from __future__ import annotations

import pytest

from router.outputs.demand import Demand
from router.outputs.judge import UNKNOWN, Judged, judged, readable
from router.outputs.said import Call, Said

TOOLS = Demand(tools={"weather": ("city",)})
MUST = Demand(tools={"weather": ("city",)}, must_call=True, only="weather")
JSON = Demand(json=True, object_only=True, required=("a",))


def called(arguments: str | None, name: str = "weather") -> Said:
    """An answer that calls a tool."""
    return Said(calls=(Call(name, arguments),), finish="tool_calls")


@pytest.mark.parametrize(
    ("said", "valid"),
    [
        (called('{"city": "Rome"}'), True),
        (called('{"city": "Rome", "unit": "C"}'), True),
        (called('{"city": "Ro'), False),
        (called('{"city": "Rome"}}'), False),
        (called('"Rome"'), False),
        (called('{"town": "Rome"}'), False),
        (called(""), False),
        (called('{"city": 1}', name="wether"), False),
        (called(None), True),
        (Said(calls=(Call("weather", '{"city":1}'), Call("weather", "{")), finish="stop"), False),
    ],
)
def test_calls(said: Said, valid: bool) -> None:  # noqa: FBT001
    """Each has to name a tool that was offered, with an object that has what is required."""
    assert judged(TOOLS, said) == Judged(valid, truncated=False)


def test_a_call_that_nobody_had_to_make() -> None:
    """Text is as good, and may be cut like any text."""
    assert judged(TOOLS, Said("Hello", finish="stop")) == UNKNOWN
    assert judged(TOOLS, Said("Hello", finish="length")) == UNKNOWN


def test_a_call_that_had_to_be_made() -> None:
    """By no other name, and text does not do."""
    assert judged(MUST, called('{"city": 1}')).valid is True
    assert judged(MUST, called('{"city": 1}', name="other")).valid is False
    assert judged(MUST, Said("Hello", finish="stop")).valid is False


def test_a_tool_of_which_nothing_is_known() -> None:
    """Its arguments are an object, like any other's."""
    demand = Demand(tools={"weather": ("city",)}, others=True)
    assert judged(demand, called("{}", name="search")).valid is True
    assert judged(demand, called("{", name="search")).valid is False


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"a": 1}', True),
        (' {"a": "\\ud83d"}\n', True),
        ('{"a": 100000000000000000000000}', True),
        ('{"b": 1}', False),
        ('{"a": NaN}', False),
        ("[1]", False),
        ('```json\n{"a": 1}\n```', False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_json(text: str, valid: bool) -> None:  # noqa: FBT001
    """As any reader of JSON would have it."""
    assert judged(JSON, Said(text, finish="stop")) == Judged(valid, truncated=False)


def test_json_of_any_kind() -> None:
    """Where no object is demanded a list will do."""
    assert judged(Demand(json=True), Said("[1]", finish="stop")).valid is True
    assert readable("7") == 7


def test_choices() -> None:
    """One of them, and nothing else."""
    demand = Demand(choices=("yes", "no"))
    assert judged(demand, Said("yes", finish="stop")).valid is True
    assert judged(demand, Said("maybe", finish="stop")).valid is False


@pytest.mark.parametrize("finish", ["length", "max_tokens", "max_output_tokens", "limit"])
def test_what_was_cut_is_neither(finish: str) -> None:
    """Nobody knows what it would have become."""
    assert judged(JSON, Said('{"a"', finish=finish)) == Judged(None, truncated=True)


def test_an_end_that_is_not_the_model_s() -> None:
    """Of an answer that was filtered or aborted nothing is said; of one without an end, less."""
    assert judged(JSON, Said('{"a"', finish="abort")) == Judged(None, truncated=False)
    assert judged(JSON, Said('{"a"')) == UNKNOWN


def test_what_nobody_checks() -> None:
    """Only its end is known."""
    assert judged(Demand(), Said("aaa", finish="stop")) == Judged(None, truncated=False)
