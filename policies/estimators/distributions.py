"""Quantiles of Student's t and of the binomial, so that nothing beyond numpy is needed."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

_NORMAL = NormalDist()
_TINY = 1e-300
_EXACT_BINOMIAL = 1_000_000
_EFFECTIVELY_NORMAL = 1e7


def beta_cdf(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b).

    Continued fraction of Lentz (NIST DLMF 8.17.22), on the side where it converges fast.

    Args:
        a: Above 0.
        b: Above 0.
        x: Within [0, 1].

    Example:
        >>> round(beta_cdf(2.0, 3.0, 0.5), 6)
        0.6875
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Value of the continued fraction, modified Lentz (Press et al. 2007, section 6.4)."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    h = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for numerator in (even, odd):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            h *= d * c
        if abs(d * c - 1.0) < 1e-14:  # noqa: PLR2004 - a few units in the last place
            break
    return h


def student_t_cdf(t: float, df: float) -> float:
    """Distribution function of Student's t with real degrees of freedom.

    `F(t) = 1 - I_{df/(df+t^2)}(df/2, 1/2) / 2` for t >= 0 (Abramowitz and Stegun 26.7.1).

    Example:
        >>> round(student_t_cdf(2.228139, 10.0), 6)
        0.975
    """
    tail = beta_cdf(df / 2.0, 0.5, df / (df + t * t)) / 2.0
    return 1.0 - tail if t >= 0.0 else tail


@lru_cache(maxsize=4096)
def student_t_quantile(q: float, df: float) -> float:
    """Quantile of Student's t with real degrees of freedom.

    Newton's method on the distribution function, which is concave above 0; started from below, at
    the normal quantile with its first correction (Abramowitz and Stegun 26.7.5).

    Args:
        q: Probability in (0, 1).
        df: Degrees of freedom, at least 1.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(student_t_quantile(0.975, 10.0), 4)
        2.2281
    """
    if not (0.0 < q < 1.0 and df >= 1.0):
        raise ValueError(f"q must be within (0, 1) and df at least 1, not {q}, {df}")
    if q < 0.5:  # noqa: PLR2004 - the middle
        return -student_t_quantile(1.0 - q, df)
    z = _NORMAL.inv_cdf(q)
    if df > _EFFECTIVELY_NORMAL or z == 0.0:
        return z
    constant = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0) - math.log(df * math.pi) / 2.0
    t = z + (z**3 + z) / (4.0 * df)
    for _ in range(100):
        log_density = constant - (df + 1.0) / 2.0 * math.log1p(t * t / df)
        step = (q - student_t_cdf(t, df)) / math.exp(log_density)
        t = max(t + step, z)
        if abs(step) <= 1e-10 * max(t, 1.0):
            break
    return t


@lru_cache(maxsize=4096)
def order_statistics(n: int, q: float, level: float) -> tuple[int | None, int | None]:
    """Ranks of the order statistics that enclose the q-quantile (Conover 1999, section 3.2).

    Exact by the binomial law up to a million observations, by its normal approximation beyond.

    Args:
        n: Observations.
        q: Probability in (0, 1).
        level: Confidence in (0, 1); each side misses with at most (1 - level) / 2.

    Returns:
        (rank from below, rank from above), counted from 1; None where n is too small for that side.

    Example:
        >>> order_statistics(100, 0.5, 0.95), order_statistics(10, 0.99, 0.95)
        ((40, 61), (9, None))
    """
    if n <= 0:
        return None, None
    half = (1.0 - level) / 2.0
    mean, sd = n * q, math.sqrt(n * q * (1.0 - q))
    if n > _EXACT_BINOMIAL:
        reach = -_NORMAL.inv_cdf(half) * sd + 1.0
        lower, upper = math.floor(mean - reach), math.ceil(mean + reach) + 1
    else:
        first = max(math.floor(mean - 9.0 * sd) - 40, 0)
        last = min(math.ceil(mean + 9.0 * sd) + 40, n)
        k = np.arange(first, last + 1, dtype=np.float64)
        steps = np.log((n - k[:-1]) / k[1:] * (q / (1.0 - q)))
        log_pmf = np.concatenate(([0.0], np.cumsum(steps)))
        cdf = np.cumsum(np.exp(log_pmf - log_pmf.max()))
        cdf /= cdf[-1]
        lower = first + int(np.count_nonzero(cdf <= half))
        upper = first + int(np.argmax(cdf >= 1.0 - half)) + 1
    return (lower if lower >= 1 else None), (upper if upper <= n else None)
