"""Steps counted in a stream: where one event is one step, the number of events is theirs.

Whatever may have held text back, and every merge that shows, makes the count unknown. Under
speculation a merge of small steps shows only if it holds more tokens than one step can.
"""

from __future__ import annotations

from dataclasses import replace

from policies.types import Source, SpecUsage
from router.engines.base import Reading, choices_asked
from router.engines.rule import StepRule, StreamCount
from router.types import ParsedRequest

_FINISHES = frozenset(("stop", "length"))


def with_counted_steps(
    reading: Reading,
    request: ParsedRequest,
    stream: StreamCount,
    rule: StepRule,
    *,
    draft_length: int | None,
) -> Reading:
    """The reading with the steps of its stream, or with the reason why they are unknown.

    Args:
        reading: What the engine told; it has no record of speculation.
        request: What was asked.
        stream: What was seen.
        rule: How the engine writes streams.
        draft_length: Most tokens that a draft has; 0 where nothing drafts, None where unknown.
    """
    steps = _steps(reading.tokens, request, stream, rule, draft_length)
    if isinstance(steps, int):
        spec = SpecUsage(
            steps=steps, num_speculative_tokens=draft_length or None, source=Source.STREAM
        )
        return replace(reading, spec=spec)
    # Of a plain pool it is known all the same that each step gave one token.
    odd = steps == "merged" and draft_length != 0
    unread = (*reading.unread, "stream.events") if odd else reading.unread
    return replace(reading, uncounted=steps, unread=unread)


def _steps(
    tokens: int | None,
    request: ParsedRequest,
    stream: StreamCount,
    rule: StepRule,
    draft_length: int | None,
) -> int | str:
    told = stream.told_tokens > 0
    unfit = _unfit(request, stream, rule, told=told)
    if unfit is not None:
        return unfit
    if tokens is None or tokens == 0:
        return "tokens"
    if draft_length is None:
        return "draft_length"
    steps = _told(tokens, stream, rule) if told else _seen(tokens, stream, rule, draft_length)
    if isinstance(steps, str):
        return steps
    if tokens > steps * (draft_length + 1) or stream.most_tokens > draft_length + 1:
        return "merged"
    return steps if 1 <= steps <= tokens else "surplus"


def _unfit(
    request: ParsedRequest, stream: StreamCount, rule: StepRule, *, told: bool
) -> str | None:
    """Why events of such a request may not be its steps."""
    fields = request.fields
    offered = fields.get("tools") or fields.get("functions")
    causes = (
        ("choices", choices_asked(request) > 1 or fields.get("use_beam_search")),
        ("interval", fields.get("stream_interval") not in (None, 1)),
        ("echo", fields.get("echo")),
        ("finish", stream.finish is None),
        # Where the tokens of each event are told, all of them are accounted for, or it will show.
        ("finish", not told and stream.finish not in _FINISHES),
        ("tools", not told and offered and fields.get("tool_choice") != "none"),
        ("reasoning", not told and (stream.reasoning or fields.get("include_reasoning") is False)),
        # The tokens of a step without an event come with the next one.
        ("held_text", rule.skips_empty and (fields.get("stop") or not stream.ascii_only)),
    )
    return next((name for name, holds in causes if holds), None)


def _told(tokens: int, stream: StreamCount, rule: StepRule) -> int | str:
    """By the tokens of each event."""
    left = tokens - stream.told_tokens
    if left == 0:
        return stream.told_events
    if rule.separate_finish and stream.finish_empty and left == 1:
        # The last event says nothing about the token for which it stands.
        return stream.told_events + 1
    return "swallowed"


def _seen(tokens: int, stream: StreamCount, rule: StepRule, draft_length: int) -> int | str:
    """By the events alone."""
    if not (rule.separate_finish and stream.finish_empty):
        return stream.events
    steps = stream.events - 1
    if stream.finish == "length":
        return steps
    if draft_length == 0 and tokens - steps in (0, 1):
        return tokens
    return "merged" if draft_length == 0 and tokens > steps else "last_step"
