"""The seam between a world and whoever routes its requests. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from policies.types import ClassId, Trial
from policies.values import value


@value
class Ask:
    """What a router may know of a request before it is served."""

    index: int
    at_s: float
    class_id: ClassId
    """As the classifier told it, which may be wrong."""
    prompt_tokens: int
    template: str
    """Which application it comes from; a language stands behind `@`."""
    greedy: bool
    session: int
    turn: int
    home: int | None
    """The pool that served the turn before."""
    attempt: int = 0
    """Servers that have been lost under it."""


@value
class PoolLoad:
    """How a pool stands at the moment of a choice."""

    pool: str
    up: int
    """Servers that answer; 0 must not be chosen."""
    running: int
    waiting: int
    load: int
    """Requests at the server that would take this one, this one included."""
    slots: int
    """Of that server."""
    cached_tokens: int
    """Tokens of this prompt that need no prefill there."""
    ahead_tokens: int
    """Tokens of prompts that are there and have no answer yet."""
    waited_s: float
    """How long the first of these has waited whom nobody has overtaken."""


@value
class Choice:
    """What a router decided."""

    pool: int
    probability: float = 1.0
    """Of that pool, for this request, before it was drawn."""


@value
class Outcome:
    """One request that ended, and what was known when it began."""

    ask: Ask
    pool: int
    replica: int
    load: int
    cached_tokens: int
    begun_s: float
    """When it went to the server; later than it arrived where a server was lost before."""
    ended_s: float
    trial: Trial
    """Its durations begin at `begun_s`."""


class Router(Protocol):
    """Chooses pools for the requests of a world and learns from what came of it."""

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Pick a pool with a server; called in the order of time."""
        ...

    def learn(self, outcome: Outcome) -> None:
        """Take notice of a request that ended; called in the order of time."""
        ...
