"""What follows from the end of a try, and what it costs."""

from __future__ import annotations

import pytest

from router.fleet.state import Seen
from router.relay.attempts import FOLLOWS, RetryBudget, retry_after_s, says_prompt_too_long
from router.types import AttemptEnd

WALL = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


def test_every_end_has_its_consequences() -> None:
    """Only an answer needs none."""
    assert set(FOLLOWS) == set(AttemptEnd) - {AttemptEnd.ANSWERED}


def test_only_servers_that_failed_are_told_as_failed() -> None:
    """Neither one that is busy, nor one whose kept connection had aged, nor one overtaken."""
    failed = {end for end, follows in FOLLOWS.items() if follows.seen is Seen.FAILED}
    assert failed == {AttemptEnd.DISCONNECTED, AttemptEnd.SERVER_ERROR, AttemptEnd.TIMEOUT}
    assert FOLLOWS[AttemptEnd.BUSY].seen is Seen.BUSY


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-5", 0.0),
        ("86400", 300.0),
        ("9" * 400, 300.0),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("", None),
        ("soon", None),
        ("inf", None),
        ("nan", None),
        ("1_000", None),
        ("\u0667", None),
    ],
)
def test_when_to_come_again(value: str, expected: float | None) -> None:
    """Seconds or any of the three forms of a date, within bounds; nonsense says nothing."""
    assert retry_after_s((("X", "1"), ("retry-AFTER", value)), WALL) == expected


def test_who_says_nothing() -> None:
    """None is not 0."""
    assert retry_after_s((), WALL) is None


@pytest.mark.parametrize(
    "said",
    [
        b"This model's maximum context length is 4096 tokens. However, you requested 9000 tokens",
        b"The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
        b"The input (9000 tokens) is longer than the model's context length (4096 tokens).",
        b"the request exceeds the available context size (4096 tokens), try increasing it",
        b"input (9000 tokens) is too large to process. increase the physical batch size",
        b"prompt is too long: 210000 tokens > 200000 maximum",
        b"Prompt length exceeds max_model_len",
    ],
)
def test_a_prompt_that_is_too_long_is_known(said: bytes) -> None:
    """In the words of the engines, whatever their status."""
    assert says_prompt_too_long(b'{"error":{"message":"' + said + b'"}}')


@pytest.mark.parametrize(
    "said",
    [
        b"the engine took too long to respond",
        b"request was in the queue for too long",
        b"CUDA out of memory",
        b"",
    ],
)
def test_other_failures_are_no_long_prompts(said: bytes) -> None:
    """An engine that takes too long is the engine's fault."""
    assert not says_prompt_too_long(b'{"error":{"message":"' + said + b'"}}')


def test_further_tries_are_a_share_of_the_requests() -> None:
    """A few at once, then one for every five requests."""
    budget = RetryBudget(share=0.2, most=2.0)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(5):
        budget.arrived()
    assert [budget.take() for _ in range(2)] == [True, False]
