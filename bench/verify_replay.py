"""Measures whether `specroute replay` is right about policies that were never run.

Usage: python -m bench.verify_replay [--runs 200]

The world: three classes of unlike length and noise, three arms of which another is best for each,
load that walks from block to block and adds to the cost of all arms, and skewed noise. The logging
policy learns while it logs: every two minutes it moves its shares towards what looks best so far,
and keeps a floor. Each run is written as a decision log, line by line as the proxy writes it, and
read back as `specroute replay` reads it. What is judged is the interval of the mean log cost of
five policies that were not run, against their expectation in the world.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.offpolicy import Answer, Logged, evaluate
from policies.types import ArmId, FloatArray

ARMS: Final = (ArmId("plain"), ArmId("fast"), ArmId("copy"))
CLASSES: Final = ("chat", "code_edit", "math")
MIX: Final = np.array([0.5, 0.2, 0.3])
LEVEL: Final = np.array([0.6, 1.1, 1.6])
"""Mean log cost of plain decoding on an idle fleet."""
EFFECT: Final = np.array([[0.0, -0.35, 0.10], [0.0, -0.25, -0.70], [0.0, -0.45, 0.05]])
NOISE: Final = np.array([0.45, 0.35, 0.30])
LOAD_SD: Final = 0.10
BLOCKS: Final = 60
"""Of two minutes each."""
BLOCK_S: Final = 120.0
PER_BLOCK: Final = 40
FLOOR: Final = 0.05

POLICIES: Final[Mapping[str, FloatArray]] = {
    "all plain": np.tile([1.0, 0.0, 0.0], (3, 1)),
    "all fast": np.tile([0.0, 1.0, 0.0], (3, 1)),
    "all copy": np.tile([0.0, 0.0, 1.0], (3, 1)),
    "best of each class": np.eye(3)[[1, 2, 1]],
    "half plain, half fast": np.tile([0.5, 0.5, 0.0], (3, 1)),
}
"""Probabilities by class."""


@dataclass(frozen=True, slots=True)
class Run:
    """One logged run."""

    logged: Logged
    classes: np.ndarray[tuple[int], np.dtype[np.int64]]


def truth(policy: FloatArray) -> float:
    """Expected log cost of a policy: loads have mean 0, and so has the noise."""
    return float((MIX * (LEVEL + (policy * EFFECT).sum(axis=1))).sum())


def run(seed: int) -> Run:
    """Log one run."""
    rng = np.random.default_rng((seed, 41))
    n = BLOCKS * PER_BLOCK
    classes = rng.choice(3, size=n, p=MIX)
    # A stationary walk, so that its mean is 0 in the long run and blocks next to each other are
    # alike.
    load = np.empty(BLOCKS)
    load[0] = rng.normal(0.0, LOAD_SD)
    for block in range(1, BLOCKS):
        load[block] = 0.3 * load[block - 1] + rng.normal(0.0, LOAD_SD * np.sqrt(1.0 - 0.09))
    skew = (rng.gamma(4.0, 1.0, n) - 4.0) / 2.0
    arm, p, y = np.empty(n, np.int64), np.empty((n, 3)), np.empty(n)
    count, total = np.full((3, 3), 1.0), np.zeros((3, 3))
    for block in range(BLOCKS):
        rows = slice(block * PER_BLOCK, (block + 1) * PER_BLOCK)
        c = classes[rows]
        p[rows] = _shares(total / count)[c]
        u = rng.random(PER_BLOCK)
        arm[rows] = (u[:, None] > np.cumsum(p[rows], axis=1)[:, :2]).sum(axis=1)
        y[rows] = LEVEL[c] + EFFECT[c, arm[rows]] + load[block] + NOISE[c] * skew[rows]
        np.add.at(count, (c, arm[rows]), 1.0)
        np.add.at(total, (c, arm[rows]), y[rows])
    cluster = np.repeat(np.arange(BLOCKS), PER_BLOCK)
    return Run(Logged(ARMS, arm, p[np.arange(n), arm], p, y, classes, cluster), classes)


def _shares(mean: FloatArray) -> FloatArray:
    """By class: what looks better gets more, and every arm its floor."""
    better = np.exp(-4.0 * (mean - mean.min(axis=1, keepdims=True)))
    shares = better / better.sum(axis=1, keepdims=True)
    mixed: FloatArray = FLOOR + (1.0 - 3 * FLOOR) * shares
    return mixed


def answers(runs: int, policy: FloatArray) -> list[Answer]:
    """What the logs say of a policy."""
    made = (run(seed) for seed in range(runs))
    return [evaluate(one.logged, policy[one.classes], baseline=0) for one in made]


if __name__ == "__main__":
    runs = int(sys.argv[1])
    for name, policy in POLICIES.items():
        true, plain = truth(policy), truth(POLICIES["all plain"])
        found = answers(runs, policy)
        row = [name, round(np.mean([a.ess for a in found]))]
        for get, t in (
            ("ips", true),
            ("snips", true),
            ("dr", true),
            ("against_baseline", true - plain),
        ):
            es = [getattr(a, get) for a in found]
            es = [e for e in es if e]
            row += [
                get,
                len(es),
                round(np.mean([e.low <= t <= e.high for e in es]), 3),
                round(np.mean([e.high - e.low for e in es]), 3),
                round(np.mean([e.value - t for e in es]), 4),
            ]
        print(row)
