"""Tokens per step (tau) from sums over requests, with its interval. It compares no arms.

Requests are the independent units: the steps of one answer are alike. Tau is a ratio of two sums
over requests, so its interval is that of a ratio estimator (Cochran 1977, "Sampling Techniques",
chapter 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimators.distributions import student_t_quantile

MIN_REQUESTS = 5
"""Fewer requests have no interval. Judgement: their own spread says too little."""

_LEAST_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums over requests that reported tokens and steps.

    Attributes:
        n: Requests.
        tokens: Tokens.
        steps: Decode steps.
        tt: Sum of squares of tokens.
        ts: Sum of products of tokens and steps.
        ss: Sum of squares of steps.
    """

    n: int = 0
    tokens: int = 0
    steps: int = 0
    tt: int = 0
    ts: int = 0
    ss: int = 0


@dataclass(frozen=True, slots=True)
class Tau:
    """Tokens per step.

    Attributes:
        value: Estimate.
        low: Lower bound; None where the requests are too few for an interval.
        high: Upper bound; None together with `low`.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Stratum:
    """One arm's steps in a part of a class.

    Attributes:
        tokens: Its tokens there.
        steps: Its steps there.
        weight: Tokens of the whole class in this part, on whatever arm.
    """

    tokens: int
    steps: int
    weight: float


def tau_of(sums: StepSums, level: float = 0.95) -> Tau | None:
    """Tokens per step of the answers an arm gave, whoever they went to.

    With residuals `d_i = T_i - tau S_i` and `m = (sum S)^2 / sum S^2`, the number of requests of
    like length that would weigh as much::

        tau = sum T / sum S      V = m / (m - 1) sum d_i^2 / (sum S)^2      df = m^2 / n - 1

    `m / (m - 1)` and `df` allow for a few long answers that carry most of the steps; with `n - 1`
    in their place ten answers of very different length would be covered in 86 % instead of 95 %.

    Args:
        sums: Sums over requests.
        level: Confidence in (0, 1).

    Returns:
        The estimate, or None where the sums cannot be true (tau is never below 1).

    Example:
        >>> sums = StepSums(6, 318, 258, 6 * 53**2 + 6, 6 * 53 * 43, 6 * 43**2)
        >>> tau = tau_of(sums)
        >>> round(tau.value, 2), round(tau.low, 2), round(tau.high, 2)
        (1.23, 1.21, 1.26)
        >>> tau_of(StepSums(1, 53, 43, 53**2, 53 * 43, 43**2))
        Tau(value=1.2325581395348837, low=None, high=None)
    """
    if not 0 < sums.steps <= sums.tokens:
        return None
    value = sums.tokens / sums.steps
    return _with_interval(value, sums, _residual(sums, value), sums.steps**2, level)


def standardised(sums: StepSums, strata: Sequence[Stratum], level: float = 0.95) -> Tau | None:
    """Tokens per step the arm would have had on all of the class's traffic.

    A policy that sends each part of a class to the arm that suits it gives every arm a mix of its
    own. Weighing the parts by the class's tokens `W_h` takes that away (post-stratification,
    Cochran 1977, section 5A.9)::

        1 / tau = sum_h W_h / tau_h / sum_h W_h

    The spread of `tau_h` comes from the squares of the whole, less what lies between the parts::

        sum d^2 within = sum (T - tau S)^2 - sum S^2 sum_h (S_h / S) (tau_h - tau)^2

    Parts the arm has not met are left out, so the figure is then of the parts it has.

    Args:
        sums: Sums over the arm's requests in all parts.
        strata: The parts; their tokens and steps are those of `sums`.
        level: Confidence in (0, 1).

    Example:
        >>> sums = StepSums(8, 800, 500, 91840, 49600, 38000)
        >>> even = [Stratum(400, 100, 400.0), Stratum(400, 400, 400.0)]
        >>> standardised(sums, even).value == tau_of(sums).value
        True
        >>> standardised(sums, [Stratum(400, 100, 800.0), Stratum(400, 400, 0.0)]).value
        4.0
    """
    met = [part for part in strata if 0 < part.steps <= part.tokens and part.weight > 0.0]
    steps = sum(part.steps for part in strata)
    if not met or not 0 < sums.steps <= sums.tokens or steps <= 0:
        return None
    weight = np.array([part.weight for part in met])
    weight = weight / weight.sum()
    own_steps = np.array([float(part.steps) for part in met])
    own = np.array([float(part.tokens) for part in met]) / own_steps
    value = float(1.0 / (weight / own).sum())
    mean = sums.tokens / sums.steps
    between = sums.ss * float((own_steps / steps * (own - mean) ** 2).sum())
    within = max(_residual(sums, mean) - between, 0.0)
    # Var(1 / tau_h) = V_h / tau_h^4 with V_h = within (S / S_h) / S^2; the same for the whole.
    spread = float((weight**2 / own**4 * (steps / own_steps)).sum()) * value**4
    effective = steps**2 / max(spread, _LEAST_SHARE)
    return _with_interval(value, sums, within, effective, level, thin=max(spread, 1.0))


def _residual(sums: StepSums, tau: float) -> float:
    """Sum of squares of T - tau S."""
    return max(sums.tt - 2.0 * tau * sums.ts + tau * tau * sums.ss, 0.0)


def _with_interval(
    value: float,
    sums: StepSums,
    residual: float,
    steps_sq: float,
    level: float,
    *,
    thin: float = 1.0,
) -> Tau:
    """Adds the interval; `thin` is how many times fewer requests the estimate rests on."""
    if sums.n < MIN_REQUESTS or sums.ss <= 0:
        return Tau(value)
    m = sums.steps**2 / sums.ss / thin
    df = m * m / (sums.n / thin) - 1.0
    if df < 1.0 or m <= 1.0:
        return Tau(value)
    sd = math.sqrt(m / (m - 1.0) * residual / steps_sq)
    reach = sd * student_t_quantile((1.0 + level) / 2.0, df)
    return Tau(value, max(value - reach, 1.0), value + reach)
