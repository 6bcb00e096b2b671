"""Totals as engines print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.engines.counters import Moves, ReplicaCounters, read_counters
from tests.support.recordings import shared_folder

VLLM = """\
process_start_time_seconds 1.5e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 50.0
vllm:generation_tokens_total{engine="0",model_name="m"} 30.0
vllm:generation_tokens_total{engine="1",model_name="m"} 23.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.6e+09
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 23.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 129.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.6e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 3.0
"""

SGLANG = """\
sglang:prompt_tokens_total{engine_type="unified",is_streaming="false",model_name="m"} 1307.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="false",model_name="m"} 314.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="m"} 406.0
sglang:num_requests_total{engine_type="unified",is_streaming="false",model_name="m"} 13.0
sglang:num_requests_total{engine_type="unified",is_streaming="true",model_name="m"} 13.0
sglang:spec_verify_calls_total{engine_type="unified",model_name="m"} 357.0
"""

LLAMACPP = """\
llamacpp:prompt_tokens_total 926
llamacpp:tokens_predicted_total 631
llamacpp:tokens_predicted_seconds_total 24.1
llamacpp:spec_decode_num_draft_tokens_total 552
llamacpp:spec_decode_num_accepted_tokens_total 521
llamacpp:spec_decode_num_drafts_total 93
"""

TENSORRT_LLM = """\
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 40.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 53.0
trtllm_spec_decode_num_accepted_tokens_total{engine_type="trtllm",model_name="m"} 99.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="0"} 43.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="1"} 43.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="2"} 43.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="0"} 7.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="1"} 3.0
"""


def test_engines_behind_one_address_are_added_up() -> None:
    """Positions too, whatever their order; counters that begin alike are told apart."""
    expected = ReplicaCounters(
        Moves.AT_EACH_STEP, 53, 150, 10, 129, 43, per_position=(4, 3, 3), started=1.6e9
    )
    assert read_counters(VLLM) == expected
    assert expected.steps == 43


def test_steps_of_sglang_count_the_one_that_gave_the_first_token() -> None:
    """A verification comes after it, so each request has one step more."""
    told = read_counters(SGLANG)
    assert told == ReplicaCounters(Moves.AT_THE_END, 720, 1307, verify_steps=357, requests=26)
    assert told.steps == 383


def test_llamacpp_has_no_positions_before_its_first_draft() -> None:
    """That is unknown, and its totals are read."""
    assert read_counters(LLAMACPP) == ReplicaCounters(Moves.AT_THE_END, 631, 926, 521, 552, 93)


def test_tensorrt_llm_is_read_by_position() -> None:
    """Its other totals move at other times than its tokens; a position never accepted is 0."""
    assert read_counters(TENSORRT_LLM) == ReplicaCounters(
        Moves.AT_THE_END, 53, 40, 10, 129, 43, per_position=(7, 3, 0)
    )


def test_lmdeploy_prints_the_names_of_vllm() -> None:
    """Under its own prefix."""
    told = read_counters(VLLM.replace("vllm:", "lmdeploy:"))
    assert (told and told.steps, told and told.moves) == (43, Moves.AT_EACH_STEP)


def test_what_is_not_told_is_unknown() -> None:
    """Without speculation there is no count of accepted tokens, which is not 0."""
    told = read_counters("vllm:generation_tokens_total 762.0\n")
    assert told == ReplicaCounters(Moves.AT_EACH_STEP, 762)
    assert told.steps is None
    lonely = read_counters(SGLANG.replace("num_requests_total", "other_total"))
    assert lonely is not None
    assert lonely.steps is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tgi_request_count 3\ntgi_request_skipped_tokens_sum 9\n",
        '[{"iter": 1, "specDecodingStats": {"numAcceptedTokens": 3}}]',
        "<html>vllm:generation_tokens_total</html>",
        "vllm:generation_tokens_total NaN\n",
        "vllm:generation_tokens_total -3\n",
        "vllm:request_generation_tokens_total 3\n",
    ],
)
def test_other_pages_tell_nothing(text: str) -> None:
    """TGI, the JSON of TensorRT-LLM's other path, and broken lines."""
    assert read_counters(text) is None


@given(
    st.text(max_size=40),
    st.sampled_from([VLLM, SGLANG, LLAMACPP, TENSORRT_LLM]),
    st.integers(0, 2000),
)
def test_no_page_breaks_it(noise: str, page: str, at: int) -> None:
    """Whatever stands between the lines, or cuts them."""
    told = read_counters(page[:at] + noise + page[at:])
    assert told is None or told.tokens >= 0


@pytest.mark.shared
@pytest.mark.parametrize(
    ("case", "steps", "drafts"),
    [
        ("vllm-0.32.0/ngram", 1481 - 578, 249),
        ("vllm-0.32.0/suffix", 1502 - 949, 370),
        ("vllm-0.32.0/draft_model", 164, 160),
        ("vllm-0.32.0/none", None, None),
        ("sglang-0.5.23/ngram", 357 + 26, None),
        ("sglang-0.5.23/none", None, None),
        ("llamacpp-b10434/ngram-simple", 3872 - 1355, 179),
        ("llamacpp-b11434/draft-simple", 631 - 521, 93),
        ("llamacpp-b11434/none", 631, 0),
    ],
)
def test_recorded_pages(case: str, steps: int | None, drafts: int | None) -> None:
    """As real engines printed them; positions add up to what was accepted."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("no recordings lie beside the checkout")
    told = read_counters(_body(folder / case / "metrics.http"))
    assert told is not None
    assert (told.steps, told.drafts) == (steps, drafts)
    if told.per_position is not None:
        assert sum(told.per_position) == told.accepted


def _body(path: Path) -> str:
    return path.read_bytes().partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


@pytest.mark.parametrize("value", ["1e308", "1e20"])
def test_totals_beyond_all_counts_tell_nothing(value: str) -> None:
    """A page that could not have come from a meter neither raises nor becomes a figure."""
    twice = "".join(
        f'vllm:generation_tokens_total{{engine="{engine}"}} {value}\n' for engine in range(2)
    )
    assert read_counters(twice) is None
