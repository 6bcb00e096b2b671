"""TensorRT-LLM and LMDeploy, as their sources say; nobody has recorded them."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import SpecUsage
from router.engines.base import Ask, EngineAdapter, Reading
from router.engines.lmdeploy import LmDeploy
from router.engines.tensorrt_llm import TensorRtLlm
from router.fleet.gauges import UNKNOWN, ReplicaGauges
from router.types import Endpoint
from tests.support.builders import request

USAGE = {"prompt_tokens": 20, "completion_tokens": 50}
each = pytest.mark.parametrize("adapter", [TensorRtLlm(), LmDeploy()], ids=lambda a: a.name)


@each
def test_nothing_but_usage_is_asked_for(adapter: EngineAdapter) -> None:
    """`stream_options` is OpenAI's own field, legal with a stream only; unknown ones are refused."""
    body = b'{"model":"m","stream":true}'
    expected = b'{"stream_options":{"include_usage":true},"model":"m","stream":true}'
    assert adapter.prepare(request(body=body)) == Ask(expected, strip_usage=True)


@each
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": False},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": "for the engine to refuse"},
    ],
)
def test_other_requests_stay_as_they_are(adapter: EngineAdapter, fields: dict[str, Any]) -> None:
    """Byte for byte."""
    asked = request(**fields)
    assert adapter.prepare(asked) == Ask(asked.body)
    responses = request(endpoint=Endpoint.RESPONSES, stream=True)
    assert adapter.prepare(responses) == Ask(responses.body)


@each
def test_tokens_are_read(adapter: EngineAdapter) -> None:
    """Of one choice; several are not measured, and an answer without usage is a gap."""
    answer = {"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 16}}}
    assert adapter.read(request(), answer) == Reading(50, 20, cached_tokens=16)
    assert adapter.read(request(n=2), answer) == Reading(prompt_tokens=20, cached_tokens=16)
    assert adapter.read(request(), {}) == Reading(unread=("usage.completion_tokens",))


@each
def test_nothing_is_known_to_be_refused(adapter: EngineAdapter) -> None:
    """By the sources."""
    asked = request(min_p=0.1, logprobs=True, use_beam_search=True)
    assert adapter.refusal(asked, speculative=True) is None


def test_tensorrt_llm_s_mean_gives_steps() -> None:
    """And a mean that cannot be true is named."""
    answer = {"usage": USAGE, "choices": [{"avg_decoded_tokens_per_iter": 2.5}]}
    assert TensorRtLlm().read(request(), answer) == Reading(50, 20, SpecUsage(20))
    broken = {"usage": USAGE, "choices": [{"avg_decoded_tokens_per_iter": 0.1}]}
    assert TensorRtLlm().read(request(), broken) == Reading(
        50, 20, unread=("choices.avg_decoded_tokens_per_iter",)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                'trtllm_num_requests_running{model_name="m"} 3\ntrtllm_num_requests_waiting 1\n'
                "trtllm_kv_cache_utilization 0.25\n"
            ),
            ReplicaGauges(3, 1, 0.25),
        ),
        ("trtllm_num_requests_running 3\n", ReplicaGauges(3)),
        ('[{"gpuMemUsage": 1}]', UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_tensorrt_llm_s_load_is_read_from_its_metrics(text: str, expected: ReplicaGauges) -> None:
    """In Prometheus' form; its JSON is nothing to be read."""
    assert TensorRtLlm().gauges(text) == expected


def test_lmdeploy_s_load_is_unknown() -> None:
    """Nobody has read the names of its gauges."""
    assert LmDeploy().gauges("lmdeploy:spec_decode_num_drafts_total 3\n") == UNKNOWN
