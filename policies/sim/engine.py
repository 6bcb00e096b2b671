"""One simulated server: continuous batching, step by step or in jumps. It keeps no clock."""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.sim.acceptance import Plan, acceptance_of, likeness
from policies.sim.books import Running, Totals
from policies.sim.machine import Emission, EngineCounters, SimRequest, Step
from policies.sim.spec import EngineSpec
from policies.types import ClassId, FloatArray

_LONGEST_JUMP: Final = 512
_MOST_TEMPLATES: Final = 10_000
_NO_STEPS: Final[FloatArray] = np.zeros(0)
_LEAST_PREFILL: Final = 1
"""The last token of a prompt is always computed: its output is the first token."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a jump came to; all of it happened at its end."""

    first: tuple[str, ...] = ()
    """Requests that got their first token."""
    finished: tuple[str, ...] = ()


@dataclass(slots=True)
class _Prefill:
    request: SimRequest
    left: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """How a request was decoded, for the record of it."""

    steps: int
    drafted: int
    accepted: int


class SimEngine:
    """Continuous batching over bounded slots; a `SimMachine`.

    Each step verifies the drafts of all running requests at once and prefills waiting prompts,
    in the order they came, in chunks. A request is admitted when a slot is free and its prompt
    and answer fit into the KV cache. What a request is like and how its drafts fare is drawn
    from its seed when its first token comes; only the noise of step times is the server's.

    `peek` and `commit` do many steps at the price of one: between two changes of the batch the
    time of every step is known.
    """

    def __init__(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        self._spec = spec
        self._rng = rng
        self._boot = 1.0
        self._seen: dict[str, float] = {}
        self._empty()

    def _empty(self) -> None:
        self._boot = math.exp(self._spec.boot_sd * self._rng.standard_normal())
        self._seen.clear()
        self._done = 0
        self._origin = 0
        self._tokens: FloatArray = np.zeros(1024)
        self._drafted: FloatArray = np.zeros(1024)
        self._kv: FloatArray = np.zeros(1024)
        self._running: dict[str, Running] = {}
        self._finishes: list[tuple[int, str]] = []
        self._prefilling: deque[_Prefill] = deque()
        self._waiting: deque[SimRequest] = deque()
        self._reserved = 0
        self._ahead: FloatArray | None = None
        self._mixed: tuple[int, ...] = ()
        self._noise: FloatArray = _NO_STEPS
        self._totals = Totals([0] * self._spec.k)
        self._known: set[str] = set()
        self._decoded: dict[str, Decoded] = {}

    @property
    def spec(self) -> EngineSpec:
        """What it is."""
        return self._spec

    @property
    def running(self) -> int:
        """Requests in slots, in prefill too."""
        return len(self._running) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that running requests may come to need."""
        return self._reserved / self._spec.kv_tokens

    @property
    def prefill_left(self) -> int:
        """Tokens of prompts that are queued or in work."""
        queued = sum(_uncached(request) for request in self._waiting)
        return queued + sum(item.left for item in self._prefilling)

    def become(self, spec: EngineSpec) -> None:
        """Change what it is; requests that have their first token go on as planned."""
        self._spec = spec
        self._totals.widen(spec.k)
        self._ahead = None

    def submit(self, request: SimRequest) -> None:
        """Queue a request.

        Raises:
            ValueError: It could never run, or its id is known already.
        """
        if _reservation(request) > self._spec.kv_tokens:
            raise ValueError(f"request {request.request_id} does not fit into the KV cache")
        if request.request_id in self._known:
            raise ValueError(f"request {request.request_id} is known already")
        self._known.add(request.request_id)
        self._waiting.append(request)
        self._ahead = None

    def cancel(self, request_id: str) -> None:
        """Forget a request, wherever it is."""
        if request_id not in self._known:
            return
        self._known.discard(request_id)
        item = self._running.pop(request_id, None)
        if item is not None:
            self._totals.add(item, self._done)
            self._reserved -= _reservation(item.request)
            self._add(item, -1.0)
            self._finishes = [entry for entry in self._finishes if entry[1] != request_id]
            heapq.heapify(self._finishes)
        for prefill in [p for p in self._prefilling if p.request.request_id == request_id]:
            self._prefilling.remove(prefill)
            self._reserved -= _reservation(prefill.request)
        for request in [r for r in self._waiting if r.request_id == request_id]:
            self._waiting.remove(request)
        self._ahead = None

    def restart(self) -> None:
        """Drop all requests, forget what was learned, boot anew."""
        self._empty()

    def requests(self) -> tuple[SimRequest, ...]:
        """All requests that are in it."""
        inside = [item.request for item in self._running.values()]
        return (*inside, *(item.request for item in self._prefilling), *self._waiting)

    def peek(self) -> FloatArray:
        """Durations of the next steps, up to the next change of the batch; none when idle."""
        if self._ahead is None:
            self._ahead = self._look_ahead()
        return self._ahead

    def _look_ahead(self) -> FloatArray:
        self._admit()
        if self._prefilling:
            self._mixed = self._chunks()
            return self._durations(1, sum(self._mixed))
        self._mixed = ()
        if not self._running:
            return _NO_STEPS
        return self._durations(min(self._finishes[0][0] - self._done, _LONGEST_JUMP), 0)

    def _admit(self) -> None:
        while self._waiting and self.running < self._spec.slots:
            need = _reservation(self._waiting[0])
            if self._reserved + need > self._spec.kv_tokens:
                break
            self._reserved += need
            request = self._waiting.popleft()
            self._prefilling.append(_Prefill(request, _uncached(request)))

    def _chunks(self) -> tuple[int, ...]:
        """Tokens that each request in prefill gets in the next step, in their order."""
        decoding = int(self._tokens[self._window(1)][0])
        budget = max(self._spec.chunk_tokens - decoding, 1)
        chunks = []
        for item in self._prefilling:
            chunk = min(item.left, budget)
            if chunk == 0:
                break
            chunks.append(chunk)
            budget -= chunk
        return tuple(chunks)

    def _durations(self, steps: int, prefill: int) -> FloatArray:
        window = self._window(steps)
        cost = self._spec.cost
        seconds = cost.seconds(self._tokens[window], self._drafted[window], self._kv[window])
        if not self._running and self._spec.k:
            # Nothing is drafted while nothing decodes.
            seconds = seconds - cost.draft_s
        seconds = seconds + prefill * cost.prefill_per_token_s
        if self._spec.jitter_sd > 0.0:
            if len(self._noise) < steps:
                fresh = self._rng.standard_normal(_LONGEST_JUMP)
                self._noise = np.concatenate([self._noise, fresh])
            seconds = seconds * np.exp(self._spec.jitter_sd * self._noise[:steps])
        return seconds * self._boot

    def commit(self, steps: int) -> Progress:
        """Do so many of the steps that `peek` showed."""
        if not 0 < steps <= len(self.peek()):
            raise ValueError(f"{steps} of {len(self.peek())} steps")
        whole = steps == len(self.peek())
        self._done += steps
        self._noise = self._noise[steps:]
        self._totals.steps += steps
        self._ahead = None if whole else self._ahead[steps:]  # type: ignore[index]
        finished = self._finish() if whole else ()
        first, short = self._prefilled() if self._mixed else ((), ())
        return Progress(first, (*finished, *short))

    def _finish(self) -> tuple[str, ...]:
        gone = []
        while self._finishes and self._finishes[0][0] <= self._done:
            request_id = heapq.heappop(self._finishes)[1]
            self._leave(self._running.pop(request_id))
            gone.append(request_id)
        return tuple(gone)

    def _leave(self, item: Running) -> None:
        request = item.request
        drafted, accepted = self._totals.add(item, self._done)
        self._totals.finished += 1
        self._known.discard(request.request_id)
        self._reserved -= _reservation(request)
        self._decoded[request.request_id] = Decoded(item.plan.steps, drafted, accepted)
        if request.template:
            self._remember(request.template, request.output_tokens)

    def _remember(self, template: str, tokens: int) -> None:
        self._seen[template] = self._seen.pop(template, 0.0) + tokens
        if len(self._seen) > _MOST_TEMPLATES:
            self._seen.pop(next(iter(self._seen)))

    def _prefilled(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Take the chunks of the step off; who is done decodes from the next one on."""
        first, short = [], []
        for item, chunk in zip(tuple(self._prefilling), self._mixed, strict=False):
            item.left -= chunk
            if item.left:
                break
            self._prefilling.popleft()
            request = item.request
            running = Running(request, self._plan(request), self._done)
            self._totals.generated += 1
            self._totals.prompt += request.prompt_tokens
            first.append(request.request_id)
            if running.plan.steps == 0:
                self._leave(running)
                short.append(request.request_id)
                continue
            self._running[request.request_id] = running
            heapq.heappush(self._finishes, (self._done + running.plan.steps, request.request_id))
            self._add(running, 1.0)
        return tuple(first), tuple(short)

    def decoded(self, request_id: str) -> Decoded:
        """How a finished request was decoded; to be asked once."""
        return self._decoded.pop(request_id)

    def _plan(self, request: SimRequest) -> Plan:
        tokens = request.output_tokens - 1
        cell = self._spec.cell(request.class_id)
        if cell is None:
            return Plan(np.ones(tokens, dtype=np.int64), np.zeros(tokens, dtype=np.int64))
        learned = self.learned(request.class_id, request.template)
        return planned(self._spec, request, learned)

    def learned(self, class_id: ClassId, template: str) -> float:
        """How much of what there is to learn of a template its drafter knows, 0 to 1."""
        cell = self._spec.cell(class_id)
        if cell is None or cell.learned_tau is None:
            return 0.0
        return 1.0 - math.exp(-self._seen.get(template, 0.0) / cell.learn_tokens)

    def _add(self, item: Running, sign: float) -> None:
        """Put what a plan asks of each step to come into the sums, or take it out."""
        plan, skip = item.plan, self._done - item.joined
        window = self._window(plan.steps - skip)
        self._drafted[window] += sign * plan.drafted[skip:]
        self._tokens[window] += sign * (plan.drafted[skip:] + 1)
        context = item.request.prompt_tokens + 1 + plan.tokens.cumsum() - plan.tokens
        self._kv[window] += sign * context[skip:]

    def _window(self, steps: int) -> slice:
        """Where the next steps stand in the sums; what is past makes room."""
        past, size = self._done - self._origin, len(self._tokens)
        if past + steps > size:
            longer = max(size, 2 * (size - past), 2 * steps)
            for name in ("_tokens", "_drafted", "_kv"):
                old: FloatArray = getattr(self, name)
                fresh = np.zeros(longer)
                fresh[: size - past] = old[past:]
                setattr(self, name, fresh)
            self._origin, past = self._done, 0
        return slice(past, past + steps)

    def step(self) -> Step | None:
        """Do one step; None when idle."""
        durations = self.peek()
        if not len(durations):
            return None
        running, waiting = self.running, self.waiting
        before = [(name, item, self._done - item.joined) for name, item in self._running.items()]
        progress = self.commit(1)
        finished = set(progress.finished)
        emissions = [_emission(name, item, at, name in finished) for name, item, at in before]
        emissions += [
            Emission(name, 1, 0, 0, finished=name in finished, first=True)
            for name in progress.first
        ]
        for name in finished:
            self._decoded.pop(name, None)
        return Step(float(durations[0]), tuple(emissions), running, waiting, self.kv_usage)

    @property
    def counters(self) -> EngineCounters:
        """Totals since it was booted."""
        totals = self._totals.copy()
        for item in self._running.values():
            totals.add(item, self._done)
        return totals.counters()


def planned(spec: EngineSpec, request: SimRequest, learned: float = 0.0) -> Plan:
    """How an engine that drafts would decode a request: the same at each such engine."""
    cell = spec.cell(request.class_id)
    assert cell is not None, "plain decoding needs no plan"
    like = likeness(
        spec,
        seed=request.seed,
        template=request.template,
        greedy=request.greedy,
        learned=learned,
    )
    rng = np.random.default_rng((request.seed, 3))
    return acceptance_of(cell).plan(request.output_tokens - 1, like, rng)


def _emission(name: str, item: Running, at: int, finished: bool) -> Emission:  # noqa: FBT001
    tokens, drafted = int(item.plan.tokens[at]), int(item.plan.drafted[at])
    return Emission(name, tokens, drafted, tokens - 1, finished=finished, first=False)


def _uncached(request: SimRequest) -> int:
    return max(request.prompt_tokens - request.cached_tokens, _LEAST_PREFILL)


def _reservation(request: SimRequest) -> int:
    return request.prompt_tokens + request.output_tokens
