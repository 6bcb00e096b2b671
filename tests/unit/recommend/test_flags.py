"""Advice as flags of engines."""

from __future__ import annotations

import json

import pytest

from policies.recommend import Advice, Best, Bounds, Range
from policies.types import ArmId
from router.recommend.flags import flags

NO = Bounds(0.0, 0.0, 0.0)


def best(k: int) -> Best:
    """A length."""
    return Best(k, NO, NO, k)


def advice(*ranges: tuple[int, int, int], overall: int = 3) -> Advice:
    """A schedule of (from, to, k)."""
    made = tuple(Range(low, high, best(k)) for low, high, k in ranges)
    return Advice(ArmId("draft"), 5, 4.0, best(overall), schedule=made)


FALLING = advice((1, 8, 5), (9, 32, 3), (33, 256, 0))


def test_vllm_gets_ranges_of_batch_sizes() -> None:
    """From, to and length, beside the longest."""
    line, remark = flags("vllm", "eagle3", FALLING)
    assert remark == "(beside the keys it has: model, …)"
    inside = json.loads(line.split("'")[1])
    assert inside == {
        "method": "eagle3",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 8, 5], [9, 32, 3], [33, 256, 0]],
    }


def test_vllm_gets_one_length_for_a_method_that_cannot_change_it() -> None:
    """The one for the load that was judged."""
    line, _ = flags("vllm", "suffix", FALLING)
    assert json.loads(line.split("'")[1]) == {"method": "suffix", "num_speculative_tokens": 3}


def test_sglang_gets_slots_by_their_lower_bounds() -> None:
    """In a file, and the longest draft on the command line."""
    line, file = flags("sglang", "eagle3", FALLING)
    assert "--speculative-num-steps 5 " in line
    assert "--speculative-num-draft-tokens 6 " in line
    assert line.endswith("--speculative-adaptive --speculative-adaptive-config FILE")
    assert json.loads(file.removeprefix("FILE: ")) == {
        "1": {"candidate_steps": [5]},
        "9": {"candidate_steps": [3]},
        "33": {"candidate_steps": [0]},
    }
    assert len(flags("sglang", "ngram", FALLING)) == 1


def test_tensorrt_llm_gets_upper_bounds() -> None:
    """Beyond the last the engine drafts nothing, and that is told."""
    line, beyond = flags("tensorrt_llm", "eagle3", FALLING)
    assert line.endswith("draft_len_schedule: {8: 5, 32: 3, 256: 0}}")
    assert "beyond 256" in beyond


@pytest.mark.parametrize(
    ("engine", "k", "line"),
    [
        ("llamacpp", 3, "--spec-draft-n-max 3"),
        ("llamacpp", 0, "--spec-type none"),
        ("lmdeploy", 3, "--speculative-num-draft-tokens 3"),
        ("generic", 3, "drafts of 3 tokens; the engine's flag is not known here"),
    ],
)
def test_engines_with_one_length_get_one(engine: str, k: int, line: str) -> None:
    """That of the load that was judged."""
    assert flags(engine, "eagle3", advice((1, 8, 5), (9, 64, 1), overall=k)) == (line,)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "lmdeploy"])
def test_no_drafts_at_any_size_means_no_flag(engine: str) -> None:
    """It is said which to leave out."""
    (line,) = flags(engine, "eagle3", advice((1, 64, 0), overall=0))
    assert line.startswith("leave ")


def test_without_advice_or_change_there_are_no_flags() -> None:
    """Nothing is made up, and what runs already is not told."""
    assert flags("vllm", "eagle3", advice((1, 64, 5), overall=5)) == ()
    assert flags("vllm", "eagle3", Advice(ArmId("draft"), 5, lacking=("why",))) == ()
