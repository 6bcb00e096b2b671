"""SGLang's dialect."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import SpecUsage
from router.engines.base import Ask, Reading
from router.engines.sglang import Sglang
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.types import Endpoint
from tests.support.builders import request

ADAPTER = Sglang()
USAGE = {"prompt_tokens": 20, "completion_tokens": 55}
RECORD = {
    "spec_num_correct_drafts": 34,
    "spec_num_proposed_drafts": 60,
    "spec_verify_ct": 20,
    "spec_correct_drafts_histogram": [5, 4, 3, 8],
}
SPEC = SpecUsage(21, 60, 34, (5, 4, 3, 8), 3, exact_drafted=False)


@pytest.mark.parametrize(
    ("body", "expected", "usage"),
    [
        (b'{"model":"m"}', b'{"return_spec_tokens_details":true,"model":"m"}', False),
        (
            b'{"model":"m","return_spec_tokens_details" : false }',
            b'{"model":"m","return_spec_tokens_details" : true }',
            False,
        ),
        (
            b'{"model":"m","stream":true}',
            (
                b'{"stream_options":{"include_usage":true},'
                b'"return_spec_tokens_details":true,"model":"m","stream":true}'
            ),
            True,
        ),
        (
            b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}',
            (
                b'{"return_spec_tokens_details":true,'
                b'"model":"m","stream":true,"stream_options":{"include_usage":true}}'
            ),
            False,
        ),
        (
            b'{"model":"m","stream":true,"stream_options":{"continuous_usage_stats":true}}',
            (
                b'{"return_spec_tokens_details":true,'
                b'"model":"m","stream":true,"stream_options":{"continuous_usage_stats":true}}'
            ),
            False,
        ),
    ],
    ids=["whole", "refused", "stream", "usage asked", "usage with every event"],
)
def test_the_record_is_asked_for_and_every_other_byte_stays(
    body: bytes, expected: bytes, *, usage: bool
) -> None:
    """Whatever was not the client's wish is marked to be taken out."""
    asked = ADAPTER.prepare(request(body=body))
    assert asked == Ask(expected, strip_usage=usage, strip_record=b"sglext", nulls_are_ours=False)
    assert asked.strips


@pytest.mark.parametrize(
    "fields",
    [
        {"return_spec_tokens_details": True},
        {"return_spec_tokens_details": "yes"},
        {"return_cached_tokens_details": True},
        {"return_routed_experts": True},
    ],
)
def test_a_client_that_fills_the_member_itself_keeps_it(fields: dict[str, Any]) -> None:
    """What is the client's and what is ours could not be told apart."""
    asked = request(**fields)
    assert ADAPTER.prepare(asked) == Ask(asked.body, nulls_are_ours=False)
    assert not ADAPTER.prepare(asked).strips


@pytest.mark.parametrize("endpoint", [Endpoint.RESPONSES, Endpoint.MESSAGES])
def test_other_dialects_have_no_record(endpoint: Endpoint) -> None:
    """Their usage comes unasked."""
    asked = request(endpoint=endpoint, stream=True)
    assert ADAPTER.prepare(asked) == Ask(asked.body, nulls_are_ours=False)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"usage": USAGE, "sglext": {"spec_tokens_details": RECORD}},
            Reading(55, 20, SPEC),
        ),
        (
            {
                "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 19}},
                "choices": [{"meta_info": RECORD}],
            },
            Reading(55, 20, SPEC, cached_tokens=19),
        ),
        ({"usage": USAGE}, Reading(55, 20)),
        (
            {"usage": USAGE, "sglext": {"spec_tokens_details": {}}},
            Reading(55, 20, unread=("sglext.spec_tokens_details",)),
        ),
        (
            {"sglext": {"spec_tokens_details": RECORD}},
            Reading(spec=SPEC, unread=("usage.completion_tokens",)),
        ),
    ],
    ids=["record", "meta_info", "older", "broken", "no usage"],
)
def test_figures_are_read(answer: dict[str, Any], expected: Reading) -> None:
    """A version before the record tells tokens only."""
    assert ADAPTER.read(request(), answer) == expected


def test_several_choices_are_not_read() -> None:
    """Their tokens are summed."""
    answer = {"usage": USAGE, "sglext": {"spec_tokens_details": [RECORD, RECORD]}}
    assert ADAPTER.read(request(n=2), answer) == Reading(prompt_tokens=20)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"use_beam_search": True}, "beam_search_refused_under_speculation"),
        ({"return_sampling_mask": True}, "sampling_mask_refused_under_speculation"),
        ({"use_beam_search": False, "return_sampling_mask": None}, None),
        ({"min_p": 0.1, "logit_bias": {"5": 1}, "logprobs": True}, None),
    ],
)
def test_what_it_refuses_under_speculation_does_not_go_there(
    fields: dict[str, Any], expected: str | None
) -> None:
    """The plain pool serves it."""
    assert ADAPTER.refusal(request(**fields), speculative=True) == expected
    assert ADAPTER.refusal(request(**fields), speculative=False) is None


def test_its_load_is_read_from_its_metrics() -> None:
    """As far as it tells."""
    assert ADAPTER.gauges("sglang:num_running_reqs 2\nsglang:num_queue_reqs 1\n") == ReplicaGauges(
        2, 1
    )
    assert ADAPTER.gauges("") == UNKNOWN
