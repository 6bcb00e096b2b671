"""The books of an engine: what its running requests have come to. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.sim.acceptance import Plan
from policies.sim.machine import EngineCounters, SimRequest


@dataclass(slots=True)
class Running:
    """A request in a slot that has its first token."""

    request: SimRequest
    plan: Plan
    joined: int
    """Step in which its plan begins; its first token came in the step before."""


@dataclass(slots=True)
class Totals:
    """Totals of an engine, as its counters show them."""

    per_position: list[int]
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    generated: int = 0
    prompt: int = 0
    steps: int = 0
    finished: int = 0

    def copy(self) -> Totals:
        """The same, to be added to apart."""
        return replace(self, per_position=list(self.per_position))

    def widen(self, k: int) -> None:
        """Have room for k positions at least."""
        self.per_position += [0] * (k - len(self.per_position))

    def add(self, item: Running, done: int) -> tuple[int, int]:
        """Add what a request has done so far; its drafted and accepted tokens."""
        steps = min(done - item.joined, item.plan.steps)
        emitted, draft = item.plan.tokens[:steps], item.plan.drafted[:steps]
        generated, drafted = int(emitted.sum()), int(draft.sum())
        self.generated += generated
        self.accepted += generated - steps
        if drafted:
            self.drafted += drafted
            self.drafts += int(np.count_nonzero(draft))
            counts = np.bincount(emitted, minlength=2)[2:]
            for position, reached in enumerate(counts[::-1].cumsum()[::-1].tolist()):
                self.per_position[position] += reached
        return drafted, generated - steps

    def counters(self) -> EngineCounters:
        """As a value."""
        return EngineCounters(
            drafts=self.drafts,
            drafted=self.drafted,
            accepted=self.accepted,
            per_position=tuple(self.per_position),
            generated=self.generated,
            prompt=self.prompt,
            steps=self.steps,
            finished=self.finished,
        )
