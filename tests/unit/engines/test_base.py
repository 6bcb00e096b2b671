"""What all adapters share."""

from __future__ import annotations

from typing import Any

import pytest

from router.engines.base import (
    NOTHING_ASKED,
    Ask,
    cached_told,
    choices_asked,
    count,
    member,
    tokens_told,
    wants_logprobs,
)
from router.types import Endpoint
from tests.support.builders import request


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((3, 3), (0, 0), (2**53 - 1, 2**53 - 1), (2**53, None), (2**64 - 1, None)),
        *((-1, None), (True, None), (1.0, None), ("3", None), (None, None), ([], None)),
    ],
)
def test_a_count_is_a_non_negative_integer(value: object, expected: int | None) -> None:
    """Anything else is unknown, never 0."""
    assert count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [({"a": 1}, 1), ({}, None), (None, None), ([1], None), ("a", None)]
)
def test_a_member_of_what_is_no_object_is_unknown(value: object, expected: object) -> None:
    """Engines change shapes; reading never raises."""
    assert member(value, "a") == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1),
        ({"n": 2}, 2),
        ({"n": None}, 1),
        ({"n": 0}, 1),
        ({"n": "2"}, 1),
        ({"best_of": 3}, 3),
        ({"n": 2, "best_of": 4}, 4),
        ({"n_cmpl": 3}, 3),
        ({"prompt": "one"}, 1),
        ({"prompt": ["one", "two"]}, 2),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": []}, 1),
    ],
)
def test_choices_are_counted_in_every_spelling(fields: dict[str, Any], expected: int) -> None:
    """A list of token ids is one prompt, a list of texts or of lists is many."""
    assert choices_asked(request(endpoint=Endpoint.COMPLETIONS, **fields)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"logprobs": True}, True),
        ({"logprobs": False}, False),
        ({"logprobs": 5}, True),
        ({"logprobs": 0}, False),
        ({"top_logprobs": 2}, True),
        ({"n_probs": 3}, True),
        ({"prompt_logprobs": 1}, True),
        ({"logprobs": None, "top_logprobs": None}, False),
        ({"include": ["message.output_text.logprobs"]}, True),
        ({"include": ["reasoning.encrypted_content"]}, False),
        ({"include": "message.output_text.logprobs"}, False),
    ],
)
def test_log_probabilities_are_found_in_every_spelling(
    fields: dict[str, Any], *, expected: bool
) -> None:
    """OpenAI's three, llama.cpp's and vLLM's."""
    assert wants_logprobs(request(**fields)) is expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"completion_tokens": 8, "prompt_tokens": 40}, (8, 40)),
        ({"output_tokens": 8, "input_tokens": 40}, (8, 40)),
        (
            {"output_tokens": 8, "input_tokens": 40, "input_tokens_details": {"cached_tokens": 39}},
            (8, 40),
        ),
        (
            {
                "output_tokens": 8,
                "input_tokens": 1,
                "cache_read_input_tokens": 36,
                "cache_creation_input_tokens": 3,
            },
            (8, 40),
        ),
        ({"output_tokens": 8, "input_tokens": 1, "cache_read_input_tokens": None}, (8, 1)),
        ({"cache_read_input_tokens": 36}, (None, None)),
        ({"completion_tokens": "8", "output_tokens": -1}, (None, None)),
        (None, (None, None)),
        ([], (None, None)),
    ],
)
def test_tokens_are_read_in_every_dialect(
    usage: object, expected: tuple[int | None, int | None]
) -> None:
    """Anthropic's leaves cached tokens out of the prompt's, the others have them in."""
    assert tokens_told({"usage": usage}) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 39}}}, 39),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": 0}}}, 0),
        ({"usage": {"input_tokens_details": {"cached_tokens": 7}}}, 7),
        ({"usage": {"cache_read_input_tokens": 5, "input_tokens": 1}}, 5),
        ({"timings": {"cache_n": 3}}, 3),
        ({"usage": {"prompt_tokens_details": None}, "timings": {"cache_n": 3}}, 3),
        ({"usage": {"prompt_tokens_details": {"cached_tokens": "39"}}}, None),
        ({"usage": {"prompt_tokens": 40}, "timings": {}}, None),
        ({}, None),
    ],
)
def test_cached_tokens_are_read_in_every_dialect(
    answer: dict[str, Any], expected: int | None
) -> None:
    """OpenAI's two, Anthropic's and llama.cpp's; where nothing is said nothing is known."""
    assert cached_told(answer) == expected


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (NOTHING_ASKED, False),
        (Ask(b"", strip_usage=True), True),
        (Ask(b"", strip_record=b"sglext"), True),
    ],
)
def test_what_only_we_asked_for_has_to_go(ask: Ask, *, expected: bool) -> None:
    """Usage, a record, or both."""
    assert ask.strips is expected
