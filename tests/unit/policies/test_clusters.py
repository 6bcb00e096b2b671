"""Noise by buckets of units."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.clusters import BUCKETS, Contrast, design_effect, mean_of


def drawn(rng: np.random.Generator, strata: int, units: int, size: int) -> Contrast:
    """Units of both sides that differ by N(0, 1) as a whole, and by nothing inside."""
    n, total = np.zeros((strata, BUCKETS, 2)), np.zeros((strata, BUCKETS, 2))
    for stratum in range(strata):
        for side in (0, 1):
            bucket = rng.integers(0, BUCKETS, units)
            y = size * (3.0 + rng.standard_normal(units))
            n[stratum, :, side] = size * np.bincount(bucket, minlength=BUCKETS)
            total[stratum, :, side] = np.bincount(bucket, weights=y, minlength=BUCKETS)
    return Contrast.of(n, total)


@pytest.mark.parametrize(("strata", "units"), [(1, 200), (20, 10), (50, 4)])
def test_the_variance_is_that_between_units(strata: int, units: int) -> None:
    """However many requests each brings, and also where a stratum has a few units alone."""
    found = [drawn(np.random.default_rng(seed), strata, units, 60).estimate for seed in range(300)]
    estimates = [of for of in found if of is not None]
    assert len(estimates) == len(found)
    spread = float(np.var([of.value for of in estimates]))
    assert np.mean([of.variance for of in estimates]) == pytest.approx(spread, rel=0.25)
    assert all(20.0 < of.df < 62.1 for of in estimates)


def test_who_is_alone_in_a_stratum_says_nothing_about_noise() -> None:
    """So that the stratum is left out, and what there is of others stays."""
    n, total = np.zeros((1, BUCKETS, 2)), np.zeros((1, BUCKETS, 2))
    n[0, 0] = 50.0
    n[0, 1, 1] = 50.0
    assert Contrast.of(n, total).estimate is None
    known = drawn(np.random.default_rng(0), 1, 50, 3)
    assert (known + Contrast.of(n, total)).estimate == known.estimate
    assert mean_of(n[0, :, 0], total[0, :, 0]) is None


def test_a_design_effect_is_one_at_least() -> None:
    """And unknown where nothing says what it is."""
    alike = mean_of(np.full(BUCKETS, 10.0), 10.0 * np.arange(BUCKETS, dtype=np.float64))
    assert alike is not None
    assert design_effect(alike, alike.variance / 10.0) == pytest.approx(10.0)
    assert design_effect(alike, alike.variance * 2.0) == 1.0
    assert math.isinf(design_effect(None, 1.0))
