"""Shares, rates and quantiles at every look."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.histogram import bucket
from policies.estimators.sequential import (
    quantile_range,
    quantile_ratio,
    rate_difference,
    rate_range,
    requests_to_detect,
    sample_ratio_e_value,
)


def test_the_e_value_is_a_martingale() -> None:
    """Its expectation over the next unit is what it is now: that is what makes looking free."""
    shares = (0.3, 0.7)
    for counts in ((0, 0), (5, 9), (40, 60)):
        now = sample_ratio_e_value(counts, shares)
        after = sum(
            share * sample_ratio_e_value([n + (i == a) for i, n in enumerate(counts)], shares)
            for a, share in enumerate(shares)
        )
        assert after == pytest.approx(now)


def test_a_split_as_planned_is_seldom_alarmed_about() -> None:
    """Over 400 runs of 2,000 looks none reaches 1,000; the promise is one in a thousand."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(400):
        treated = np.cumsum(rng.random(2000) < 0.05)
        for n in range(100, 2001, 100):
            k = int(treated[n - 1])
            alarms += sample_ratio_e_value((k, n - k), (0.05, 0.95)) >= 1000.0
    assert alarms == 0


def test_a_split_that_is_off_is_found() -> None:
    """A tenth of the treated are lost, as when a slow arm's requests time out."""
    rng = np.random.default_rng(2)
    found = [
        sample_ratio_e_value((k := int(rng.binomial(4000, 0.45)), 4000 - k), (0.5, 0.5)) >= 1000.0
        for _ in range(100)
    ]
    assert np.mean(found) > 0.9


@pytest.mark.parametrize("shares", [(0.5, 0.6), (1.0, 0.0)])
def test_shares_that_are_none_are_refused(shares: tuple[float, float]) -> None:
    """They must be above 0 and sum to 1."""
    with pytest.raises(ValueError, match="sum to 1"):
        sample_ratio_e_value((1, 1), shares)


def test_beyond_doubt_is_infinite() -> None:
    """And no overflow."""
    assert sample_ratio_e_value((10**6, 0), (0.5, 0.5)) == math.inf


def test_a_rate_is_inside_at_every_look() -> None:
    """400 runs, a look after each of 400 trials: no more than 5 % ever leave the interval."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        hits = np.cumsum(rng.random(400) < 0.1)
        missed += any(
            not (found := rate_range(int(hits[n - 1]), n)) or not found.low <= 0.1 <= found.high
            for n in range(10, 401, 10)
        )
    assert missed / 400 <= 0.05


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_counts_that_contradict_have_no_rate(hits: int, n: int) -> None:
    """None, not 0."""
    assert rate_range(hits, n) is None
    assert rate_difference((hits, n), (1, 5)) is None


def test_rates_at_the_ends() -> None:
    """No failure leaves 0 inside, nothing but failures leaves 1 inside."""
    none, all_of_them = rate_range(0, 50), rate_range(50, 50)
    assert none is not None
    assert all_of_them is not None
    assert (none.low, all_of_them.high) == (0.0, 1.0)
    assert none.high < 0.2
    assert all_of_them.low > 0.8


def test_one_in_five_requests_that_fail_is_seen_in_one_slot() -> None:
    """50 treated requests with 20 % failures against a control with hardly any."""
    found = rate_difference((10, 50), (4, 950))
    assert found is not None
    assert found.low > 0.01


def test_a_quantile_is_inside_at_every_look() -> None:
    """200 runs of 3,000 log-normal times, 30 looks each."""
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(200):
        times = np.exp(rng.normal(-3.0, 0.5, 3000))
        counts: dict[int, int] = {}
        inside = True
        for at, time in enumerate(times, 1):
            key = bucket(float(time))
            counts[key] = counts.get(key, 0) + 1
            if at % 100 == 0:
                low, high = quantile_range(counts, 0.9)
                truth = math.exp(-3.0 + 0.5 * 1.2815515655)
                inside = inside and (low or 0.0) <= truth <= (high or math.inf)
        missed += not inside
    assert missed / 200 <= 0.05


def test_few_observations_bound_no_tail() -> None:
    """A side that cannot be told is None."""
    assert quantile_range({}, 0.5) == (None, None)
    assert quantile_range({bucket(0.1): 100}, 0.99)[1] is None
    assert quantile_ratio({bucket(0.1): 5}, {bucket(0.1): 5}, 0.5) == (None, None)


def test_a_tail_twice_as_long_shows() -> None:
    """With some thousand requests a side."""
    rng = np.random.default_rng(5)
    sides = []
    for level in (math.log(0.1), math.log(0.05)):
        counts: dict[int, int] = {}
        for time in np.exp(rng.normal(level, 0.3, 4000)):
            counts[bucket(float(time))] = counts.get(bucket(float(time)), 0) + 1
        sides.append(counts)
    low, high = quantile_ratio(sides[0], sides[1], 0.95)
    assert low is not None
    assert high is not None
    assert 1.5 < low < 2.0 < high < 2.7


def test_planning_gets_harder_with_smaller_effects_and_shares() -> None:
    """Half the effect takes about four times the requests, a small share more than half of them."""
    whole, half = (requests_to_detect(effect, 0.3, 0.5) for effect in (0.1, 0.05))
    assert 3.0 < half / whole < 6.0
    assert requests_to_detect(0.1, 0.3, 0.05) > 4 * whole


@pytest.mark.parametrize("wrong", [(0.0, 0.3, 0.5), (0.1, 0.0, 0.5), (0.1, 0.3, 1.0)])
def test_plans_for_nothing_are_refused(wrong: tuple[float, float, float]) -> None:
    """No effect, no noise, no control."""
    with pytest.raises(ValueError, match="must not be 0"):
        requests_to_detect(*wrong)
