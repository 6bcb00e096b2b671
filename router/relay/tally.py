"""Counts what a stream shows of its engine's steps, apart from the many events that are alike.

The harvest counts those by itself; here is what it takes apart: the first ones and the last ones,
and all of them where the client asked for tokens by event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import count, member
from router.engines.rule import StreamCount

FINISH = b'"finish_reason":"'
REASONING = (b'"reasoning":"', b'"reasoning_content":"')
STOPS = (FINISH, b'"token_ids":[', *REASONING)
"""Members of events that have to be taken apart."""

_OUTPUT = ("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "refusal")


class Tally:
    """Of one stream in OpenAI's older dialects."""

    __slots__ = (
        "_finish",
        "_finish_empty",
        "_most",
        "_running",
        "_told",
        "_told_events",
        "reasoning",
        "wide",
    )

    def __init__(self) -> None:
        self.wide = False
        """Some text lies beyond ASCII; noticed only where that matters."""
        self.reasoning = False
        self._finish: str | None = None
        self._finish_empty = False
        self._told = self._told_events = self._most = 0
        self._running = 0
        """Tokens so far by usage that comes with every event."""

    def see(self, members: Mapping[str, Any]) -> int:
        """Takes the members of an event; returns how many it adds to the count, 0 or 1."""
        choices = members.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return 0
        delta = choice.get("delta")
        output = choice.get("text") or any(member(delta, key) for key in _OUTPUT)
        if member(delta, "reasoning") or member(delta, "reasoning_content"):
            self.reasoning = True
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish, self._finish_empty = finish, not output
        self._see_tokens(members, choice)
        opening = member(delta, "role") and not output and finish is None
        return 0 if opening else 1

    def _see_tokens(self, members: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        ids = choice.get("token_ids")
        running = count(member(members.get("usage"), "completion_tokens"))
        if isinstance(ids, list):
            tokens = len(ids)
        elif running is not None:
            tokens, self._running = running - self._running, running
        else:
            return
        self._told += tokens
        self._told_events += tokens > 0
        self._most = max(self._most, tokens)

    def counted(self, events: int) -> StreamCount:
        """All there is to know, given the number of events."""
        return StreamCount(
            events,
            self._finish,
            self._finish_empty,
            self._told,
            self._told_events,
            self._most,
            self.reasoning,
            not self.wide,
        )
