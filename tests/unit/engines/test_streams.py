"""Steps counted in a stream."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import Source, SpecUsage
from router.engines.base import Reading
from router.engines.rule import StepRule, StreamCount
from router.engines.sglang import Sglang
from router.engines.streams import with_counted_steps
from router.engines.vllm import Vllm
from router.types import Endpoint
from tests.support.builders import request

VLLM, SGLANG = Vllm.step_rule, Sglang.step_rule


def counted(
    stream: StreamCount,
    *,
    tokens: int | None = 40,
    rule: StepRule = VLLM,
    k: int | None = 3,
    endpoint: Endpoint = Endpoint.CHAT,
    **fields: Any,
) -> int | str | None:
    """Steps, or why there are none."""
    reading = with_counted_steps(
        Reading(tokens), request(endpoint=endpoint, **fields), stream, rule, draft_length=k
    )
    if reading.spec is None:
        assert reading.uncounted is not None
        merged = reading.uncounted == "merged" and k != 0
        assert reading.unread == (("stream.events",) if merged else ())
        return reading.uncounted
    assert reading.uncounted is None
    assert reading.spec == SpecUsage(
        reading.spec.steps, num_speculative_tokens=k or None, source=Source.STREAM
    )
    return reading.spec.steps


@pytest.mark.parametrize(
    ("events", "tokens", "k", "expected"),
    [
        (20, 40, 3, 20),
        (40, 40, 3, 40),
        (10, 40, 3, 10),
        (9, 40, 3, "merged"),
        (41, 40, 3, "surplus"),
        (40, 40, 0, 40),
        (39, 40, 0, "merged"),
        (41, 40, 0, "surplus"),
        (20, 40, None, "draft_length"),
        (20, None, 3, "tokens"),
        (0, 0, 3, "tokens"),
    ],
)
def test_one_event_of_vllm_is_one_step(
    events: int, tokens: int | None, k: int | None, expected: int | str
) -> None:
    """A step gives one token at least and k + 1 at most; on a plain pool exactly one."""
    assert counted(StreamCount(events, "stop"), tokens=tokens, k=k) == expected
    ended = StreamCount(events, "length", finish_empty=True)
    assert counted(ended, tokens=tokens, k=k) == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2}, "choices"),
        ({"use_beam_search": True}, "choices"),
        ({"stream_interval": 4}, "interval"),
        ({"echo": True}, "echo"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function"}], "tool_choice": "auto"}, "tools"),
        ({"functions": [{"name": "f"}]}, "tools"),
        ({"include_reasoning": False}, "reasoning"),
    ],
)
def test_a_request_whose_events_may_be_no_steps_is_not_counted(
    fields: dict[str, Any], reason: str
) -> None:
    """Parsers hold text back, and several choices share one stream."""
    assert counted(StreamCount(20, "stop"), **fields) == reason


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"tools": []},
        {"stream_interval": 1},
        {"echo": False},
        {"stop": ["\n\n"]},
        {"logprobs": True, "response_format": {"type": "json_object"}},
    ],
)
def test_other_requests_are_counted(fields: dict[str, Any]) -> None:
    """VLLM sends an event for a step without text too."""
    assert counted(StreamCount(20, "stop"), **fields) == 20


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (StreamCount(20), "finish"),
        (StreamCount(20, "tool_calls"), "finish"),
        (StreamCount(20, "abort"), "finish"),
        (StreamCount(20, "stop", reasoning=True), "reasoning"),
    ],
)
def test_a_stream_that_hides_steps_is_not_counted(stream: StreamCount, reason: str) -> None:
    """A parser has stood in between, or the end never came."""
    assert counted(stream) == reason


@pytest.mark.parametrize(
    ("stream", "tokens", "expected"),
    [
        (StreamCount(25, "stop", told_tokens=40, told_events=20, most_tokens=4), 40, 20),
        (StreamCount(25, "stop", told_tokens=40, told_events=20, most_tokens=5), 40, "merged"),
        (StreamCount(25, "stop", told_tokens=39, told_events=20, most_tokens=4), 40, "swallowed"),
        (StreamCount(25, "stop", told_tokens=41, told_events=20, most_tokens=4), 40, "swallowed"),
        (StreamCount(25, None, told_tokens=40, told_events=20, most_tokens=4), 40, "finish"),
    ],
    ids=["all told", "merged", "one swallowed", "one too many", "no end"],
)
def test_tokens_of_each_event_account_for_all(
    stream: StreamCount, tokens: int, expected: int | str
) -> None:
    """Then parsers may have been at work: nothing is missing, or it shows."""
    tools = [{"type": "function"}]
    assert counted(stream, tokens=tokens) == expected
    assert counted(stream, tokens=tokens, tools=tools) == expected


@pytest.mark.parametrize(
    ("stream", "tokens", "k", "expected"),
    [
        (StreamCount(18, "length", finish_empty=True), 40, 5, 17),
        (StreamCount(12, "length"), 40, 5, 12),
        (StreamCount(12, "stop"), 40, 5, 12),
        (StreamCount(18, "stop", finish_empty=True), 40, 5, "last_step"),
        (StreamCount(41, "length", finish_empty=True), 40, 0, 40),
        (StreamCount(40, "stop", finish_empty=True), 40, 0, 40),
        (StreamCount(41, "stop", finish_empty=True), 40, 0, 40),
        (StreamCount(39, "stop", finish_empty=True), 40, 0, "merged"),
        (StreamCount(43, "stop", finish_empty=True), 40, 0, "last_step"),
        (StreamCount(12, "stop", ascii_only=False), 40, 5, "held_text"),
        (
            StreamCount(
                18, "stop", finish_empty=True, told_tokens=39, told_events=17, most_tokens=6
            ),
            *(40, 5, 18),
        ),
        (
            StreamCount(
                18, "stop", finish_empty=True, told_tokens=40, told_events=17, most_tokens=6
            ),
            *(40, 5, 17),
        ),
    ],
    ids=[
        *("length", "no chat, length", "no chat, stop", "stop", "plain, length", "plain, own step"),
        *("plain, shared step", "plain, merged", "plain, odd", "held", "told, own", "told, shared"),
    ],
)
def test_sglang_ends_a_chat_with_an_event_of_its_own(
    stream: StreamCount, tokens: int, k: int, expected: int | str
) -> None:
    """It is a step if a token without text ended the answer, which only tokens can tell."""
    assert counted(stream, tokens=tokens, k=k, rule=SGLANG) == expected


def test_sglang_holds_back_what_might_be_a_stop_string() -> None:
    """A step without text makes no event there."""
    assert counted(StreamCount(12, "stop"), rule=SGLANG, k=5, stop=["\n\n"]) == "held_text"


def test_tokens_of_a_step_without_an_event_hide_in_the_next() -> None:
    """So not even tokens told by event help where text was held back."""
    told = StreamCount(12, "stop", told_tokens=40, told_events=12, most_tokens=6, ascii_only=False)
    assert counted(told, rule=SGLANG, k=5) == "held_text"


def test_several_prompts_share_a_stream() -> None:
    """Their steps cannot be told apart."""
    stream = StreamCount(12, "stop")
    assert counted(stream, endpoint=Endpoint.COMPLETIONS, prompt=["a", "b"]) == "choices"
