"""Records of speculation in each known place and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from policies.types import SpecUsage
from router.engines.records import (
    Found,
    any_record,
    fastdeploy_record,
    llamacpp_record,
    prediction_record,
    sglang_record,
    tensorrt_record,
    vllm_record,
)

VLLM: dict[str, Any] = {
    "mean_acceptance_length": 1.2325581395348837,
    "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
WORKED = SpecUsage(44, 129, 10, (39, 1, 0, 3), 3)
"""The worked example of docs/engines.md, with the step that gave the first token."""

SGLANG: dict[str, Any] = {
    "spec_accept_rate": 0.5667,
    "spec_accept_length": 2.75,
    "spec_num_correct_drafts": 34,
    "spec_num_proposed_drafts": 60,
    "spec_verify_ct": 20,
    "spec_correct_drafts_histogram": [5, 4, 3, 8],
    "spec_cap_length": 0.0,
    "spec_block_accept_length": 0.0,
    "spec_cap_lens_histogram": [],
}
SGLANG_READ = SpecUsage(21, 60, 34, (5, 4, 3, 8), 3, exact_drafted=False)
TIMINGS: dict[str, Any] = {
    "cache_n": 0,
    "prompt_n": 30,
    "predicted_n": 120,
    "predicted_ms": 960.0,
    "draft_n": 150,
    "draft_n_accepted": 80,
}
FASTDEPLOY: dict[str, Any] = {
    "accepted_tokens": 100,
    "rejected_tokens": 314,
    "accept_ratio": 0.31,
    "average_accept_length": 1.4492753623188406,
    "accepted_tokens_per_head": [69, 13, 9, 3, 3, 3],
    "accept_ratio_per_head": [0.188, 0.692, 0.333, 1.0, 1.0],
}
FASTDEPLOY_READ = SpecUsage(69, 345, 31, (56, 4, 6, 0, 0, 3), 5, exact_drafted=False)
TENSORRT: dict[str, Any] = {
    "acceptance_rate": 0.4,
    "total_accepted_draft_tokens": 24,
    "total_draft_tokens": 60,
    "num_spec_steps": 20,
    "acceptance_histogram": [9, 3, 3, 5],
    "num_spec_tokens": 3,
}


def at_choice(**members: Any) -> dict[str, Any]:
    """An answer of one choice."""
    return {"choices": [{"index": 0, "message": {"content": "x"}, **members}]}


# --- vLLM -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "spec"),
    [
        ({"metrics": {"speculative_decoding": VLLM}}, WORKED),
        (
            at_choice(
                speculative_decoding_stats={
                    **VLLM,
                    "acceptance_histogram": {"0": 39, "1": 1, "3": 3},
                }
            ),
            WORKED,
        ),
        (
            {
                "metrics": {
                    "time_to_first_token_ms": 3.0,
                    "speculative_decoding": {
                        **VLLM,
                        "per_step_accepted": [3, *[0] * 42],
                        "per_step_drafted": [3] * 43,
                        "acceptance_histogram_by_draft_length": {"3": [39, 1, 0, 3]},
                    },
                }
            },
            WORKED,
        ),
    ],
    ids=["released", "draft of the feature", "detailed and newer"],
)
def test_vllm_in_all_its_shapes(answer: dict[str, Any], spec: SpecUsage) -> None:
    """What a newer version adds does no harm."""
    assert vllm_record(answer, 54) == Found(spec)
    assert any_record(answer, 54) == Found(spec)


@pytest.mark.parametrize(
    "histogram",
    [{"0": 39, "1": -1}, {"x": 43}, {"9999": 1}, {}, [39, 1, 0, 4], [43], [39, 1.0, 0, 3], "39"],
)
def test_a_histogram_that_contradicts_costs_the_histogram_only(histogram: object) -> None:
    """Its sums have to be those of the record."""
    record = {**VLLM, "acceptance_histogram": histogram}
    found = vllm_record({"metrics": {"speculative_decoding": record}}, 54)
    assert found == Found(SpecUsage(44, 129, 10, None, 3))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_draft_tokens": 9}, "metrics.speculative_decoding"),
        ({"num_draft_tokens": 0}, "metrics.speculative_decoding:accepted_undrafted"),
        (
            {"num_draft_tokens": 603, "num_accepted_draft_tokens": 603, "num_spec_steps": 201},
            "metrics.speculative_decoding:never_rejected",
        ),
        ({"num_draft_tokens": None}, "metrics.speculative_decoding"),
        ({"num_draft_tokens": 1.5}, "metrics.speculative_decoding"),
    ],
    ids=["more than drafted", "nothing drafted", "never rejected", "absent", "no count"],
)
def test_a_meter_that_cannot_work_is_named(change: dict[str, Any], name: str) -> None:
    """Not even the part that may be right is believed."""
    answer = {"metrics": {"speculative_decoding": {**VLLM, **change}}}
    assert vllm_record(answer, 900) == Found(unread=(name,))


def test_all_accepted_may_happen_for_a_while() -> None:
    """A copied text is accepted whole."""
    record = {
        "num_draft_tokens": 600,
        "num_accepted_draft_tokens": 600,
        "num_spec_steps": 200,
        "num_spec_tokens": 3,
    }
    found = vllm_record({"metrics": {"speculative_decoding": record}}, 801)
    assert found == Found(SpecUsage(201, 600, 600, None, 3))


# --- SGLang ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {"sglext": {"spec_tokens_details": SGLANG}},
        {"sglext": {"spec_tokens_details": [SGLANG]}},
        at_choice(meta_info=SGLANG),
        at_choice(meta_info=[SGLANG]),
        {"meta_info": SGLANG},
    ],
    ids=["root", "list of one", "choice", "list at the choice", "native"],
)
def test_sglang_in_all_its_places(answer: dict[str, Any]) -> None:
    """Its drafted count is nominal, and the first token came from the prefill."""
    assert sglang_record(answer, 55) == Found(SGLANG_READ)
    assert any_record(answer, 55) == Found(SGLANG_READ)


@pytest.mark.parametrize(
    ("names", "spec"),
    [
        (
            {
                "spec_accept_token_num": 34,
                "spec_draft_token_num": 60,
                "spec_accept_histogram": [5, 4, 3, 8],
            },
            SGLANG_READ,
        ),
        (
            {
                "spec_num_correct_drafts": 34,
                "spec_accepted_drafts": 34,
                "spec_num_proposed_drafts": 60,
                "spec_proposed_drafts": 60,
                "spec_correct_drafts_histogram": [5, 4, 3, 8],
                "spec_accept_histogram": [5, 4, 3, 8],
            },
            SGLANG_READ,
        ),
        (
            {"spec_accepted_drafts": 34, "spec_proposed_drafts": 60},
            SpecUsage(21, 60, 34, None, 3, exact_drafted=False),
        ),
        ({}, SpecUsage(21, None, None, exact_drafted=False)),
    ],
    ids=["to 0.5.10", "0.5.12 to 0.5.20", "aliases", "January 2025"],
)
def test_three_generations_of_sglang_s_names(names: dict[str, Any], spec: SpecUsage) -> None:
    """And the first one, that told steps only."""
    assert sglang_record(at_choice(meta_info={"spec_verify_ct": 20, **names}), 55) == Found(spec)


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        (
            {"spec_num_proposed_drafts": 30, "spec_correct_drafts_histogram": None},
            SpecUsage(21, None, 34, exact_drafted=False),
        ),
        (
            {"spec_num_proposed_drafts": 61},
            SpecUsage(21, 61, 34, (5, 4, 3, 8), exact_drafted=False),
        ),
    ],
    ids=["below the truth", "no multiple of the steps"],
)
def test_a_nominal_count_may_be_wrong_without_harm(change: dict[str, Any], spec: SpecUsage) -> None:
    """Adaptive and look-up drafting make it so; steps and accepted tokens are exact."""
    assert sglang_record({"meta_info": {**SGLANG, **change}}, 55) == Found(spec)


def test_steps_without_a_draft_count_where_there_were_some() -> None:
    """Adaptive drafting may pause, and tokens less accepted ones are more than verifications."""
    found = sglang_record({"meta_info": SGLANG}, 90)
    assert found is not None
    assert found.spec is not None
    assert found.spec.steps == 90 - 34


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"spec_verify_ct": "20"}, "meta_info.spec_verify_ct"),
        ({"spec_num_proposed_drafts": 0}, "meta_info.spec_verify_ct:accepted_undrafted"),
    ],
)
def test_a_broken_record_of_sglang_is_named(change: dict[str, Any], name: str) -> None:
    """As any other."""
    assert sglang_record({"meta_info": {**SGLANG, **change}}, 55) == Found(unread=(name,))


@pytest.mark.parametrize(
    "answer",
    [
        {"sglext": {"spec_tokens_details": [SGLANG, SGLANG]}},
        {"sglext": {"cached_tokens_details": {}}},
        {"sglext": None},
        at_choice(meta_info={"completion_tokens": 8}),
    ],
)
def test_no_record_for_one_choice_is_none(answer: dict[str, Any]) -> None:
    """Two records are those of two choices."""
    assert sglang_record(answer, 55) is None


# --- TensorRT-LLM ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "spec"),
    [
        ({"avg_decoded_tokens_per_iter": 2.5}, SpecUsage(20)),
        ({"avg_decoded_tokens_per_iter": 1}, SpecUsage(50)),
        (
            {"speculative_decoding": TENSORRT},
            SpecUsage(26, 60, 24, (9, 3, 3, 5), 3),
        ),
        (
            {"avg_decoded_tokens_per_iter": 2.0, "speculative_decoding": TENSORRT},
            SpecUsage(25, 60, 24, (9, 3, 3, 5), 3),
        ),
    ],
    ids=["mean", "nothing accepted", "record", "both"],
)
def test_tensorrt_llm_at_the_choice(members: dict[str, Any], spec: SpecUsage) -> None:
    """Names it shares with vLLM stand elsewhere, which tells them apart."""
    assert tensorrt_record(at_choice(**members), 50) == Found(spec)
    assert any_record(at_choice(**members), 50) == Found(spec)
    assert vllm_record(at_choice(**members), 50) is None


@pytest.mark.parametrize("mean", ["2.5", True, 0, 0.5, -1.0, 1e9, float("nan")])
def test_a_mean_that_cannot_be_is_named(mean: object) -> None:
    """A step gives at least one token, and no draft is that long."""
    found = tensorrt_record(at_choice(avg_decoded_tokens_per_iter=mean), 50)
    assert found == Found(unread=("choices.avg_decoded_tokens_per_iter",))


def test_a_mean_without_tokens_tells_no_steps() -> None:
    """Nothing was misunderstood, and nothing is known."""
    assert tensorrt_record(at_choice(avg_decoded_tokens_per_iter=2.5), None) == Found()
    assert tensorrt_record(at_choice(avg_decoded_tokens_per_iter=None), 50) is None
    broken = at_choice(speculative_decoding={"num_spec_steps": 3})
    assert tensorrt_record(broken, 50) == Found(unread=("choices.speculative_decoding",))


# --- llama.cpp and its kin ------------------------------------------------------------------------


def test_llama_cpp_tells_no_steps() -> None:
    """They follow from its tokens."""
    assert llamacpp_record({"timings": TIMINGS}, 120) == Found(SpecUsage(40, 150, 80))
    assert any_record({"timings": TIMINGS}, 120) == Found(SpecUsage(40, 150, 80))


def test_llama_cpp_leaves_out_what_was_not_drafted() -> None:
    """A measured zero where the server is known to be llama.cpp; elsewhere nothing is known."""
    plain = {"timings": {"predicted_n": 120, "predicted_ms": 960.0}}
    assert llamacpp_record(plain, 120) == Found(SpecUsage(120, 0, 0))
    assert any_record(plain, 120) is None


@pytest.mark.parametrize(
    ("change", "tokens", "found"),
    [
        ({"draft_n": 80, "draft_n_accepted": 150}, 400, Found(unread=("timings.draft_n",))),
        ({"draft_n": "150"}, 120, Found(unread=("timings.draft_n",))),
        ({"draft_n": 0}, 120, Found(unread=("timings.draft_n:accepted_undrafted",))),
        ({}, 80, Found(unread=("timings.draft_n_accepted",))),
        ({}, None, Found(unread=("timings.draft_n_accepted",))),
        (
            {"draft_n": 700, "draft_n_accepted": 700},
            901,
            Found(unread=("timings.draft_n:never_rejected",)),
        ),
        ({"draft_n": 700, "draft_n_accepted": 700}, 900, Found(SpecUsage(200, 700, 700))),
    ],
    ids=["order", "text", "undrafted", "replayed drafts", "no tokens", "never", "nearly never"],
)
def test_a_broken_meter_of_llama_cpp_is_named(
    change: dict[str, Any], tokens: int | None, found: Found
) -> None:
    """Old builds counted replayed drafts of hybrid models as accepted."""
    assert llamacpp_record({"timings": {**TIMINGS, **change}}, tokens) == found


@pytest.mark.parametrize("tokens", [1, 200, 201, 5_000])
def test_nothing_drafted_is_a_measured_zero_at_any_length(tokens: int) -> None:
    """0 of 0 is not "all accepted": no step had a draft."""
    found = llamacpp_record({"timings": {"predicted_n": tokens}}, tokens)
    assert found == Found(SpecUsage(tokens, 0, 0))


@pytest.mark.parametrize(
    ("drafted", "found"),
    [
        (200, Found(SpecUsage(800, 200, 200))),
        (201, Found(unread=("timings.draft_n:never_rejected",))),
    ],
)
def test_steps_without_a_draft_prove_no_broken_meter(drafted: int, found: Found) -> None:
    """Of 800 steps no more had a draft than tokens were drafted."""
    timings = {"draft_n": drafted, "draft_n_accepted": drafted}
    assert llamacpp_record({"timings": timings}, 800 + drafted) == found


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (
            vllm_record,
            {
                "metrics": {
                    "speculative_decoding": {
                        "num_draft_tokens": 0,
                        "num_accepted_draft_tokens": 0,
                        "num_spec_steps": 300,
                    }
                }
            },
        ),
        (
            sglang_record,
            {
                "sglext": {
                    "spec_tokens_details": {
                        "spec_verify_ct": 300,
                        "spec_num_correct_drafts": 0,
                        "spec_num_proposed_drafts": 0,
                    }
                }
            },
        ),
        (
            fastdeploy_record,
            at_choice(
                speculate_metrics={
                    "accepted_tokens": 300,
                    "rejected_tokens": 0,
                    "accepted_tokens_per_head": [300],
                }
            ),
        ),
        (
            prediction_record,
            {
                "usage": {
                    "completion_tokens_details": {
                        "accepted_prediction_tokens": 0,
                        "rejected_prediction_tokens": 0,
                    }
                }
            },
        ),
    ],
    ids=["vllm", "sglang", "fastdeploy", "gateway"],
)
def test_no_engine_s_zero_is_a_broken_meter(
    read: Callable[[dict[str, Any], int | None], Found | None], answer: dict[str, Any]
) -> None:
    """The rule is one for all."""
    found = read(answer, 301)
    assert found is not None
    assert found.unread == ()
    assert found.spec is not None
    assert (found.spec.drafted, found.spec.accepted) == (0, 0)


def test_mlx_vlm_counts_its_rounds() -> None:
    """Accepted ones may outnumber the tokens there; rounds leave out the first token."""
    timings = {**TIMINGS, "draft_kind": "mtp", "draft_rounds": 50, "draft_n_accepted": 122}
    assert any_record({"timings": timings}, 120) == Found(SpecUsage(51, 150, 122))


# --- Others ---------------------------------------------------------------------------------------


def test_fastdeploy_counts_all_tokens_as_accepted() -> None:
    """Figures of its own test suite: 100 tokens in 69 steps, with drafts of 5."""
    answer = at_choice(speculate_metrics=FASTDEPLOY)
    assert fastdeploy_record(answer, 100) == Found(FASTDEPLOY_READ)
    assert any_record(answer, 100) == Found(FASTDEPLOY_READ)


@pytest.mark.parametrize(
    "change",
    [
        {"accepted_tokens": 50},
        {"accepted_tokens_per_head": [13, 69]},
        {"accepted_tokens_per_head": []},
        {"accepted_tokens_per_head": None},
        {"rejected_tokens": None},
    ],
)
def test_a_broken_record_of_fastdeploy_is_named(change: dict[str, Any]) -> None:
    """As any other."""
    answer = at_choice(speculate_metrics={**FASTDEPLOY, **change})
    assert fastdeploy_record(answer, 100) == Found(unread=("choices.speculate_metrics",))


@pytest.mark.parametrize(
    ("details", "found"),
    [
        (
            {"accepted_prediction_tokens": 30, "rejected_prediction_tokens": 15},
            Found(SpecUsage(20, 45, 30)),
        ),
        ({"accepted_prediction_tokens": 30}, Found(SpecUsage(20, None, 30))),
        (
            {"accepted_prediction_tokens": "30"},
            Found(unread=("usage.completion_tokens_details",)),
        ),
        ({"accepted_prediction_tokens": None}, None),
        (None, None),
    ],
)
def test_fields_for_predicted_outputs_are_read_on_demand_only(
    details: object, found: Found | None
) -> None:
    """OpenAI means something else by them, so detection passes them over."""
    answer = {"usage": {"completion_tokens": 50, "completion_tokens_details": details}}
    assert prediction_record(answer, 50) == found
    assert any_record(answer, 50) is None


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": None, "metrics": [], "sglext": 3, "meta_info": "x", "timings": None},
        {"choices": [{"speculate_metrics": FASTDEPLOY}, {"speculate_metrics": FASTDEPLOY}]},
        {"speculative_decoding": VLLM, "spec_tokens_details": SGLANG, "draft_n": 3},
    ],
    ids=["empty", "no choices", "other types", "two choices", "right names in wrong places"],
)
def test_what_is_not_known_is_none(answer: dict[str, Any]) -> None:
    """Never a guess by a name alone."""
    assert any_record(answer, 50) is None
