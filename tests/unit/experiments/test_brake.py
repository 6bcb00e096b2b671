"""Sudden harm: what is, and what is not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.estimators.cells import CellSums, LogCostSums
from policies.estimators.increments import FIXED_POINT
from policies.types import ClassId
from router.experiments.brake import LEAST_TREATED, sudden_harm, tail
from router.experiments.model import Metric
from router.experiments.seen import CONTROL, TREATED, Seen

HEALTHY = {"n": 10000, "status.failed": 10}


def side(n: int, *, failed: int = 0, mean: float = 1.0, sd: float = 0.3) -> CellSums:
    """Sums of so many requests of so much log cost."""
    ok = n - failed
    s, q = ok * mean, ok * (mean**2 + sd**2)
    cost = LogCostSums(ok, round(s * FIXED_POINT), round(q * FIXED_POINT))
    plain = {"n": n, "status.ok": ok, "status.failed": failed}
    return CellSums(plain, log_cost={"s": cost} if ok else {})


def recent(treated: CellSums, control: CellSums) -> Seen:
    """The last seconds."""
    pair = {CONTROL.arm_id: control, TREATED.arm_id: treated}
    return Seen.of({ClassId("chat"): {(0, 1): pair}}, 1)


@pytest.mark.parametrize(
    ("treated", "control", "word"),
    [
        (side(50), side(50), None),
        (side(50, mean=1.0 + math.log(2.0)), side(50), "slower"),
        (side(50, mean=1.0 + math.log(2.0)), side(900), "slower"),
        (side(5000, mean=1.0 + math.log(1.15)), side(5000), None),
        (side(50, mean=1.0 - math.log(2.0)), side(50), None),
        (side(50, failed=10), side(50), "failing"),
        (side(50, failed=50), side(50), "failing"),
        (side(50, failed=2), side(50), None),
        (side(50, failed=10), side(50, failed=10), None),
        (side(LEAST_TREATED - 1, failed=LEAST_TREATED - 1), side(50), None),
        (side(50, mean=1.0 + math.log(2.0)), side(2), None),
        (side(50, mean=1.0 + math.log(1.5), sd=1.0), side(50, sd=1.0), None),
    ],
)
def test_what_is_sudden_harm(treated: CellSums, control: CellSums, word: str | None) -> None:
    """Much slower or failing for certain; not what hits both sides, nor what a few say."""
    why = sudden_harm(recent(treated, control), HEALTHY)
    assert (why is None) if word is None else (why is not None and word in why)


def test_what_an_experiment_is_about_must_not_be_suddenly_slower_either() -> None:
    """A late first token hardly shows in the time of a long answer."""

    def timed(mean: float) -> CellSums:
        cell = side(50)
        return replace(cell, log_time={"ttft": side(50, mean=mean).log_cost["s"]})

    late = recent(timed(1.0 + math.log(3.0)), timed(1.0))
    assert sudden_harm(late, HEALTHY) is None
    why = sudden_harm(late, HEALTHY, (Metric.COST, Metric.TTFT))
    assert why is not None
    assert "time to the first token" in why


def test_a_control_that_fails_anyway_excuses_the_treatment() -> None:
    """By what it did before, too."""
    usual = {"n": 5000, "status.failed": 1000}
    assert sudden_harm(recent(side(50, failed=12), side(50, failed=1)), usual) is None


def test_the_tail_is_the_binomial_s() -> None:
    """Summed the other way round; far tails do not vanish."""
    n, p = 30, 0.3
    below = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(12))
    assert tail(12, n, p) == pytest.approx(1.0 - below)
    assert 0.0 < tail(50, 50, 1e-4) < 1e-150
    assert tail(1, 10, 0.0) < 1e-10
