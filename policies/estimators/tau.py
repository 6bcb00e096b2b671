"""Tokens per step (tau) from sums over requests, with its interval. It compares no arms.

Requests are the independent units: the steps of one answer are alike. Tau is a ratio of two sums
over requests, so its interval is that of a ratio estimator (Cochran 1977, "Sampling Techniques",
chapter 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.estimators.distributions import student_t_quantile
from policies.types import FloatArray

MIN_REQUESTS = 5
"""Fewer requests have no interval. Judgement: their own spread says too little."""

MIN_BLOCKS = 4.0
"""The same of blocks of like weight."""

_MOST_LEVER = 0.6
"""Share of a part's steps in one block above which its spread between blocks is not seen."""


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
    if sums.n < MIN_REQUESTS or sums.ss <= 0:
        return Tau(value)
    m = sums.steps**2 / sums.ss
    df = m * m / sums.n - 1.0
    if df < 1.0 or not 1.0 < m <= sums.n * (1.0 + 1e-9):  # above n squares are missing
        return Tau(value)
    residual = max(sums.tt - 2.0 * value * sums.ts + value * value * sums.ss, 0.0)
    return _within(value, math.sqrt(m / (m - 1.0) * residual) / sums.steps, df, level)


def standardised(
    tokens: FloatArray, steps: FloatArray, weight: FloatArray, level: float = 0.95
) -> Tau | None:
    """Tokens per step an arm has, or would have had, with so many tokens of each part of a class.

    A policy that sends each part of a class to the arm that suits it gives every arm a mix of its
    own. Weighing the parts by the class's tokens `W_h` takes that away (post-stratification,
    Cochran 1977, section 5A.9); weighing them by the arm's own gives the tau of its answers, whose
    mix is then no chance::

        1 / tau = sum_h W_h / tau_h      sum_h W_h = 1
        V = sum_b e_b^2      e_b = sum_h c_h (T_hb - tau_h S_hb) / (1 - S_hb / S_h)
        c_h = W_h (tau / tau_h)^2 / S_h

    Blocks are the units, so parts need no squares of their own: it is the jackknife over blocks to
    first order (HC3 of MacKinnon and White 1985, Journal of Econometrics 29). With the variance of
    a block taken as `a_b = sum_h c_h^2 S_hb`, `df = (sum a_b)^2 / sum a_b^2 - 1` (Satterthwaite
    1946). Parts of which one block holds nearly all are taken together, and with the largest if
    that does not help.

    Args:
        tokens: Tokens of the arm, shape (parts, blocks).
        steps: Their steps, same shape.
        weight: Tokens `W_h` to weigh the parts by, on any scale, shape (parts,). Parts the arm has
            not met are left out: the figure is of those it has.
        level: Confidence in (0, 1).

    Returns:
        The estimate, without an interval below `MIN_BLOCKS` blocks of like weight; None where no
        part has both steps and weight.

    Example:
        >>> tokens = np.array([[40.0, 41.0, 39.0] * 3, [20.0, 21.0, 19.0] * 3])
        >>> found = standardised(tokens, np.full((2, 9), 10.0), np.array([1.0, 1.0]))
        >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
        (2.667, 2.588, 2.745)
    """
    all_tokens, all_steps = tokens.sum(axis=1), steps.sum(axis=1)
    met = (all_steps > 0.0) & (all_tokens >= all_steps) & (weight > 0.0)
    if not met.any():
        return None
    tokens, steps, share = tokens[met], steps[met], weight[met] / weight[met].sum()
    tokens, steps, share = _collapsed(tokens, steps, share)
    whole = steps.sum(axis=1)
    own = tokens.sum(axis=1) / whole
    value = float(1.0 / (share / own).sum())
    pull = share * (value / own) ** 2 / whole
    spread = pull**2 @ steps
    df = float(spread.sum() ** 2 / (spread**2).sum()) - 1.0
    lever = steps / whole[:, None]
    if df < MIN_BLOCKS - 1.0 or lever.max() > _MOST_LEVER:
        return Tau(value)
    off = pull @ ((tokens - own[:, None] * steps) / (1.0 - lever))
    return _within(value, math.sqrt(float((off**2).sum())), df, level)


def _collapsed(
    tokens: FloatArray, steps: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Takes parts together whose spread between blocks cannot be seen."""
    for into_largest in (False, True):
        thin = steps.max(axis=1) > _MOST_LEVER * steps.sum(axis=1)
        if into_largest and thin.any():
            thin[int(steps.sum(axis=1).argmax())] = True
        if thin.sum() > 1:
            tokens, steps, share = (
                np.concatenate([of[~thin], of[thin].sum(axis=0, keepdims=True)])
                for of in (tokens, steps, share)
            )
    return tokens, steps, share


def _within(value: float, sd: float, df: float, level: float) -> Tau:
    reach = sd * student_t_quantile((1.0 + level) / 2.0, df)
    return Tau(value, max(value - reach, 1.0), value + reach)
