"""Measures what a policy that looks at the moment puts into the gains of pools that do not differ.

Usage: python -m bench.verify_choice [--requests 3000] [--seeds 4]

Two pools of one plain server each, of the same kind, in the product's worlds: whatever gain is
shown is none. Once each request goes to either by a coin, once where the default policy sends it.
The estimate is that of a snapshot, by block, kind of cost and lean of the policy; for comparison
also as if nobody knew where the policy leaned.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.verify_statistics import percent_text, table_text
from policies.cost import log_cost, typical_tokens
from policies.estimators.effects import arm_effects
from policies.estimators.verdict import Gain, Verdict, gain_of, verdict
from policies.net_gain import NetGainPolicy
from policies.proposal import draw, lean_of, masked
from policies.sim.learner import Learner, moment_of
from policies.sim.references import RandomPool
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad
from policies.sim.spec import WorldSpec
from policies.sim.world import run
from policies.types import Arm, ArmId, ArmView, ClassId
from router.estimates.layout import BLOCK_S
from router.simulate.load import load_world

ARMS: Final = (Arm(ArmId("one"), "none", baseline=True), Arm(ArmId("other"), "none"))
WORLDS: Final = (("rtx5090-agents", 0.8), ("spark-heavy", 0.8))
"""Worlds that lend their servers and their traffic, and requests per second: some way below what
two servers can do, and near it."""
_BLIND: Final = "net_gain, its lean unknown"


class _Twins(WorldSpec):
    """A world of two pools that both decode plainly."""

    def __post_init__(self) -> None:
        """Anything goes."""


def twins(name: str, rate: float, requests: int) -> WorldSpec:
    """A world's plain servers, in two pools of one each, and its traffic."""
    given = load_world(name)
    plain = next(pool for pool in given.pools if pool.k == 0)
    alike = replace(plain, replicas=1, spec=replace(plain.spec, boot_sd=0.0))
    return _Twins(
        name,
        given.about,
        tuple(replace(alike, name=arm.arm_id) for arm in ARMS),
        replace(given.traffic, rate=rate, requests=requests),
    )


class _Watched(Learner):
    """Notes for each request where its policy leaned."""

    def __init__(self, spec: WorldSpec, seed: int) -> None:
        super().__init__(spec, NetGainPolicy(), seed, arms=ARMS)
        self.leans: dict[int, str] = {}
        self._own = np.random.default_rng((seed, 79))

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """As it would anyway."""
        proposal = self._prepared(ask.at_s).propose(moment_of(ask, loads))
        up = np.array([load.up > 0 for load in loads])
        p = masked(proposal.probabilities, up, 0)
        self.leans[ask.index] = lean_of([arm.arm_id for arm in ARMS], p.tolist())
        index = draw(p, float(self._own.random()))
        return Choice(index, float(p[index]))


@dataclass(frozen=True, slots=True)
class Judged:
    """One class of one run."""

    ever: bool
    """Whether a gain or a loss was ever shown."""
    missed: bool
    """Whether the last interval leaves the truth out."""
    gain: Gain | None


def judged(outcomes: Sequence[Outcome], leans: dict[int, str] | None = None) -> list[Judged]:
    """Look at each class after each block."""
    rows: dict[ClassId, list[tuple[int, str, str, int, float]]] = {}
    for outcome in outcomes:
        cost = log_cost(outcome.trial, typical_tokens(outcome.trial.class_id))
        if cost is not None:
            lean = "" if leans is None else leans[outcome.ask.index]
            row = int(outcome.ended_s // BLOCK_S), cost[0], lean, outcome.pool, cost[1]
            rows.setdefault(outcome.trial.class_id, []).append(row)
    return [_judged(class_id, of) for class_id, of in rows.items()]


def _judged(class_id: ClassId, rows: Sequence[tuple[int, str, str, int, float]]) -> Judged:
    strata = sorted({row[:3] for row in rows})
    at = {key: number for number, key in enumerate(strata)}
    sums = np.zeros((3, len(strata), len(ARMS)))
    for block, kind, lean, pool, y in rows:
        sums[:, at[block, kind, lean], pool] += (1.0, y, y * y)
    blocks = np.array([block for block, _, _ in strata])
    ever, gain = False, None
    for block in np.unique(blocks):
        seen = blocks <= block
        n, total, total_sq = sums[:, seen]
        view = ArmView(class_id, ARMS, n, total, total_sq, np.zeros(2), np.zeros(2))
        gain = gain_of(arm_effects(view, blocks=blocks[seen]), 1)
        word = verdict(gain, n_arm=float(n[:, 1].sum()), n_baseline=float(n[:, 0].sum()))
        ever |= word in {Verdict.GAIN, Verdict.LOSS}
    return Judged(ever, gain is not None and not gain.low <= 0.0 <= gain.high, gain)


def tables(requests: int, seeds: int) -> str:
    """The table of the module's docstring."""
    rows = []
    for name, rate in WORLDS:
        world = twins(name, rate, requests)
        found: dict[str, list[Judged]] = {"a coin": [], "net_gain": [], _BLIND: []}
        for seed in range(seeds):
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            found["a coin"] += judged(run(world, RandomPool(seed), seed).outcomes)
            learner = _Watched(world, seed)
            outcomes = run(world, learner, seed).outcomes
            found["net_gain"] += judged(outcomes, learner.leans)
            found[_BLIND] += judged(outcomes)
        rows += [[name, who, *_row(of)] for who, of in found.items()]
    header = ["world", "requests go by", "classes × seeds", "gain or loss ever shown"]
    header += ["last interval without the truth", "gain shown, mean", "half of its interval, mean"]
    return (
        f"Two pools of one plain server each that do not differ, {requests:,} requests: the truth "
        f"is a gain of 0.\n\n{table_text(header, rows)}"
    )


def _row(found: Sequence[Judged]) -> list[str]:
    gains = [of.gain for of in found if of.gain is not None]
    return [
        str(len(found)),
        percent_text([float(of.ever) for of in found]),
        percent_text([float(of.missed) for of in found]),
        percent_text([gain.value for gain in gains]) if gains else "–",
        f"{np.mean([(gain.high - gain.low) / 2.0 for gain in gains]):.1%}".replace("%", " %")
        if gains
        else "–",
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    print(tables(arguments.requests, arguments.seeds))


if __name__ == "__main__":
    main()
