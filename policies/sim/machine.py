"""What a simulated engine is given and what it gives: values, and the interface of its steps.

Whoever runs one owns the clock: it asks for a step, and lets the step's duration pass in the way
that suits it, in jumps or in real time.
"""

from __future__ import annotations

from typing import Protocol

from policies.types import ClassId
from policies.values import value


@value
class SimRequest:
    """One request as an engine sees it."""

    request_id: str
    class_id: ClassId
    prompt_tokens: int
    output_tokens: int
    """Tokens after which it is finished."""
    template: str = ""
    """Requests with the same one repeat each other; for methods with a memory."""
    greedy: bool = True
    seed: int = 0
    cached_tokens: int = 0
    """Tokens of the prompt whose keys and values are still there."""


@value
class Emission:
    """What one step gave one request."""

    request_id: str
    tokens: int
    drafted: int
    accepted: int
    finished: bool
    first: bool
    """Whether these are its first tokens."""


@value
class Step:
    """One pass of the target model over everything that runs."""

    duration_s: float
    emissions: tuple[Emission, ...]
    running: int
    waiting: int
    kv_usage: float
    """Share of the cache in use, 0 to 1."""


@value
class EngineCounters:
    """Totals since the engine started."""

    drafts: int
    """Steps of requests that had a draft."""
    drafted: int
    accepted: int
    per_position: tuple[int, ...]
    """Accepted tokens by their position in the draft."""
    generated: int
    prompt: int
    """Tokens of prompts taken in."""
    steps: int
    finished: int
    """Requests that ended by themselves."""


class SimMachine(Protocol):
    """An engine with continuous batching, one step at a time."""

    def submit(self, request: SimRequest) -> None:
        """Takes a request in; it starts or waits at the next step."""

    def cancel(self, request_id: str) -> None:
        """Drops a request; nothing happens when it is not there."""

    def step(self) -> Step | None:
        """Makes one step, whose duration the caller lets pass; None when there is nothing to do."""

    def restart(self) -> None:
        """Forgets memory and counters, drops what runs and waits."""

    @property
    def counters(self) -> EngineCounters:
        """Totals since the start."""
