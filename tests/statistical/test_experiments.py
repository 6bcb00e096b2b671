"""What experiments promise, over few seeds; `bench/verify_experiments.py` does it over many."""

from __future__ import annotations

import math

from bench.verify_experiments import FAILING, braked, found, stopped


def test_a_treatment_that_does_nothing_is_rarely_stopped() -> None:
    """In six hours, watched all the time: 1 to 2 in 100, so 4 of 12 would be a flaw."""
    assert sum(stopped(seed) is not None for seed in range(12)) < 4


def test_a_planned_effect_is_mostly_found() -> None:
    """In 80 of 100: fewer than 24 of 40 would be a flaw (chance below 1 in 500)."""
    results = [found(seed, 0.05) for seed in range(40)]
    assert sum(was for was, _, _ in results) >= 24
    assert all(anytime for _, anytime, _ in results)


def test_sudden_harm_is_left_within_a_slot() -> None:
    """In 99 of 100: 5 misses in 100 would be a flaw (chance below 1 in 200)."""
    slow = math.log(2.0)
    for effect, failing in ((slow, FAILING), (0.0, 0.2)):
        took = [braked(seed, effect=effect, failing=failing) for seed in range(100)]
        assert sum(second is None or second > 10 for second in took) < 5
