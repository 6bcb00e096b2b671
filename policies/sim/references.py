"""Routers to measure policies against; those that are told the truth say so in their name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.sim.acceptance import acceptance_of, shift_of
from policies.sim.curves import time_per_token
from policies.sim.engine import planned
from policies.sim.fleet import Fleet
from policies.sim.replica import Replica
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad, Router
from policies.sim.spec import EngineSpec
from policies.sim.traffic import Arrival
from policies.types import ClassId


class _Unlearning:
    """A router that nothing can teach."""

    def learn(self, outcome: Outcome) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class FixedPool(_Unlearning):
    """Always one pool; while it has no server, the least loaded other."""

    pool: int

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Pick it."""
        return Choice(self.pool if loads[self.pool].up else least_loaded(ask, loads))


class RandomPool(_Unlearning):
    """Every pool that is up alike."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng((seed, 13))

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Draw one."""
        del ask
        up = [number for number, load in enumerate(loads) if load.up]
        return Choice(up[int(self._rng.integers(len(up)))], 1.0 / len(up))


class LeastLoaded(_Unlearning):
    """The pool whose servers have least to do, whatever they decode with."""

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Pick it."""
        return Choice(least_loaded(ask, loads))


def least_loaded(ask: Ask, loads: Sequence[PoolLoad]) -> int:
    """The pool whose server for this request has the fewest; ties go round."""
    up = [number for number, load in enumerate(loads) if load.up]
    return min(up, key=lambda n: (loads[n].load, (n + ask.index) % len(loads)))


class _Foreseeing(_Unlearning):
    """A router that is shown the fleet and what arrives."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._known: Sequence[Arrival] = ()
        self._output: Mapping[ClassId, float] = {}

    def attach(self, fleet: Fleet, known: Sequence[Arrival]) -> None:
        """Take them."""
        self._fleet, self._known = fleet, known
        by_class: dict[ClassId, list[int]] = {}
        for arrival in known:
            by_class.setdefault(arrival.told_class, []).append(arrival.request.output_tokens)
        self._output = {name: float(np.mean(tokens)) for name, tokens in by_class.items()}

    @property
    def fleet(self) -> Fleet:
        """The fleet; it is there once a world runs."""
        assert self._fleet is not None, "only a world calls it"
        return self._fleet


class StaticBestTruth(_Foreseeing):
    """For each class the pool that is best at a given load, wherever the fleet stands."""

    def __init__(self, load: int = 1) -> None:
        super().__init__()
        self._load = load

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Pick it, or the next best that is up."""
        up = [number for number, load in enumerate(loads) if load.up]
        return Choice(min(up, key=lambda n: self._time_per_token(n, ask.class_id)))

    def _time_per_token(self, pool: int, class_id: ClassId) -> float:
        return time_per_token(self.fleet.engines[pool], class_id, self._load, 500.0)


class OracleTruth(_Foreseeing):
    """The pool with the least time for this request at the loads of this moment.

    It predicts from the parameters of the world: what waits, prefill, and steps at the batch the
    request would join. `foresee`: it knows the request's own acceptance and length; else only
    what is so for its class on average. `altruism`: how much of the time that others lose to the
    request counts as its own. `patience`: how much more a second before the first token counts.
    """

    def __init__(
        self, *, foresee: bool = False, altruism: float = 0.0, patience: float = 0.0
    ) -> None:
        super().__init__()
        self._foresee, self._altruism, self._patience = foresee, altruism, patience

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Pick the least expected time."""
        arrival = self._known[ask.index]
        up = [number for number, load in enumerate(loads) if load.up]
        return Choice(min(up, key=lambda n: (self._cost(n, ask, arrival, loads[n]), n)))

    def _cost(self, pool: int, ask: Ask, arrival: Arrival, load: PoolLoad) -> float:
        number = self.fleet.pick(pool, arrival)
        assert number is not None, "it is up"
        spec, replica = self.fleet.engines[pool], self.fleet.pools[pool][number]
        output = self._output[ask.class_id]
        if self._foresee:
            output = float(arrival.request.output_tokens)
        steps, drafted = self._decoding(pool, spec, ask, arrival, output)
        others = load.load - 1
        context = arrival.request.prompt_tokens + output / 2.0
        alone, joined = (
            float(spec.cost.seconds(n * (1.0 + drafted), n * drafted, n * context))
            for n in (others, others + 1)
        )
        prompt = arrival.request.prompt_tokens - load.cached_tokens
        prefill = prompt * spec.cost.prefill_per_token_s
        first = _queue_s(spec, replica, load, joined * steps) + prefill + joined
        own = first + joined * steps + self._patience * first
        own += self._beyond(first, joined * steps / max(output - 1.0, 1.0))
        if self._altruism == 0.0 or others == 0:
            return own
        harm = min(others, load.slots) * (prefill + (joined - alone) * steps)
        return own + self._altruism * harm

    def _beyond(self, ttft_s: float, tpot_s: float) -> float:
        """What a request costs besides for being slow, in seconds."""
        del ttft_s, tpot_s
        return 0.0

    def _decoding(
        self, pool: int, spec: EngineSpec, ask: Ask, arrival: Arrival, output: float
    ) -> tuple[float, float]:
        """Steps of the request after its first token, and tokens drafted in each."""
        cell = spec.cell(ask.class_id)
        if cell is None:
            return output - 1.0, 0.0
        acceptance, request = acceptance_of(cell), arrival.request
        learned = self._learned(pool, ask.class_id, request.template)
        if self._foresee:
            plan = planned(spec, request, learned)
            return float(plan.steps), float(plan.drafted.mean()) if plan.steps else 0.0
        shift = shift_of(spec, template=request.template, greedy=request.greedy)
        tau = acceptance.mean_tau(shift, learned)
        rate = (tau - 1.0) / spec.k
        return (output - 1.0) / tau, acceptance.drafted_per_step(rate)

    def _learned(self, pool: int, class_id: ClassId, template: str) -> float:
        replicas = self.fleet.pools[pool]
        known = [replica.engine.learned(class_id, template) for replica in replicas]
        return sum(known) / len(known)


