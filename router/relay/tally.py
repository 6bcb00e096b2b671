"""Counts what a stream shows of its engine's steps, apart from the many events that are alike.

The harvest counts those by itself; here is what it takes apart: the first ones and the last ones,
and all of them where the client asked for tokens by event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from router.engines.base import count, member
from router.engines.rule import StreamCount

STOP = b'"finish_reason":"'
"""What the event holds that ends the answer, which has to be taken apart."""

TOLD = b'"token_ids":['
"""What every event holds if the client asked for that; the first one shows whether it did."""

_REASONING = re.compile(rb'"reasoning(?:_content)?": ?"')
_OUTPUT = ("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "refusal")


class Tally:
    """Of one stream in OpenAI's older dialects."""

    __slots__ = (
        "_finish",
        "_finish_empty",
        "_most",
        "_reasoning",
        "_running",
        "_told",
        "_told_events",
        "ids",
        "wide",
    )

    def __init__(self) -> None:
        self.wide = False
        """Some text lies beyond ASCII; noticed only where that matters."""
        self.ids = False
        """Events list the ids of their tokens."""
        self._reasoning = False
        self._finish: str | None = None
        self._finish_empty = False
        self._told = self._told_events = self._most = 0
        self._running = 0
        """Tokens so far by usage that comes with every event."""

    def see(self, members: Mapping[str, Any]) -> int:
        """Takes the members of an event; returns how many it adds to the count, 0 or 1."""
        if _reasoned(members.get("usage")):
            self._reasoning = True
        choices = members.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return 0
        delta = choice.get("delta")
        output = choice.get("text") or any(member(delta, key) for key in _OUTPUT)
        if member(delta, "reasoning") or member(delta, "reasoning_content"):
            self._reasoning = True
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish, self._finish_empty = finish, not output
        self._see_tokens(members, choice)
        opening = member(delta, "role") and not output and finish is None
        return 0 if opening else 1

    def glance(self, event: bytes) -> None:
        """Looks at an event that is like many others to come."""
        if _REASONING.search(event) is not None:
            self._reasoning = True

    def _see_tokens(self, members: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        ids = choice.get("token_ids")
        running = count(member(members.get("usage"), "completion_tokens"))
        if isinstance(ids, list):
            tokens, self.ids = len(ids), True
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
            self._reasoning,
            not self.wide,
        )


def _reasoned(usage: object) -> bool:
    """Whether usage counts tokens that a parser has told apart."""
    details = member(usage, "completion_tokens_details")
    return bool(
        count(member(details, "reasoning_tokens")) or count(member(usage, "reasoning_tokens"))
    )
