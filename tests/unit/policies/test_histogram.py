"""The log-bucket histogram keeps its relative error and adds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.histogram import (
    HIGHEST_S,
    LOWEST_S,
    MAX_INDEX,
    bounds,
    bucket,
    merge,
    quantile,
    quantile_interval,
    representative,
    total,
)

SECONDS = st.floats(LOWEST_S, HIGHEST_S)
COUNTS = st.dictionaries(st.integers(0, MAX_INDEX), st.integers(0, 50), max_size=20)


def histogram_of(values: list[float]) -> dict[int, int]:
    """Count values by bucket."""
    counts: dict[int, int] = {}
    for value in values:
        counts = merge(counts, {bucket(value): 1})
    return counts


@given(SECONDS)
def test_a_representative_is_within_two_percent(seconds: float) -> None:
    """The promise of the sketch, for every duration in its range."""
    assert abs(representative(bucket(seconds)) / seconds - 1) <= 0.02 + 1e-9


@given(SECONDS)
def test_a_duration_lies_within_the_bounds_of_its_bucket(seconds: float) -> None:
    """Buckets are half open, up to rounding."""
    low, high = bounds(bucket(seconds))
    assert low * (1 - 1e-9) <= seconds <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    ("seconds", "index"),
    [(0.0, 0), (-1.0, 0), (1e-9, 0), (1e5, MAX_INDEX), (1e9, MAX_INDEX), (math.inf, MAX_INDEX)],
)
def test_durations_outside_the_range_fall_into_the_outermost_bucket(
    seconds: float, index: int
) -> None:
    """The number of buckets is bounded whatever an engine claims."""
    assert index == bucket(seconds)


def test_nan_is_refused() -> None:
    """A duration that is no number belongs in no bucket."""
    with pytest.raises(ValueError, match="NaN"):
        bucket(math.nan)


@given(st.lists(SECONDS, min_size=1, max_size=60), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_two_percent_of_the_samples(values: list[float], q: float) -> None:
    """Against the order statistic of the raw values (DDSketch's definition of the quantile)."""
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    estimate = quantile(histogram_of(values), q)
    assert estimate is not None
    assert abs(estimate / exact - 1) <= 0.02 + 1e-9


@given(COUNTS, COUNTS, COUNTS)
def test_merging_is_addition(a: dict[int, int], b: dict[int, int], c: dict[int, int]) -> None:
    """Order and grouping do not matter, and totals add."""
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert total(a) + total(b) == total(merge(a, b))


def test_an_empty_histogram_has_no_quantile() -> None:
    """None, never 0; counts below 0 are no observations."""
    assert quantile({}, 0.5) is None
    assert quantile({3: 0, 4: -2}, 0.5) is None
    assert quantile_interval({}, 0.5) is None
    with pytest.raises(ValueError, match="q must be within"):
        quantile({1: 1}, 1.5)


def test_a_side_without_enough_observations_is_none() -> None:
    """Ten observations bound p99 from below only; one bounds the median on neither side."""
    low, high = quantile_interval({bucket(0.1): 10}, 0.99) or (None, None)
    assert low is not None
    assert high is None
    assert quantile_interval({bucket(0.1): 1}, 0.5) is None


@pytest.mark.parametrize(("n", "q"), [(40, 0.5), (500, 0.95), (800, 0.99)])
def test_the_interval_covers_at_least_at_its_level(n: int, q: float) -> None:
    """400 samples of a log-normal: at least 95 % less two standard errors (2.2 %) contain the truth.

    The interval is conservative (ranks are whole, bounds are bucket edges), so only the lower side
    is asserted.
    """
    rng = np.random.default_rng(20)
    truth = float(np.quantile(rng.lognormal(-3, 0.5, 2_000_000), q))
    hits = 0
    for _ in range(400):
        values, counts = np.unique(
            [bucket(x) for x in rng.lognormal(-3, 0.5, n).tolist()], return_counts=True
        )
        interval = quantile_interval(dict(zip(values.tolist(), counts.tolist(), strict=True)), q)
        assert interval is not None
        low, high = interval
        assert low is not None
        assert high is not None
        hits += low <= truth <= high
    assert hits / 400 >= 0.95 - 0.022
