"""What came of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from router.relay.measured import cached_tokens_of


@pytest.mark.parametrize(
    ("answer", "cached"),
    [
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 32}}}, 32),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 0}}}, 0),
        ({"usage": {"input_tokens_details": {"cached_tokens": 32}}}, 32),
        ({"usage": {"input_tokens": 8, "cache_read_input_tokens": 32}}, 32),
        ({"timings": {"prompt_n": 8, "cache_n": 32}}, 32),
        ({"usage": {"prompt_tokens_details": None}}, None),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": -1}}}, None),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": True}}}, None),
        ({"usage": None, "timings": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_what_was_cached_is_read_wherever_it_stands(
    answer: dict[str, Any] | None, cached: int | None
) -> None:
    """Chat, responses, messages and llama.cpp's timings; untold is unknown, never 0."""
    assert cached_tokens_of(answer) == cached
