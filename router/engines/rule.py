"""Steps as events: how an engine writes them, and what a stream showed of them."""

from __future__ import annotations

from policies.values import value


@value
class StepRule:
    """How an engine writes its steps as events."""

    separate_finish: bool = False
    """In chats a step's text and the end come as two events. The last one is a step of its own
    only if a token without text ended the answer."""
    skips_empty: bool = False
    """A step without text makes no event: tokens that are no whole character, or that might be
    the beginning of a stop string."""


@value
class StreamCount:
    """What a stream showed of its steps."""

    events: int
    """Events with a choice, the last one included, the opening one with nothing but a role not."""
    finish: str | None = None
    """Why the answer ended."""
    finish_empty: bool = False
    """The event that says so carried no output."""
    told_tokens: int = 0
    """Tokens of the events that told them, where the client asked for that."""
    told_events: int = 0
    """Events that told of at least one token."""
    most_tokens: int = 0
    """Of one event."""
    reasoning: bool = False
    """Reasoning was told apart, so a parser stands between steps and events."""
    ascii_only: bool = True
    """No text beyond ASCII; known only where the rule needs it."""
