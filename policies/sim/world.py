"""Runs a world: arrivals meet a router and its pools, in the order of time. It prints nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np

from policies.sim.engine import SimEngine
from policies.sim.machine import SimRequest
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad, Router
from policies.sim.spec import EngineSpec, Event, WorldSpec
from policies.sim.traffic import Arrival, arrivals
from policies.types import ArmId, FloatArray, SpecUsage, Status, Trial

_HOME_SLACK: Final = 2
"""A server that holds the beginning of a prompt may have so many times the load of the idlest, and
as many requests more, before its pool sends the prompt elsewhere. Judgement: prefix-aware balancers
use factors of 1.5 to 3."""


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
class _Serving:
    """A request on its way through a server."""

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
        self._serving: dict[str, _Serving] = {}

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

    def up(self, at_s: float) -> bool:
        """Whether it answers."""
        return at_s >= self.up_from_s

    def cached_tokens(self, arrival: Arrival) -> int:
        """Tokens of a prompt that it has."""
        session = self.prefixes.tokens(f"s{arrival.session}") if arrival.turn else 0
        template = self.prefixes.tokens(arrival.request.template)
        held = max(session, min(template, arrival.shared_tokens))
        return min(held, arrival.request.prompt_tokens - 1)

    def submit(self, at_s: float, serving: _Serving) -> None:
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

    def run(self, until_s: float) -> Iterator[tuple[_Serving, float]]:
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

    def fail(self, at_s: float, seconds: float) -> list[_Serving]:
        """Go down; what was being served is lost."""
        lost = list(self._serving.values())
        self._serving.clear()
        self._pending.clear()
        self._ends = np.zeros(0)
        self.engine.restart()
        self.prefixes.clear()
        self.up_from_s = at_s + seconds
        return lost


class Fleet:
    """The pools of a world while it runs."""

    def __init__(self, spec: WorldSpec, seed: int) -> None:
        self.spec = spec
        self.now_s = 0.0
        self.pools: list[list[Replica]] = []
        self.engines: list[EngineSpec] = [pool.spec for pool in spec.pools]
        number = 0
        for pool in spec.pools:
            replicas = []
            for _ in range(pool.replicas):
                # By the number of the server, so it is the same server whatever it runs.
                rng = np.random.default_rng((seed, 12, number))
                replicas.append(Replica(pool.spec, rng))
                number += 1
            self.pools.append(replicas)
        self._turn = 0

    def pick(self, pool: int, arrival: Arrival) -> int | None:
        """The server of a pool that would take a request; None if none is up."""
        replicas = self.pools[pool]
        up = [n for n, replica in enumerate(replicas) if replica.up(self.now_s)]
        if not up:
            return None
        turn = arrival.index
        idlest = min(up, key=lambda n: (replicas[n].requests, (n + turn) % len(replicas)))
        if arrival.turn == 0:
            return idlest
        most = _HOME_SLACK * (replicas[idlest].requests + 1)
        homes = [n for n in up if replicas[n].requests <= most]
        best = max(homes, key=lambda n: replicas[n].cached_tokens(arrival))
        return best if replicas[best].cached_tokens(arrival) else idlest

    def load(self, pool: int, arrival: Arrival) -> PoolLoad:
        """How a pool stands, for a request."""
        spec, replicas = self.spec.pools[pool], self.pools[pool]
        number = self.pick(pool, arrival)
        if number is None:
            return PoolLoad(spec.name, 0, 0, 0, 0, spec.spec.slots, 0)
        chosen = replicas[number]
        up = [replica for replica in replicas if replica.up(self.now_s)]
        return PoolLoad(
            pool=spec.name,
            up=len(up),
            running=sum(replica.running for replica in up),
            waiting=sum(replica.waiting for replica in up),
            load=chosen.requests + 1,
            slots=spec.spec.slots,
            cached_tokens=chosen.cached_tokens(arrival),
        )

    def drift(self, event: Event) -> None:
        """Change a pool's drafter."""
        pool = [spec.name for spec in self.spec.pools].index(event.pool)
        self.engines[pool] = self.engines[pool].scaled(event.class_id, event.factor)
        for replica in self.pools[pool]:
            replica.engine.become(self.engines[pool])


