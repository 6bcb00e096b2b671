"""Load as engines print it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.engines.generic import Generic
from router.engines.llamacpp import LlamaCpp
from router.engines.vllm import Vllm
from router.fleet.gauges import (
    UNKNOWN,
    ReplicaGauges,
    any_gauges,
    llamacpp_gauges,
    sglang_gauges,
    vllm_gauges,
)
from tests.support.recordings import shared_folder

VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
"""


RECORDED = {
    "vllm 0.32.0": """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2-135m-instruct"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="smollm2-135m-instruct"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2-135m-instruct",reason="deferred"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2-135m-instruct"} 0.0
""",
    "sglang 0.5.23": """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="smollm2-135m-instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
sglang:num_queue_reqs{engine_type="unified",model_name="smollm2-135m-instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
sglang:token_usage{engine_type="unified",model_name="smollm2-135m-instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
""",
    "llama.cpp b11434": """\
# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 0
# HELP llamacpp:requests_deferred Number of requests deferred
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
""",
}
"""What idle engines printed."""


@pytest.mark.parametrize("name", RECORDED)
def test_lines_of_real_engines_are_read(name: str) -> None:
    """Idle is 0; llama.cpp has no word on its cache."""
    expected = ReplicaGauges(0, 0, None if name.startswith("llama") else 0.0)
    assert any_gauges(RECORDED[name]) == expected


def test_engines_behind_one_address_are_added_up() -> None:
    """Requests are summed, shares averaged, and metrics that begin alike are told apart."""
    assert vllm_gauges(VLLM) == ReplicaGauges(7, 2, 0.5)


def test_the_older_name_counts_where_the_newer_is_missing() -> None:
    """VLLM renamed its cache's gauge."""
    older = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
    assert vllm_gauges(older).kv_usage == 0.5
    assert vllm_gauges(VLLM + older).kv_usage == 0.5
    assert vllm_gauges(VLLM + 'vllm:gpu_cache_usage_perc{model_name="m"} 0.9\n').kv_usage == 0.5


def test_ranks_of_one_engine_are_not_added_up() -> None:
    """Tensor-parallel ranks of SGLang tell the same; data-parallel ones do not."""
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {4 + dp}.0\n'
        f'sglang:num_queue_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {dp}.0\n'
        f'sglang:token_usage{{dp_rank="{dp}",tp_rank="{tp}"}} 0.{dp + 1}\n'
        for dp in range(2)
        for tp in range(2)
    )
    told = sglang_gauges(text)
    assert (told.running, told.waiting) == (9, 1)
    assert told.kv_usage == pytest.approx(0.15)


def test_what_is_not_told_is_unknown_and_not_zero() -> None:
    """Neither an empty page nor one of another engine says that nothing runs."""
    for read in (vllm_gauges, sglang_gauges, llamacpp_gauges, any_gauges):
        assert read("") == UNKNOWN
        assert read("go_goroutines 8\n") == UNKNOWN
    assert llamacpp_gauges(VLLM) == UNKNOWN
    assert not UNKNOWN.known


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "many", ""])
def test_values_that_cannot_be_are_left_out(value: str) -> None:
    """They are gaps."""
    text = (
        f'vllm:num_requests_running{{engine="0"}} {value}\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\n'
    )
    assert vllm_gauges(text) == UNKNOWN


def test_labels_may_hold_anything_and_lines_a_time() -> None:
    """Quotes, braces and spaces in a label; a time behind the value."""
    text = 'vllm:num_requests_running{model_name="a\\"} 9 {\\\\",engine="0"} 5 1795969490950\n'
    assert vllm_gauges(text).running == 5


@given(st.text(alphabet='vllm:num_requests_running{}"\\= 0123\n', max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """A server that prints nonsense tells nothing; it does not raise."""
    vllm_gauges("vllm:num_requests_running" + text)


@pytest.mark.parametrize(
    "lines",
    [
        ["1e308", "1e308"],
        ["1e20"],
        ["9007199254740991", "9007199254740991"],
        ["-1e308"],
        ["inf", "nan"],
    ],
)
def test_figures_beyond_all_counts_tell_nothing(lines: list[str]) -> None:
    """They would be infinite when added up, or too large for JSON, and nobody could be shown any."""
    page = "".join(
        f'vllm:num_requests_running{{engine="{engine}"}} {value}\n'
        for engine, value in enumerate(lines)
    )
    assert any_gauges(page) == UNKNOWN
    assert any_gauges(page + "vllm:num_requests_waiting 2\n") == ReplicaGauges(None, 2)


@pytest.mark.parametrize(
    "page",
    [
        "\n" * 1_000_000,
        "vllm:num_requests_running{" + "a" * 1_000_000 + "} 1\n",
        "vllm:num_requests_running{" + "a" * 16_000 + "} 1\n",
        'vllm:num_requests_running{a="' + "\\x" * 500_000 + "} 1\n",
        "vllm:num_requests_running 1\n" * 40_000,
    ],
    ids=["empty lines", "long name", "shorter name", "escapes", "one metric"],
)
def test_a_hostile_page_does_not_hold_everybody_up(page: str) -> None:
    """Pages are read on the loop, so the work grows with their length and no faster."""
    began = time.process_time()
    any_gauges(page)
    assert time.process_time() - began < 0.5


@pytest.mark.shared
@pytest.mark.parametrize(
    ("engine", "read", "expected"),
    [
        ("vllm-0.32.0", Vllm().gauges, ReplicaGauges(0, 0, 0.0)),
        ("sglang-0.5.23", Generic().gauges, ReplicaGauges(0, 0, 0.0)),
        ("llamacpp-b10434", LlamaCpp().gauges, ReplicaGauges(0, 0)),
        ("llamacpp-b11434", LlamaCpp().gauges, ReplicaGauges(0, 0)),
    ],
)
def test_recorded_pages_are_read(
    engine: str, read: Callable[[str], ReplicaGauges], expected: ReplicaGauges
) -> None:
    """All that an engine tells, as it stood on the wire of a real one."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("no recordings beside this checkout")
    pages = sorted(Path(folder, engine).glob("*/metrics.http"))
    assert pages
    for page in pages:
        assert read(page.read_text(encoding="utf-8")) == expected
