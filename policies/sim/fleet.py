"""The pools of a world while it runs: which server would take a request, and how pools stand."""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.sim.replica import Replica
from policies.sim.routing import PoolLoad
from policies.sim.spec import EngineSpec, Event, WorldSpec
from policies.sim.traffic import Arrival

_HOME_SLACK: Final = 2
"""A server that holds the beginning of a prompt may have so many times the load of the idlest, and
as many requests more, before its pool sends the prompt elsewhere. Judgement: prefix-aware balancers
use factors of 1.5 to 3."""


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
