"""A server of a world: an engine with a clock and a prefix cache. It does not choose."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from policies.sim.engine import SimEngine
from policies.sim.machine import SimRequest
from policies.sim.routing import Ask, Choice
from policies.sim.spec import EngineSpec
from policies.sim.traffic import Arrival
from policies.types import FloatArray


class PrefixCache:
    """Which beginnings of prompts a server still has; the least recently used go first."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens
        self._held: OrderedDict[str, int] = OrderedDict()
        self._total = 0

    def tokens(self, key: str) -> int:
        """Tokens held under a key; 0 for none."""
        return self._held.get(key, 0)

    def put(self, key: str, tokens: int) -> None:
        """Hold so many tokens under a key, as the most recent."""
        self._total += tokens - self._held.pop(key, 0)
        self._held[key] = tokens
        while self._total > self._capacity and len(self._held) > 1:
            self._total -= self._held.popitem(last=False)[1]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
        self._total = 0


@dataclass(slots=True)
class Serving:
    """A request on its way through a server; its first token is noted when it comes."""

    arrival: Arrival
    ask: Ask
    choice: Choice
    replica: int
    load: int
    cached_tokens: int
    begun_s: float
    first_s: float | None = None


class Replica:
    """A server with its clock.

    What arrives during a step waits for its end. Time is the world's; the engine has none.
    """

    def __init__(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        self.engine = SimEngine(spec, rng)
        self.prefixes = PrefixCache(spec.kv_tokens)
        self.up_from_s = 0.0
        self._clock_s = 0.0
        self._ends: FloatArray = np.zeros(0)
        self._pending: list[SimRequest] = []
        self._serving: dict[str, Serving] = {}

    @property
    def requests(self) -> int:
        """Requests that are at the server."""
        return len(self._serving)

    @property
    def running(self) -> int:
        """Requests in slots."""
        return self.engine.running

    @property
    def waiting(self) -> int:
        """Requests in its queue."""
        return len(self._serving) - self.engine.running

    @property
    def ahead_tokens(self) -> int:
        """Tokens of prompts that are there and have no answer yet."""
        return sum(
            serving.arrival.request.prompt_tokens - serving.cached_tokens
            for serving in self._serving.values()
            if serving.first_s is None
        )

    def waited_s(self, at_s: float) -> float:
        """How long the first in line has waited by then; 0 where nobody is.

        Whoever has been overtaken waits for something else than the line.
        """
        serving = self._serving.values()
        reached = max((s.begun_s for s in serving if s.first_s is not None), default=-np.inf)
        line = [s.begun_s for s in serving if s.first_s is None and s.begun_s > reached]
        return at_s - min(line) if line else 0.0

    def up(self, at_s: float) -> bool:
        """Whether it answers."""
        return at_s >= self.up_from_s

    def cached_tokens(self, arrival: Arrival) -> int:
        """Tokens of a prompt that it has."""
        session = self.prefixes.tokens(f"s{arrival.session}") if arrival.turn else 0
        template = self.prefixes.tokens(arrival.request.template)
        held = max(session, min(template, arrival.shared_tokens))
        return min(held, arrival.request.prompt_tokens - 1)

    def submit(self, at_s: float, serving: Serving) -> None:
        """Take a request."""
        request = replace(serving.arrival.request, cached_tokens=serving.cached_tokens)
        self._serving[request.request_id] = serving
        if not len(self._ends):
            self._clock_s = max(at_s, self.up_from_s)
            self.engine.submit(request)
            self._look()
            return
        self._pending.append(request)
        in_progress = int(np.searchsorted(self._ends, at_s, side="left"))
        self._ends = self._ends[: in_progress + 1]

    def _look(self) -> None:
        self._ends = self._clock_s + self.engine.peek().cumsum()

    @property
    def next_s(self) -> float:
        """When something happens next; infinite when idle."""
        return float(self._ends[-1]) if len(self._ends) else np.inf

    def run(self, until_s: float) -> Iterator[tuple[Serving, float]]:
        """Let time pass; yields what was finished, and when."""
        while len(self._ends) and self.next_s <= until_s:
            progress = self.engine.commit(len(self._ends))
            self._clock_s = float(self._ends[-1])
            for request_id in progress.first:
                self._serving[request_id].first_s = self._clock_s
            done = [self._serving.pop(request_id) for request_id in progress.finished]
            for request in self._pending:
                self.engine.submit(request)
            self._pending.clear()
            self._look()
            for serving in done:
                self._hold(serving.arrival)
                yield serving, self._clock_s

    def _hold(self, arrival: Arrival) -> None:
        request = arrival.request
        if arrival.shared_tokens:
            self.prefixes.put(request.template, arrival.shared_tokens)
        self.prefixes.put(f"s{arrival.session}", request.prompt_tokens + request.output_tokens)

    def fail(self, at_s: float, seconds: float) -> list[Serving]:
        """Go down; what was being served is lost."""
        lost = list(self._serving.values())
        self._serving.clear()
        self._pending.clear()
        self._ends = np.zeros(0)
        self.engine.restart()
        self.prefixes.clear()
        self.up_from_s = at_s + seconds
        return lost
