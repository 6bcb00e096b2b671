"""llama.cpp's dialect."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import SpecUsage
from router.engines.base import Ask, Reading
from router.engines.llamacpp import LlamaCpp
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.types import Endpoint
from tests.support.builders import request

ADAPTER = LlamaCpp()
USAGE = {"prompt_tokens": 30, "completion_tokens": 120}


def test_nothing_has_to_be_asked_for() -> None:
    """Timings come with every answer, so the bytes stay the client's."""
    asked = request(stream=True)
    assert ADAPTER.prepare(asked) == Ask(asked.body)


@pytest.mark.parametrize(
    ("timings", "spec"),
    [
        ({"predicted_n": 120, "draft_n": 150, "draft_n_accepted": 80}, SpecUsage(40, 150, 80)),
        ({"predicted_n": 120}, SpecUsage(120, 0, 0)),
        ({"predicted_n": 120, "draft_n": 6}, SpecUsage(120, 6, 0)),
        ({"predicted_n": 0}, SpecUsage(0, 0, 0)),
    ],
    ids=["drafted", "nothing drafted", "nothing accepted", "no token"],
)
def test_steps_are_the_tokens_that_no_draft_gave(
    timings: dict[str, object], spec: SpecUsage
) -> None:
    """Absent draft counts are a measured zero: llama.cpp leaves them out when nothing drafted."""
    tokens = timings["predicted_n"]
    assert ADAPTER.read(request(), {"timings": timings, "usage": USAGE}) == Reading(
        tokens=tokens if isinstance(tokens, int) else None, prompt_tokens=30, spec=spec
    )


@pytest.mark.parametrize(
    ("timings", "unread"),
    [
        ({"predicted_n": 9, "draft_n": "x", "draft_n_accepted": 1}, "timings.draft_n"),
        ({"predicted_n": 9, "draft_n": -1}, "timings.draft_n"),
        ({"predicted_n": 9, "draft_n": None}, "timings.draft_n"),
        ({"predicted_n": 9, "draft_n": 3, "draft_n_accepted": 4}, "timings.draft_n"),
        ({"predicted_n": 9, "draft_n_accepted": 4}, "timings.draft_n:accepted_undrafted"),
        ({"predicted_n": 9, "draft_n": 9, "draft_n_accepted": 9}, "timings.draft_n_accepted"),
        ({"predicted_n": 9, "draft_n": 20, "draft_n_accepted": 12}, "timings.draft_n_accepted"),
        ({"predicted_n": 0, "draft_n": 2, "draft_n_accepted": 1}, "timings.draft_n_accepted"),
    ],
)
def test_figures_that_contradict_themselves_are_unread(
    timings: dict[str, object], unread: str
) -> None:
    """A record that cannot be true is a gap with a name; the tokens are still known."""
    reading = ADAPTER.read(request(), {"timings": timings, "usage": USAGE})
    assert (reading.tokens, reading.spec, reading.unread) == (
        timings["predicted_n"],
        None,
        (unread,),
    )


@pytest.mark.parametrize("answer", [{"usage": USAGE}, {"usage": USAGE, "timings": [1]}])
def test_an_answer_without_timings_is_a_gap(answer: dict[str, object]) -> None:
    """Tokens come from usage then."""
    assert ADAPTER.read(request(), answer) == Reading(120, 30, unread=("timings",))


@pytest.mark.parametrize("endpoint", [Endpoint.MESSAGES, Endpoint.RESPONSES])
def test_newer_dialects_may_tell_tokens_only(endpoint: Endpoint) -> None:
    """Nothing was expected there that is missing; timings are read wherever they are."""
    asked = request(endpoint=endpoint)
    usage = {"input_tokens": 30, "output_tokens": 120}
    assert ADAPTER.read(asked, {"usage": usage}) == Reading(120, 30)
    assert ADAPTER.read(asked, {}) == Reading(unread=("timings",))
    timings = {"predicted_n": 120, "draft_n": 150, "draft_n_accepted": 80}
    reading = ADAPTER.read(asked, {"usage": usage, "timings": timings})
    assert reading == Reading(120, 30, SpecUsage(40, 150, 80))


def test_prompt_tokens_include_the_cached_ones() -> None:
    """Streams without usage tell the prompt only in `timings`, cached part apart."""
    timings = {"predicted_n": 5, "prompt_n": 10, "cache_n": 32}
    assert ADAPTER.read(request(), {"timings": timings}).prompt_tokens == 42


def test_several_choices_are_not_read() -> None:
    """llama.cpp counts only one of them."""
    timings = {"predicted_n": 5, "draft_n": 3, "draft_n_accepted": 1}
    assert ADAPTER.read(request(n=2), {"timings": timings, "usage": USAGE}) == Reading(
        prompt_tokens=30
    )


@pytest.mark.parametrize(
    ("fields", "speculative", "expected"),
    [
        ({"logprobs": True}, True, "logprobs_wrong_under_speculation"),
        ({"n_probs": 2}, True, "logprobs_wrong_under_speculation"),
        ({"logprobs": True}, False, None),
        ({"min_p": 0.1, "logit_bias": {"1": 1}}, True, None),
    ],
)
def test_log_probabilities_must_not_come_from_a_drafting_server(
    fields: dict[str, Any], *, speculative: bool, expected: str | None
) -> None:
    """It reports 0.0 for every accepted token."""
    assert ADAPTER.refusal(request(**fields), speculative=speculative) == expected


def test_figures_that_no_log_could_hold_are_unknown() -> None:
    """The sum of two of the largest integers of JSON has no JSON form of its own."""
    timings = {"predicted_n": 5, "prompt_n": 2**64 - 1, "cache_n": 2**64 - 1}
    assert ADAPTER.read(request(), {"timings": timings}).prompt_tokens is None


def test_its_load_is_read_from_its_metrics() -> None:
    """As far as it tells."""
    assert LlamaCpp().gauges(
        "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
    ) == ReplicaGauges(2, 1)
    assert LlamaCpp().gauges("") == UNKNOWN
