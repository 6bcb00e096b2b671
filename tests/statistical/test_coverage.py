"""Intervals of everything that is shown cover at their level, whoever got which traffic.

The small form of `bench/verify_coverage.py`, whose world it uses: 40 seeds, so a share of 95 % has a
standard error of 3.4 points for one figure. Figures of one kind are taken together over arms; three
standard errors of 80 intervals, 7.3 points, are allowed below 95 %.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.verify_coverage import ALIKE, OPPOSITE, coverage, false_tails
from policies.types import FloatArray

LOWEST = 0.95 - 0.073


def shares(effects: FloatArray, *, thompson: bool, seeds: int = 40) -> dict[str, float]:
    """Share of intervals that hold the truth, by kind, of kinds with 60 or more."""
    counts: dict[str, FloatArray] = {}
    for name, held in coverage(effects, thompson=thompson, seeds=seeds).items():
        kind = name.split(",")[0]
        counts[kind] = counts.get(kind, np.zeros(3)) + held
    return {kind: float(of[1] / of.sum()) for kind, of in counts.items() if of.sum() >= 60}


@pytest.mark.parametrize(
    ("effects", "thompson"),
    [(ALIKE, False), (OPPOSITE, True)],
    ids=["even shares", "each segment wants another arm"],
)
def test_intervals_hold_the_truth(effects: FloatArray, *, thompson: bool) -> None:
    """Under changes of load and mix, and where every arm got a mix of its own."""
    found = shares(effects, thompson=thompson)
    assert {"p50 of TPOT", "p95 of TPOT", "τ of its answers", "τ by the class's traffic"} <= set(
        found
    )
    assert {kind: share for kind, share in found.items() if share < LOWEST} == {}


@pytest.mark.parametrize(("sd", "n_arm", "n_base"), [(0.3, 40, 40), (0.5, 100, 4)])
def test_tails_that_do_not_differ_are_seldom_broken(sd: float, n_arm: int, n_base: int) -> None:
    """In 20 looks at four tails fewer than 5 % of 40 seeds ever show one, and two errors: 7 points."""
    ever, _ = false_tails(sd, n_arm, n_base, 40)
    assert ever <= 0.05 + 0.07
