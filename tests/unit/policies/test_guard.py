"""The guard takes arms out that do harm, with a reason, and lets them back with hysteresis."""

from __future__ import annotations

import numpy as np

from policies.guard import FAILURES, TAIL, held_back
from policies.types import FloatArray

NO_COSTS = np.zeros((3, 3))


def costs(means: FloatArray, sds: FloatArray, n: float = 200.0) -> FloatArray:
    """Sums of log costs."""
    return np.stack([np.full(len(means), n), n * means, n * (sds**2 + means**2)])


def test_failures_take_an_arm_out() -> None:
    """An arm that fails one request in two is out; one that failed once is not."""
    recent = np.array([[90.0, 6.0, 90.0], [1.0, 6.0, 1.0]])
    assert held_back(recent, NO_COSTS, 0) == {1: FAILURES}


def test_when_all_fail_no_arm_is_to_blame() -> None:
    """Shares of failures are judged against the baseline's."""
    recent = np.array([[10.0, 10.0, 10.0], [10.0, 10.0, 10.0]])
    assert held_back(recent, NO_COSTS, 0) == {}


def test_an_arm_that_is_out_must_do_better_to_come_back_than_to_stay_in() -> None:
    """One failure in six: in for who was in, out for who was out; then probing clears it."""
    some = np.array([[90.0, 8.0, 90.0], [0.0, 2.0, 0.0]])
    assert held_back(some, NO_COSTS, 0) == {}
    assert held_back(some, NO_COSTS, 0, before=(1,)) == {1: FAILURES}
    probed = np.array([[90.0, 30.0, 90.0], [0.0, 0.5, 0.0]])
    assert held_back(probed, NO_COSTS, 0, before=(1,)) == {}


def test_a_slow_tail_takes_an_arm_out_however_good_its_mean() -> None:
    """A p99 far beyond the baseline's is held against an arm that is as fast on average."""
    sums = costs(np.array([0.0, 0.0, -0.3]), np.array([0.2, 0.7, 0.25]))
    assert held_back(np.zeros((2, 3)), sums, 0) == {1: TAIL}


def test_the_baseline_is_never_held_back_and_absurd_numbers_hold_nobody_back() -> None:
    """There must be somewhere to go."""
    recent = np.array([[0.0, np.nan, 5.0], [50.0, np.inf, 0.0]])
    assert 0 not in held_back(recent, np.full((3, 3), np.nan), 0)