class OracleWithin(OracleTruth):
    """One that is told where the tails of plain decoding begin, and keeps requests from there.

    That is what no router can know. A request that is expected beyond pays for it, by the
    logarithm of how far.

    Args:
        ttft_s: 99th percentile of plain decoding's TTFT.
        tpot_s: And of its time per token.
        ttft_price: Seconds for a TTFT e times as long.
        tpot_price: And for a time per token e times as long.
        altruism: As of `OracleTruth`.
    """

    def __init__(
        self,
        ttft_s: float,
        tpot_s: float,
        *,
        ttft_price: float,
        tpot_price: float,
        altruism: float = 0.5,
    ) -> None:
        super().__init__(altruism=altruism)
        self._begins = _NEAR * ttft_s, _NEAR * tpot_s
        self._prices = ttft_price, tpot_price

    def _beyond(self, ttft_s: float, tpot_s: float) -> float:
        parts = zip((ttft_s, tpot_s), self._begins, self._prices, strict=True)
        return sum(price * max(math.log(time / begin), 0.0) for time, begin, price in parts)


_NEAR: Final = 0.85
"""Expectations of a class; so far from them its own requests lie."""


def _queue_s(spec: EngineSpec, replica: Replica, load: PoolLoad, service_s: float) -> float:
    """Time until a slot is free and the prompts before it are done."""
    ahead = max(load.load - spec.slots, 0) / spec.slots * service_s
    return ahead + replica.engine.prefill_left * spec.cost.prefill_per_token_s


RouterFactory = Callable[[int], Router]

REFERENCES: Final[Mapping[str, RouterFactory]] = {
    "random": RandomPool,
    "least_loaded": lambda _: LeastLoaded(),
    "static_best": lambda _: StaticBestTruth(),
    "class_oracle": lambda _: OracleTruth(),
    "class_oracle_considerate": lambda _: OracleTruth(altruism=0.5),
    "class_oracle_altruist": lambda _: OracleTruth(altruism=1.5),
    "request_oracle": lambda _: OracleTruth(foresee=True),
    "request_oracle_considerate": lambda _: OracleTruth(foresee=True, altruism=0.5),
    "request_oracle_altruist": lambda _: OracleTruth(foresee=True, altruism=1.5),
}
"""References by name; each takes a seed. One fixed pool is `FixedPool(number)`."""

ORACLES: Final = ("class_oracle_considerate", "class_oracle_altruist")
"""The oracle that shares are counted against is the better of these, world by world and seed by
seed. Measured in four worlds: with few requests at a server 0.5 is best, or as good as any, with
sixty 1.5 is; neither 0 nor 3 is anywhere."""
