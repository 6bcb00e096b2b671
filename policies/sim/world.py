"""Runs a world: arrivals meet a router and its pools, in the order of time. It prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from policies.sim.fleet import Fleet
from policies.sim.replica import Replica, Serving
from policies.sim.routing import Ask, Outcome, Router
from policies.sim.spec import Event, WorldSpec
from policies.sim.traffic import Arrival, arrivals
from policies.types import ArmId, FloatArray, SpecUsage, Status, Trial


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
        serving = Serving(arrival, ask, choice, number, load.load, load.cached_tokens, fleet.now_s)
        self._homes[arrival.session] = choice.pool
        fleet.pools[choice.pool][number].submit(fleet.now_s, serving)

    def _tell(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._router.learn(outcome)

    def _outcome(self, serving: Serving, ended_s: float, replica: Replica) -> Outcome:
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

    def _failure(self, serving: Serving, ended_s: float) -> Outcome:
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
    def _ended(serving: Serving, ended_s: float, trial: Trial) -> Outcome:
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
