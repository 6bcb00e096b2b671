"""The pools of a world while it runs: which server would take a request, and how pools stand."""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.balance import cost, pick, saved
from policies.sim.replica import Replica
from policies.sim.routing import PoolLoad
from policies.sim.spec import EngineSpec, Event, WorldSpec
from policies.sim.traffic import Arrival

_BYTES_PER_TOKEN: Final = 4
"""Of English, roughly: the balancer knows how long a prompt is in bytes."""
_EVENLY: Final = (0.7548776662466927, 0.5698402909980532)
"""Powers of the reciprocal of the plastic number: multiples of both fill the square evenly (R2 of
Roberts, 2018). They stand for two draws of each request and need no generator, so a pool can be
asked where a request would go before it goes there."""


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

    def pick(self, pool: int, arrival: Arrival) -> int | None:
        """The server of a pool that would take a request; None if none is up.

        By the rule that the proxy itself places by (`policies.balance`).
        """
        replicas = self.pools[pool]
        up = [replica for replica in replicas if replica.up(self.now_s)]
        if not up:
            return None
        costs = [_cost(replica, arrival) for replica in up]
        draws = iter([arrival.index * step % 1.0 for step in _EVENLY])
        return replicas.index(up[pick(costs, [1.0] * len(up), draws.__next__)])

    def load(self, pool: int, arrival: Arrival) -> PoolLoad:
        """How a pool stands, for a request."""
        spec, replicas = self.spec.pools[pool], self.pools[pool]
        number = self.pick(pool, arrival)
        if number is None:
            return PoolLoad(spec.name, 0, 0, 0, 0, spec.spec.slots, 0, 0, 0.0)
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
            ahead_tokens=chosen.ahead_tokens,
            waited_s=chosen.waited_s(self.now_s),
        )

    def drift(self, event: Event) -> None:
        """Change a pool's drafter."""
        pool = [spec.name for spec in self.spec.pools].index(event.pool)
        self.engines[pool] = self.engines[pool].scaled(event.class_id, event.factor)
        for replica in self.pools[pool]:
            replica.engine.become(self.engines[pool])


def _cost(replica: Replica, arrival: Arrival) -> float:
    """By the balancer's rule, without what engines tell of queues and caches every other second."""
    tokens = arrival.request.prompt_tokens
    matched = replica.cached_tokens(arrival) / tokens
    return cost(replica.requests, 1.0, saved(matched, tokens * _BYTES_PER_TOKEN))