@runtime_checkable
class Foreseeing(Protocol):
    """A router that is shown the truth: references only, never a policy."""

    def attach(self, fleet: Fleet, known: Sequence[Arrival]) -> None:
        """Take the fleet and all that will arrive."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a world under one router; arrays are by number of the request.

    Attributes:
        e2e_s: From its arrival to its last token, lost attempts included.
        ttft_s: From its arrival to its first token.
        tpot_s: Time per token after the first; NaN for answers of one token.
        tokens: Tokens of the answer.
        pool: Where it was served in the end.
        load: Requests at the server when it began, itself included.
        probability: Of the pool, when it was chosen.
        classes: Its true class.
        lost: Attempts that failed.
        outcomes: All that the router was told, in its order.
    """

    e2e_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    tokens: FloatArray
    pool: FloatArray
    load: FloatArray
    probability: FloatArray
    classes: tuple[str, ...]
    lost: int
    outcomes: tuple[Outcome, ...] = field(repr=False, default=())


def run(
    spec: WorldSpec,
    router: Router,
    seed: int,
    *,
    known: Sequence[Arrival] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Let a world pass from its first arrival to its last answer.

    Args:
        spec: The world.
        router: Who routes.
        seed: The same seed gives the same arrivals, and a request the same luck with the same
            method, whoever routes.
        known: The arrivals, where they have been drawn already.
        progress: Called with the number of each request as it arrives.

    Raises:
        ValueError: The router chose a pool without a server.
    """
    if known is None:
        known = arrivals(spec.traffic, seed, spec.events)
    return _Passage(spec, router, seed, known).run(progress)


class _Passage:
    """One run of a world."""

    def __init__(
        self, spec: WorldSpec, router: Router, seed: int, known: Sequence[Arrival]
    ) -> None:
        self._fleet = Fleet(spec, seed)
        self._router = router
        self._known = known
        self._homes: dict[int, int] = {}
        self._outcomes: list[Outcome] = []
        self._lost = 0
        self._events = sorted(
            (event for event in spec.events if event.kind != "mix"),
            key=lambda event: event.at_request,
        )
        if isinstance(router, Foreseeing):
            router.attach(self._fleet, known)

    def run(self, progress: Callable[[int], None] | None) -> Run:
        for arrival in self._known:
            self._pass_until(arrival.at_s)
            while self._events and self._events[0].at_request <= arrival.index:
                self._happen(self._events.pop(0))
            self._route(arrival, 0)
            if progress is not None:
                progress(arrival.index)
        self._pass_until(np.inf)
        return self._result()

    def _pass_until(self, until_s: float) -> None:
        done = [
            (ended_s, pool, serving, replica)
            for pool, replicas in enumerate(self._fleet.pools)
            for replica in replicas
            if replica.next_s <= until_s
            for serving, ended_s in replica.run(until_s)
        ]
        done.sort(key=lambda entry: entry[0])
        for ended_s, _, serving, replica in done:
            self._tell(self._outcome(serving, ended_s, replica))
        self._fleet.now_s = until_s

    def _happen(self, event: Event) -> None:
        if event.kind == "drift":
            self._fleet.drift(event)
            return
        pool = [spec.name for spec in self._fleet.spec.pools].index(event.pool)
        if event.replica >= len(self._fleet.pools[pool]):
            return
        now_s = self._fleet.now_s
        lost = self._fleet.pools[pool][event.replica].fail(now_s, event.seconds)
        for serving in lost:
            self._lost += 1
            self._tell(self._failure(serving, now_s))
        for serving in lost:
            self._route(serving.arrival, serving.ask.attempt + 1)

    def _route(self, arrival: Arrival, attempt: int) -> None:
        fleet = self._fleet
        loads = [fleet.load(pool, arrival) for pool in range(len(fleet.pools))]
        ask = Ask(
            index=arrival.index,
            at_s=fleet.now_s,
            class_id=arrival.told_class,
            prompt_tokens=arrival.request.prompt_tokens,
            template=arrival.request.template,
            greedy=arrival.request.greedy,
            session=arrival.session,
            turn=arrival.turn,
            home=self._homes.get(arrival.session) if arrival.turn else None,
            attempt=attempt,
        )
        choice = self._router.choose(ask, loads)
        number = fleet.pick(choice.pool, arrival)
        if number is None:
            raise ValueError(f"pool {loads[choice.pool].pool!r} has no server up")
        load = loads[choice.pool]
        serving = _Serving(arrival, ask, choice, number, load.load, load.cached_tokens, fleet.now_s)
        self._homes[arrival.session] = choice.pool
        fleet.pools[choice.pool][number].submit(fleet.now_s, serving)

    def _tell(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._router.learn(outcome)

    def _outcome(self, serving: _Serving, ended_s: float, replica: Replica) -> Outcome:
        arrival, first_s = serving.arrival, serving.first_s
        assert first_s is not None, "an answer has a first token"
        tokens = arrival.request.output_tokens
        pool = self._fleet.spec.pools[serving.choice.pool]
        decoded = replica.engine.decoded(arrival.request.request_id)
        # The first token is one step's too, as engines count them.
        spec = SpecUsage(
            steps=decoded.steps + 1,
            drafted=decoded.drafted,
            accepted=decoded.accepted,
            num_speculative_tokens=pool.k,
        )
        trial = Trial(
            class_id=serving.ask.class_id,
            arm_id=ArmId(pool.name),
            status=Status.OK,
            streamed=True,
            propensity=serving.choice.probability,
            ttft_s=first_s - serving.begun_s,
            tpot_s=(ended_s - first_s) / (tokens - 1) if tokens > 1 else None,
            e2e_s=ended_s - serving.begun_s,
            tokens=tokens,
            spec=spec if pool.k else None,
        )
        return self._ended(serving, ended_s, trial)

    def _failure(self, serving: _Serving, ended_s: float) -> Outcome:
        name = self._fleet.spec.pools[serving.choice.pool].name
        trial = Trial(
            class_id=serving.ask.class_id,
            arm_id=ArmId(name),
            status=Status.FAILED,
            streamed=True,
            propensity=serving.choice.probability,
        )
        return self._ended(serving, ended_s, trial)

    @staticmethod
    def _ended(serving: _Serving, ended_s: float, trial: Trial) -> Outcome:
        return Outcome(
            ask=serving.ask,
            pool=serving.choice.pool,
            replica=serving.replica,
            load=serving.load,
            cached_tokens=serving.cached_tokens,
            begun_s=serving.begun_s,
            ended_s=ended_s,
            trial=trial,
        )

    def _result(self) -> Run:
        served = sorted(
            (outcome for outcome in self._outcomes if outcome.trial.status is Status.OK),
            key=lambda outcome: outcome.ask.index,
        )
        trials = [outcome.trial for outcome in served]
        arrived = np.array([arrival.at_s for arrival in self._known])
        late = np.array([outcome.begun_s for outcome in served]) - arrived
        return Run(
            e2e_s=_array(trial.e2e_s for trial in trials) + late,
            ttft_s=_array(trial.ttft_s for trial in trials) + late,
            tpot_s=_array(trial.tpot_s for trial in trials),
            tokens=_array(trial.tokens for trial in trials),
            pool=_array(outcome.pool for outcome in served),
            load=_array(outcome.load for outcome in served),
            probability=_array(outcome.trial.propensity for outcome in served),
            classes=tuple(arrival.request.class_id for arrival in self._known),
            lost=self._lost,
            outcomes=tuple(self._outcomes),
        )


def _array(values: Iterator[float | None]) -> FloatArray:
    return np.array([np.nan if item is None else item for item in values], dtype=np.float64)
