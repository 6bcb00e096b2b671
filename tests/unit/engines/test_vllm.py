"""vLLM's dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.types import SpecUsage
from router.engines.base import Ask, Reading
from router.engines.vllm import Vllm
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.types import Endpoint
from tests.support.builders import request

ADAPTER = Vllm()
USAGE = {"prompt_tokens": 20, "completion_tokens": 41}
RECORD = {
    "mean_acceptance_length": 2.6667,
    "draft_acceptance_rate": 0.5556,
    "acceptance_histogram": [4, 3, 2, 6],
    "num_spec_steps": 15,
    "num_accepted_draft_tokens": 25,
    "num_draft_tokens": 45,
    "num_spec_tokens": 3,
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{ "model": "m", "stream": true }',
            b'{"stream_options":{"include_usage":true}, "model": "m", "stream": true }',
        ),
        (
            b'{"model":"m","stream":true,"stream_options": null }',
            b'{"model":"m","stream":true,"stream_options": {"include_usage":true} }',
        ),
        (
            b'{"model":"m","stream":true,"stream_options": {"include_usage" : false, "x": NaN} }',
            b'{"model":"m","stream":true,"stream_options": {"include_usage" : true, "x": NaN} }',
        ),
        (
            b'{"model":"m","stream":true,"stream_options":{ "y" : 12345678901234567890123} }',
            b'{"model":"m","stream":true,"stream_options":{"include_usage":true, "y" : 12345678901234567890123} }',
        ),
        (
            b'{"\\ud800":"\\udc00","model":"m","stream":true,"stream_options":{"\\ud800":0}}',
            b'{"\\ud800":"\\udc00","model":"m","stream":true,"stream_options":{"include_usage":true,"\\ud800":0}}',
        ),
        (
            b'\xef\xbb\xbf{"model":"m","stream":true}',
            b'\xef\xbb\xbf{"stream_options":{"include_usage":true},"model":"m","stream":true}',
        ),
    ],
    ids=["absent", "null", "false", "other options", "surrogates", "byte order mark"],
)
def test_usage_is_asked_for_and_every_other_byte_stays(body: bytes, expected: bytes) -> None:
    """The engine may understand more JSON than we do."""
    assert ADAPTER.prepare(request(body=body)) == Ask(expected, strip_usage=True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": False},
        {"stream_options": {"include_usage": False}},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_usage": 1}},
        {"stream": True, "stream_options": {"include_usage": "true"}},
        {"stream": True, "stream_options": "nonsense"},
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
    ],
)
def test_nothing_is_asked_for_where_it_would_change_what_the_client_sees(
    fields: dict[str, Any],
) -> None:
    """The client asked itself, or the engine must refuse it, or would show more than usage."""
    asked = request(**fields)
    assert ADAPTER.prepare(asked) == Ask(asked.body)


def test_completions_are_asked_like_chats() -> None:
    """Both dialects know `stream_options`."""
    asked = request(endpoint=Endpoint.COMPLETIONS, stream=True)
    ask = ADAPTER.prepare(asked)
    assert json.loads(ask.body) == {**asked.fields, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("endpoint", [Endpoint.RESPONSES, Endpoint.MESSAGES])
def test_newer_dialects_are_asked_for_nothing(endpoint: Endpoint) -> None:
    """Usage comes with every answer there, and acceptance never."""
    asked = request(endpoint=endpoint, stream=True)
    assert ADAPTER.prepare(asked) == Ask(asked.body)
    usage = {"input_tokens": 20, "output_tokens": 41}
    assert ADAPTER.read(asked, {"usage": usage}) == Reading(41, 20)


def test_the_engine_s_record_is_read_whole() -> None:
    """Steps are those with a draft and those without: tokens less accepted ones."""
    answer = {"usage": USAGE, "metrics": {"speculative_decoding": RECORD}}
    assert ADAPTER.read(request(), answer) == Reading(
        tokens=41,
        prompt_tokens=20,
        spec=SpecUsage(
            steps=16,
            drafted=45,
            accepted=25,
            accepted_per_step=(4, 3, 2, 6),
            num_speculative_tokens=3,
        ),
    )


@pytest.mark.parametrize(
    "metrics",
    [None, {}, {"speculative_decoding": None}, {"time_to_first_token_ms": 3.0}, []],
)
def test_a_server_without_the_flag_tells_tokens_only(metrics: object) -> None:
    """Acceptance is unknown, and nothing was misunderstood."""
    assert ADAPTER.read(request(), {"usage": USAGE, "metrics": metrics}) == Reading(41, 20)


@pytest.mark.parametrize(
    "change",
    [
        {"num_draft_tokens": None},
        {"num_accepted_draft_tokens": "25"},
        {"num_accepted_draft_tokens": 46},
        {"num_draft_tokens": -45},
    ],
)
def test_a_record_that_cannot_be_true_is_a_gap(change: dict[str, object]) -> None:
    """With a name, so that a renamed field shows; tokens are still known."""
    answer = {"usage": USAGE, "metrics": {"speculative_decoding": {**RECORD, **change}}}
    assert ADAPTER.read(request(), answer) == Reading(
        41, 20, unread=("metrics.speculative_decoding",)
    )


@pytest.mark.parametrize("histogram", [None, [], [1, "x"], {"0": 4}, [4, -1]])
def test_a_histogram_that_cannot_be_read_costs_the_histogram_only(histogram: object) -> None:
    """Drafted and accepted tokens do not depend on it."""
    record = {**RECORD, "acceptance_histogram": histogram}
    reading = ADAPTER.read(request(), {"usage": USAGE, "metrics": {"speculative_decoding": record}})
    assert reading.spec == SpecUsage(16, 45, 25, None, 3)


@pytest.mark.parametrize(
    ("tokens", "accepted", "drafted_steps", "steps"),
    [
        (41, 25, 15, 16),
        (41, 25, 5, 16),
        (41, 25, None, 16),
        (8, 6, 3, 4),
        (16, 23, 4, 5),
        (16, 23, None, None),
        (16, 16, 0, None),
        (3, 1, 15, None),
        (0, 0, 0, None),
    ],
    ids=["all", "some", "old", "cut", "cut more", "cut old", "odd", "nonsense", "empty"],
)
def test_steps_are_right_where_the_end_cut_accepted_tokens(
    tokens: int, accepted: int, drafted_steps: int | None, steps: int | None
) -> None:
    """Accepted tokens are counted before the cut, and may outnumber those of the answer."""
    record = {
        **RECORD,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": 45,
        "num_spec_steps": drafted_steps,
    }
    answer = {
        "usage": {"completion_tokens": tokens},
        "metrics": {"speculative_decoding": record},
    }
    spec = ADAPTER.read(request(), answer).spec
    assert spec is not None
    assert (spec.steps, spec.accepted) == (steps, accepted)


def test_an_answer_without_usage_is_a_gap() -> None:
    """Usage had been asked for."""
    assert ADAPTER.read(request(), {}) == Reading(unread=("usage.completion_tokens",))


def test_several_choices_are_not_read() -> None:
    """Their tokens are summed and their acceptance is not told."""
    assert ADAPTER.read(request(n=2), {"usage": USAGE}) == Reading(prompt_tokens=20)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"min_p": 0.05}, "min_p_refused_under_speculation"),
        ({"min_p": 0}, None),
        ({"min_p": None}, None),
        ({"logit_bias": {"5": -100}}, "logit_bias_refused_under_speculation"),
        ({"logit_bias": {}}, None),
        ({"logprobs": True}, None),
    ],
)
def test_what_the_engine_refuses_under_speculation_does_not_go_there(
    fields: dict[str, Any], expected: str | None
) -> None:
    """The plain pool serves it."""
    assert ADAPTER.refusal(request(**fields), speculative=True) == expected
    assert ADAPTER.refusal(request(**fields), speculative=False) is None


def test_its_load_is_read_from_its_metrics() -> None:
    """As far as it tells."""
    assert Vllm().gauges(
        "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"
    ) == ReplicaGauges(2, 1)
    assert Vllm().gauges("") == UNKNOWN
