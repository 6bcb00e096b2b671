"""Compares routers in a world: with plain decoding, and with what could be gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.sim.references import ORACLES, REFERENCES, FixedPool
from policies.sim.routing import Router
from policies.sim.spec import WorldSpec
from policies.sim.traffic import Arrival, arrivals
from policies.sim.world import Run, run

LEAST_GAIN: Final = 0.05
"""Where the oracle gains less than this there is nothing to share."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a world and seed come to without a choice and with the best one.

    Attributes:
        world: The world.
        seed: The seed.
        known: What arrives.
        plain: The same arrivals with all servers decoding plainly.
        oracle: The better of the oracles that know classes and loads.
        oracle_name: Which.
    """

    world: WorldSpec
    seed: int
    known: Sequence[Arrival]
    plain: Run
    oracle: Run
    oracle_name: str

    def run(self, router: Router) -> Run:
        """Run a router on the same arrivals."""
        return run(self.world, router, self.seed, known=self.known)

    def all_in(self, pool: str) -> Run:
        """Run the same servers with all of them as in one pool."""
        world = self.world.merged(pool)
        number = [spec.name for spec in world.pools].index(pool)
        return run(world, FixedPool(number), self.seed, known=self.known)

    def gain(self, got: Run, window: slice = slice(None)) -> float:
        """Share of plain decoding's mean time that was saved, over a window of requests."""
        return 1.0 - float(got.e2e_s[window].mean() / self.plain.e2e_s[window].mean())

    def share(self, got: Run, window: slice = slice(None)) -> float | None:
        """Share of the oracle's gain that was had; None where that is too little to ask."""
        most = self.gain(self.oracle, window)
        return None if most < LEAST_GAIN else self.gain(got, window) / most


def yardstick(world: WorldSpec, seed: int) -> Yardstick:
    """Run plain decoding and the oracles."""
    known = arrivals(world.traffic, seed, world.events)
    plain_number = [pool.name for pool in world.pools].index(world.plain.name)
    plain = run(world.merged(world.plain.name), FixedPool(plain_number), seed, known=known)
    runs = {name: run(world, REFERENCES[name](seed), seed, known=known) for name in ORACLES}
    best = min(runs, key=lambda name: float(np.mean(runs[name].e2e_s)))
    return Yardstick(world, seed, known, plain, runs[best], best)
