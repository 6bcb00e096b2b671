"""The seam between a simulated engine and whoever drives it; it simulates nothing itself.

The world runs a machine in jumps, the simulated fleet runs one against the clock. Both see the
same values.
"""

from __future__ import annotations

from typing import Protocol

from policies.types import ClassId
from policies.values import value


@value
class SimRequest:
    """A request as an engine sees it; the text itself is not simulated."""

    request_id: str
    class_id: ClassId
    prompt_tokens: int
    output_tokens: int
    template: str = ""
    """What its text is like: drafters that learn remember by it."""
    greedy: bool = True
    seed: int = 0
    """Decides what the request is like and every draw for it, whichever machine serves it."""
    cached_tokens: int = 0
    """Tokens of the prompt that need no prefill."""


@value
class Emission:
    """What one step gave one request."""

    request_id: str
    tokens: int
    drafted: int
    accepted: int
    finished: bool
    first: bool
    """The request's first tokens."""


@value
class Step:
    """One step over all running requests."""

    duration_s: float
    emissions: tuple[Emission, ...]
    running: int
    waiting: int
    kv_usage: float
    """Share of the KV cache in use, 0 to 1."""


@value
class EngineCounters:
    """Totals since the machine was made; they fall back to 0 at a restart, as an engine's do."""

    drafts: int = 0
    """Steps of a request that had a draft."""
    drafted: int = 0
    accepted: int = 0
    per_position: tuple[int, ...] = ()
    """Accepted tokens by position in the draft."""
    generated: int = 0
    prompt: int = 0
    steps: int = 0
    finished: int = 0


class SimMachine(Protocol):
    """A simulated engine with continuous batching."""

    def submit(self, request: SimRequest) -> None:
        """Queue a request."""
        ...

    def cancel(self, request_id: str) -> None:
        """Forget a request, wherever it is; one that is not known is ignored."""
        ...

    def step(self) -> Step | None:
        """Do one step; None if there is nothing to do.

        The caller advances its clock by `duration_s`: what is in the step happens at its end.
        """
        ...

    def restart(self) -> None:
        """Drop all requests and forget what was learned."""
        ...

    @property
    def counters(self) -> EngineCounters:
        """Totals so far."""
        ...
