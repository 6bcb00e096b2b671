"""Quantiles over blocks, and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.histogram import bounds, bucket, quantile
from policies.estimators.quantiles import Blocks, quantile_of, shown
from policies.types import FloatArray


def blocks_of(values: list[FloatArray]) -> Blocks:
    """Histograms of durations given block by block."""
    rows = [(b, bucket(x), 1) for b, of in enumerate(values) for x in of.tolist()]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Blocks.of(columns[0], columns[1], columns[2], len(values))


def test_nothing_has_no_quantile() -> None:
    """None, never 0."""
    assert quantile_of(blocks_of([np.array([])]), 0.5) is None
    assert shown(blocks_of([]), 0.5) is None
    some = blocks_of([np.array([0.1])])
    assert quantile_of(some, 0.5, np.array([0.0])) is None


@given(
    st.lists(st.lists(st.floats(1e-5, 1e4), max_size=20), min_size=1, max_size=4),
    st.sampled_from([0.05, 0.5, 0.95, 0.99]),
)
def test_the_shown_value_is_the_histogram_s_and_lies_in_its_interval(
    values: list[list[float]], q: float
) -> None:
    """Within 2 % of the sample's; the bounds are finite where they are there."""
    found = shown(blocks_of([np.array(of) for of in values]), q)
    counts: dict[int, int] = {}
    for x in (x for of in values for x in of):
        counts[bucket(x)] = counts.get(bucket(x), 0) + 1
    expected = quantile(counts, q)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.value == expected
    assert found.low is None or 0.0 < found.low <= found.value
    assert found.high is None or found.value <= found.high < math.inf


@pytest.mark.parametrize(
    ("n", "q", "sides"),
    [
        (3, 0.5, (False, False)),
        (10, 0.5, (True, True)),
        (70, 0.95, (True, False)),
        (80, 0.95, (True, True)),
        (360, 0.99, (True, False)),
        (370, 0.99, (True, True)),
    ],
)
def test_a_bound_needs_observations_beyond_it(n: int, q: float, sides: tuple[bool, bool]) -> None:
    """As many as make it likely that one of them lies there."""
    found = quantile_of(blocks_of([np.geomspace(0.1, 1.0, n)]), q)
    assert found is not None
    assert (found.low is not None, found.high is not None) == sides


def test_an_interval_is_no_narrower_than_a_bucket() -> None:
    """Where all that is known lies in one, its edges are the bounds."""
    found = quantile_of(blocks_of([np.full(1000, 0.2)]), 0.5)
    assert found is not None
    low, high = bounds(bucket(0.2))
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_what_differs_between_blocks_is_no_uncertainty() -> None:
    """With four loads far apart the 62nd percentile is the median of one: known twice as well."""
    rng = np.random.default_rng(1)
    apart = [rng.lognormal(level, 0.1, 100) for level in (-4.0, -3.0, -2.0, -1.0) * 5]
    mixed = list(rng.permutation(np.concatenate(apart)).reshape(20, 100))
    widths = []
    for values in (apart, mixed):
        found = quantile_of(blocks_of(values), 0.625)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        widths.append(math.log(found.high / found.low))
    assert widths[0] < 0.7 * widths[1]


def test_weights_say_which_blocks_count() -> None:
    """A block without weight is not there."""
    values = [np.geomspace(0.1, 0.2, 50), np.geomspace(1.0, 2.0, 500)]
    first = quantile_of(blocks_of(values), 0.5, np.array([1.0, 0.0]))
    alone = quantile_of(blocks_of(values[:1]), 0.5)
    assert first is not None
    assert alone is not None
    assert first.value == pytest.approx(alone.value)
    assert first.high == pytest.approx(alone.high)
