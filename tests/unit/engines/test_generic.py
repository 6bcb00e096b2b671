"""A server of which nothing is known but the API."""

from __future__ import annotations

import pytest

from policies.types import SpecUsage
from router.engines.base import Ask, Reading
from router.engines.generic import Gateway, Generic
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


RECORD = {"num_draft_tokens": 45, "num_accepted_draft_tokens": 25, "num_spec_steps": 15}
PREDICTED = {
    "usage": {
        "completion_tokens": 41,
        "completion_tokens_details": {
            "accepted_prediction_tokens": 25,
            "rejected_prediction_tokens": 20,
        },
    }
}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"usage": {"completion_tokens": 41}, "metrics": {"speculative_decoding": RECORD}},
            Reading(41, spec=SpecUsage(16, 45, 25)),
        ),
        (
            {"usage": {"completion_tokens": 41}, "metrics": {"speculative_decoding": {}}},
            Reading(41, unread=("metrics.speculative_decoding",)),
        ),
        (
            {"timings": {"predicted_n": 120, "draft_n": 150, "draft_n_accepted": 80}},
            Reading(120, spec=SpecUsage(40, 150, 80)),
        ),
        (PREDICTED, Reading(41)),
    ],
    ids=["vLLM", "broken", "llama.cpp", "predicted outputs"],
)
def test_a_record_that_is_known_is_read(answer: dict[str, object], expected: Reading) -> None:
    """By its place, whatever the server is; but not what may mean something else."""
    assert ADAPTER.read(request(), answer) == expected


def test_a_gateway_is_believed_where_somebody_says_that_it_is_one() -> None:
    """It counts drafts in OpenAI's fields for predicted outputs, beside any record it passes on."""
    assert Gateway().read(request(), PREDICTED) == Reading(41, spec=SpecUsage(16, 45, 25))
    both = {**PREDICTED, "metrics": {"speculative_decoding": {**RECORD, "num_spec_tokens": 3}}}
    assert Gateway().read(request(), both) == Reading(
        41, spec=SpecUsage(16, 45, 25, num_speculative_tokens=3)
    )


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
