"""Statistics of experiments that hold at every look. It knows no experiment and no time.

What an effect on log cost is worth at any look is `verdict.gain_of`; this adds what experiments
need besides: shares, rates and quantiles, and how long a comparison will take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from policies.estimators.distributions import student_t_quantile
from policies.estimators.histogram import bounds, total
from policies.estimators.verdict import anytime_reach

RATIO_LEVEL = 0.999
"""A sample ratio is alarmed about at 1 in 1,000: by experience it is a flaw far more often than
chance, and an experiment that is stopped for nothing costs weeks (Fabijan et al. 2019, KDD)."""

_RATIO_PRIOR = 200.0
"""Requests the prior of the true shares is worth. Judgement: finds a share of 50 % that is 45 % in
some 1,800 requests; it moves the power, never the level."""

_HALVINGS = 60
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate with bounds that hold at all looks together.

    Attributes:
        value: Estimate.
        low: Lower bound.
        high: Upper bound.
    """

    value: float
    low: float
    high: float


def sample_ratio_e_value(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Evidence against the planned shares; the chance that it ever reaches e is at most 1 / e.

    The Dirichlet-multinomial test of Lindon and Malek (2022, arXiv 2011.03567, eq. 9)::

        E = Gamma(c) / Gamma(c + n)  prod_a Gamma(c p_a + O_a) / Gamma(c p_a)  prod_a p_a^-O_a

    Args:
        counts: Units (or requests) seen in each variant.
        shares: Planned shares, above 0, sum 1.

    Returns:
        The e-value; 1 says nothing. Infinite where it is beyond all doubt.

    Raises:
        ValueError: A share is not above 0, or they do not sum to 1.

    Example:
        >>> sample_ratio_e_value((500, 500), (0.5, 0.5)) < 1.0
        True
        >>> sample_ratio_e_value((700, 500), (0.5, 0.5)) > 1000.0
        True
    """
    if not all(share > 0.0 for share in shares) or abs(sum(shares) - 1.0) > 1e-9:  # noqa: PLR2004
        raise ValueError(f"shares must be above 0 and sum to 1, not {tuple(shares)}")
    n = sum(counts)
    log_e = math.lgamma(_RATIO_PRIOR) - math.lgamma(_RATIO_PRIOR + n)
    for count, share in zip(counts, shares, strict=True):
        prior = _RATIO_PRIOR * share
        log_e += math.lgamma(prior + count) - math.lgamma(prior) - count * math.log(share)
    return math.exp(log_e) if log_e < 700.0 else math.inf  # noqa: PLR2004 - the largest double


def rate_range(hits: float, n: float, level: float = 0.95) -> Range | None:
    """A proportion with bounds that hold at all looks together.

    The beta-binomial mixture of Robbins (1970, Ann. Math. Statist. 41) with a uniform prior: p is
    refused where the mixture of the data over all p is `1 / alpha` times as likely as p itself.

    Args:
        hits: Successes, or failures; no whole number where trials are worth less than one.
        n: Trials.
        level: Confidence in (0, 1).

    Returns:
        The proportion, or None without trials or where counts contradict each other.

    Example:
        >>> found = rate_range(2, 100)
        >>> round(found.low, 4), round(found.high, 3)
        (0.0003, 0.113)
    """
    if n <= 0 or not 0 <= hits <= n:
        return None
    wanted = -math.log(1.0 - level)
    mixture = math.lgamma(hits + 1) + math.lgamma(n - hits + 1) - math.lgamma(n + 2)
    value = hits / n

    def refused(p: float) -> bool:
        likelihood = (hits * math.log(max(p, _TINY)) if hits else 0.0) + (
            (n - hits) * math.log1p(-min(p, 1.0 - _TINY)) if n > hits else 0.0
        )
        return mixture - likelihood >= wanted

    return Range(value, _edge(refused, 0.0, value), _edge(refused, 1.0, value))


def _edge(refused: Callable[[float], bool], out: float, inside: float) -> float:
    """Where what is refused ends, between a point outside and one inside."""
    if not refused(out):
        return out
    for _ in range(_HALVINGS):
        middle = (out + inside) / 2.0
        if refused(middle):
            out = middle
        else:
            inside = middle
    return out


def rate_difference(
    treated: tuple[float, float], control: tuple[float, float], level: float = 0.95
) -> Range | None:
    """Difference of two proportions, treated less control, at all looks together.

    Both keep half of the error, so that the difference keeps all of it (Bonferroni).

    Args:
        treated: Hits and trials.
        control: Hits and trials.
        level: Confidence in (0, 1).

    Example:
        >>> found = rate_difference((30, 100), (2, 900))
        >>> found.low > 0.1
        True
    """
    each = 1.0 - (1.0 - level) / 2.0
    one, other = rate_range(*treated, each), rate_range(*control, each)
    if one is None or other is None:
        return None
    return Range(one.value - other.value, one.low - other.high, one.high - other.low)


def quantile_range(
    counts: Mapping[int, int], q: float, level: float = 0.95, worth: float = 1.0
) -> tuple[float | None, float | None]:
    """Bounds of a quantile that hold at all looks together, from a log-bucket histogram.

    Howard and Ramdas (2022, arXiv 1906.09712, theorem 1): with

        f = 1.5 sqrt(q (1 - q) l) + 0.8 l,    l = (1.4 ln ln(2.1 n) + ln(10 / alpha)) / n

    the q-quantile lies between the empirical quantiles at q - f and q + f, for all n at once.

    Args:
        counts: Bucket to count (`policies.estimators.histogram`).
        q: Probability in (0, 1).
        level: Confidence in (0, 1).
        worth: Independent observations that each one is worth (`effective_share`).

    Returns:
        (low, high) in seconds, widened to the edges of their buckets; a side is None where there
        are too few observations for it. The 95th percentile has an upper side from some 600 on,
        the 99th from some 3,050.

    Example:
        >>> from policies.estimators.histogram import bucket
        >>> low, high = quantile_range({bucket(0.1): 900, bucket(1.0): 100}, 0.5)
        >>> round(low, 2), round(high, 2)
        (0.1, 0.1)
    """
    there = total(counts)
    n = there * worth
    if n < 2:  # noqa: PLR2004 - ln ln(2.1) is below 0
        return None, None
    ell = (1.4 * math.log(math.log(2.1 * n)) + math.log(10.0 / (1.0 - level))) / n
    reach = 1.5 * math.sqrt(q * (1.0 - q) * ell) + 0.8 * ell
    low, high = q - reach, q + reach
    return (
        bounds(_bucket_at(counts, low * there))[0] if low > 0.0 else None,
        bounds(_bucket_at(counts, high * there))[1] if high < 1.0 else None,
    )


def _bucket_at(counts: Mapping[int, int], rank: float) -> int:
    seen, index = 0, 0
    for index in sorted(counts):
        seen += max(counts[index], 0)
        if seen >= rank:
            break
    return index


def quantile_ratio(
    treated: Mapping[int, int],
    control: Mapping[int, int],
    q: float,
    level: float = 0.95,
    worth: tuple[float, float] = (1.0, 1.0),
) -> tuple[float | None, float | None]:
    """Bounds of the ratio of two quantiles, treated over control, at all looks together.

    Both keep half of the error (Bonferroni); `worth` is that of each, in the same order.

    Example:
        >>> from policies.estimators.histogram import bucket
        >>> low, high = quantile_ratio({bucket(0.4): 5000}, {bucket(0.1): 5000}, 0.95)
        >>> low > 3.5, high < 4.5
        (True, True)
    """
    each = 1.0 - (1.0 - level) / 2.0
    t_low, t_high = quantile_range(treated, q, each, worth[0])
    c_low, c_high = quantile_range(control, q, each, worth[1])
    return (
        None if t_low is None or not c_high else t_low / c_high,
        None if t_high is None or not c_low else t_high / c_low,
    )


def effective_share(design: float, df: float, level: float = 0.95) -> float:
    """Independent observations that one of many alike is worth, for bounds at a level.

    That of Korn and Graubard (1998, Survey Methodology 24): the inverse of the design effect, and
    the squared ratio of the normal to the t-quantile, since the design effect is estimated.

    Args:
        design: Design effect (`clusters.design_effect`).
        df: Degrees of freedom of the variance behind it.
        level: Confidence of both sides together.

    Example:
        >>> round(effective_share(4.0, 30.0), 3), effective_share(math.inf, 30.0)
        (0.23, 0.0)
    """
    at = (1.0 + level) / 2.0
    ratio = NormalDist().inv_cdf(at) / student_t_quantile(at, df)
    return ratio * ratio / design


def requests_to_detect(
    effect: float,
    sd: float,
    share: float,
    *,
    power: float = 0.8,
    level: float = 0.95,
    design: float = 1.0,
    df: float = math.inf,
) -> int:
    """Requests, both variants together, after which an effect shows in so many of all cases.

    The confidence sequence of `verdict.anytime_reach` must be narrower than the effect by the
    normal quantile of the power. Strata cost little as long as each holds both variants.

    Args:
        effect: On log cost, not 0: ln(1.05) for 5 %.
        sd: Of log cost inside a stratum.
        share: Of the treatment, in (0, 1).
        power: Chance to see it, in (0, 1).
        level: Confidence in (0, 1).
        design: Design effect of requests that come in clusters.
        df: Most degrees of freedom that the noise will have.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> requests_to_detect(0.05, 0.3, 0.5)
        2527
        >>> requests_to_detect(0.7, 0.3, 0.05) < 400
        True
    """
    if effect == 0.0 or not (sd > 0.0 and 0.0 < share < 1.0 and 0.0 < power < 1.0):
        raise ValueError("effect must not be 0, sd above 0, share and power within (0, 1)")
    z = NormalDist().inv_cdf(power)

    def shows(n: int) -> bool:
        variance = design * (sd**2 / (n * share) + sd**2 / (n * (1.0 - share)))
        reach = anytime_reach(variance, min(max(n - 2.0, 1.0), df), 2.0 * sd**2, level)
        if reach is None:
            return False
        # An estimated noise makes the reach uncertain too: by 1 / (2 df) of its square.
        return reach + z * math.sqrt(variance + reach**2 / (2.0 * df)) <= abs(effect)

    high = 4
    while not shows(high):
        high *= 2
        if high > 2**50:
            raise ValueError("no number of requests would show so small an effect")
    low = high // 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
