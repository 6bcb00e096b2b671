"""Quantiles against printed tables and against direct summation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.distributions import (
    beta_cdf,
    order_statistics,
    student_t_cdf,
    student_t_quantile,
)


@pytest.mark.parametrize(
    ("q", "df", "expected"),
    [
        (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 4, 2.7764),
        (0.975, 5, 2.5706), (0.975, 10, 2.2281), (0.975, 30, 2.0423), (0.975, 120, 1.9799),
        (0.95, 1, 6.3138), (0.95, 8, 1.8595), (0.995, 4, 4.6041), (0.995, 20, 2.8453),
        (0.9995, 10, 4.5869), (0.975, 1e9, 1.9600), (0.5, 7, 0.0),
    ],
)  # fmt: skip
def test_t_quantiles_of_the_printed_tables(q: float, df: float, expected: float) -> None:
    """Four decimals of the tables every textbook prints."""
    assert expected == round(student_t_quantile(q, df), 4)
    assert -expected == round(student_t_quantile(1 - q, df), 4)


@given(st.floats(0.0005, 0.9995), st.floats(1.0, 1e5))
def test_the_quantile_inverts_the_distribution(q: float, df: float) -> None:
    """Also for degrees of freedom that are no integers."""
    assert student_t_cdf(student_t_quantile(q, df), df) == pytest.approx(q, abs=1e-9)


@pytest.mark.parametrize(("q", "df"), [(0.0, 5), (1.0, 5), (0.5, 0.5), (math.nan, 5)])
def test_arguments_outside_their_range_are_refused(q: float, df: float) -> None:
    """There is no quantile at 0 or 1."""
    with pytest.raises(ValueError, match="q must be within"):
        student_t_quantile(q, df)


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1))
def test_beta_is_the_upper_tail_of_the_binomial(a: int, b: int, x: float) -> None:
    """I_x(a, b) = P(Bin(a + b - 1, x) >= a), summed term by term."""
    n = a + b - 1
    tail = math.fsum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert beta_cdf(a, b, x) == pytest.approx(tail, abs=1e-12)


def binomial_cdf(k: int, n: int, q: float) -> float:
    """P(Bin(n, q) <= k) term by term."""
    return math.fsum(math.comb(n, j) * q**j * (1 - q) ** (n - j) for j in range(k + 1))


@given(st.integers(1, 300), st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.sampled_from([0.9, 0.95]))
def test_ranks_are_the_tightest_that_keep_the_level(n: int, q: float, level: float) -> None:
    """Each side misses with at most (1 - level) / 2, and one rank tighter would miss more."""
    half = (1 - level) / 2
    lower, upper = order_statistics(n, q, level)
    if lower is not None:
        assert binomial_cdf(lower - 1, n, q) <= half * (1 + 1e-9)
    assert binomial_cdf(lower or 0, n, q) > half * (1 - 1e-9)
    if upper is None:
        assert binomial_cdf(n - 1, n, q) < (1 - half) * (1 + 1e-9)
    else:
        assert binomial_cdf(upper - 1, n, q) >= (1 - half) * (1 - 1e-9)
        assert upper == 1 or binomial_cdf(upper - 2, n, q) < (1 - half) * (1 + 1e-9)


def test_the_upper_side_of_p99_starts_at_368() -> None:
    """0.99^n first falls to 2.5 % at n = 368."""
    assert order_statistics(368, 0.99, 0.95)[1] == 368
    assert order_statistics(367, 0.99, 0.95)[1] is None


def test_nothing_observed_bounds_nothing() -> None:
    """No observations, no ranks."""
    assert order_statistics(0, 0.5, 0.95) == (None, None)


def test_the_normal_approximation_meets_the_exact_ranks() -> None:
    """At the switch the two agree to a few ranks in a million."""
    exact, approximate = (
        order_statistics(1_000_000, 0.99, 0.95),
        order_statistics(1_000_001, 0.99, 0.95),
    )
    for left, right in zip(exact, approximate, strict=True):
        assert left is not None
        assert right is not None
        assert abs(left - right) <= 4
