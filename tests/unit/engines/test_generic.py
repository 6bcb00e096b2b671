"""A server of which nothing is known but the API."""

from __future__ import annotations

import pytest

from router.engines.base import Ask, Reading
from router.engines.generic import Generic
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from tests.support.builders import request

ADAPTER = Generic()


def test_nothing_is_added_to_a_request() -> None:
    """An unknown server may refuse unknown fields."""
    asked = request(stream=True)
    assert ADAPTER.prepare(asked) == Ask(asked.body)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"usage": {"completion_tokens": 5, "prompt_tokens": 7}}, Reading(5, 7)),
        ({"usage": {"completion_tokens": "5"}}, Reading()),
        ({"usage": None}, Reading()),
        ({}, Reading()),
    ],
)
def test_tokens_are_read_where_there_is_usage(answer: dict[str, object], expected: Reading) -> None:
    """Acceptance is unknown."""
    assert ADAPTER.read(request(), answer) == expected


def test_tokens_of_several_choices_say_nothing_about_one() -> None:
    """Time per token of two interleaved answers would be half of what each has."""
    usage = {"usage": {"completion_tokens": 8, "prompt_tokens": 7}}
    assert ADAPTER.read(request(n=2), usage) == Reading(None, 7)


def test_no_request_is_refused() -> None:
    """Nothing is known to fail."""
    assert ADAPTER.refusal(request(logprobs=True, min_p=0.1), speculative=True) is None


def test_its_load_is_read_from_its_metrics() -> None:
    """As far as it tells."""
    assert Generic().gauges("sglang:num_running_reqs 2\n") == ReplicaGauges(2)
    assert Generic().gauges("") == UNKNOWN
