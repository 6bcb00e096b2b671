"""Least squares from sums of products over stretches of time, with intervals that do not overstate.

Requests that ran together share their server's steps, and neighbouring minutes share their traffic,
so what counts as independent is a stretch of time and never a request. Blocks are put together to a
few long groups; the spread of the estimates with one group left out (the jackknife, MacKinnon and
White 1985, Journal of Econometrics 29, 305-325; Bell and McCaffrey 2002 for groups) is the variance
of the estimate, whatever the correlation inside a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.distributions import student_t_cdf, student_t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.types import FloatArray

_STILL = 1e-12
GROUPS = 12
"""Groups that blocks are put together to. Judgement: an hour of blocks of two minutes makes groups
of five minutes, longer than nearly all answers; Student's t of a dozen costs a tenth of the
width."""

MIN_GROUPS = 4
"""Fewer groups give no interval. Judgement: with three, one odd stretch decides everything."""

_INDEPENDENT = 1e-6
"""Share of a direction's sum of squares that has to be left beside the model's."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its interval; bounds are None while too little is known for them.

    Attributes:
        value: Estimate, with the signs that are known.
        low: Lower bound.
        high: Upper bound.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of a linear model.

    Attributes:
        coefficients: With the wanted signs, shape (p,).
        free: Without, shape (p,): the middle of the intervals.
        covariance: Of `free`, shape (p, p); None with fewer than `MIN_GROUPS` groups.
        inverse: Inverse of the penalised sum of products, shape (p, p).
        shares: What each group adds to the variance if requests are alike, shape (groups, p, p).
        parts: What each group adds to `free`, had it been predicted exactly, shape (p, groups).
        prior: What the penalty stands in for where there are no data, shape (p, p).
        misfit: Probability of residuals as systematic as these if the model were true; None where
            that cannot be tested.
        groups: Groups of blocks that the variance rests on.
    """

    coefficients: FloatArray
    free: FloatArray
    covariance: FloatArray | None
    inverse: FloatArray
    shares: FloatArray
    parts: FloatArray
    prior: FloatArray
    misfit: float | None
    groups: int

    def at(self, x: FloatArray, level: float = 0.95) -> Interval:
        """The model's value for a row x of shape (p,), with an interval of this level.

        The interval is that of the fit without signs, which covers at its level whether or not a
        coefficient is at its bound, stretched to hold the estimate.
        """
        value, free = float(x @ self.coefficients), float(x @ self.free)
        if self.covariance is None:
            return Interval(value, None, None)
        # Satterthwaite: a value that rests on few of the groups has few degrees of freedom. Half of
        # the variance is taken to come from requests one by one, half from all of a group at once.
        alone = np.einsum("i,gij,j->g", x, self.shares, x)
        together = (x @ self.parts) ** 2
        share = _of_one(alone) + _of_one(together)
        df = max(float(share.sum() ** 2 / max((share**2).sum(), 1e-300)) - 1.0, 1.0)
        # Leaving out one of the few groups that matter moves the value by more than its share; of
        # all groups alike it is exact.
        moves = min(df / (df + 1.0) * self.groups / (self.groups - 1.0), 1.0)
        variance = float(x @ (moves * self.covariance + self.prior) @ x)
        if not variance >= 0.0:
            # Far below what the sums can tell apart: roundings are all there is.
            return Interval(value, None, None)
        reach = student_t_quantile((1.0 + level) / 2.0, df) * math.sqrt(variance)
        return Interval(value, min(free - reach, value), max(free + reach, value))

    def distance(self, x: FloatArray, n: float) -> float:
        """Mean square of x against that of the rows seen: p for a row as they are on average."""
        return n * float(x @ self.inverse @ x)


def _of_one(parts: FloatArray) -> FloatArray:
    """What each part is of their sum; all 0 where there is none.

    Parts are squares. Where a direction rests on the penalty alone, roundings make them negative.
    """
    squares = parts.clip(0.0)
    total = squares.sum()
    return squares / total if total > 0.0 else squares


def fit(
    products: FloatArray,
    with_y: FloatArray,
    n: FloatArray,
    *,
    squares: FloatArray,
    penalty: FloatArray,
    non_negative: Sequence[int],
    noise: float = 1.0,
) -> Fit:
    """Fit a linear model to sums of products by block.

    Args:
        products: Sums of z x' by block in their order, shape (blocks, p + q, p): x the p columns
            of the model, z these and q directions that it leaves out and that residuals are tested
            in.
        with_y: Sums of z y, shape (blocks, p + q).
        n: Weight of each block, shape (blocks,).
        squares: Sums of squares of the directions, shape (blocks, q).
        penalty: Added to the sum of products, shape (p, p); makes it regular.
        non_negative: Columns whose coefficients are at least 0.
        noise: Variance of y around the model for one row.

    Example:
        >>> x = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])
        >>> y = np.array([3.1, 5.0, 6.9, 9.0])
        >>> found = fit(x[:, :, None] * x[:, None, :], x * y[:, None], np.ones(4),
        ...             squares=np.zeros((4, 0)), penalty=np.zeros((2, 2)), non_negative=[1])
        >>> found.coefficients.round(2)
        array([1.1 , 1.96])
    """
    p = len(penalty)
    products, with_y, squares = (_grouped(sums, n) for sums in (products, with_y, squares))
    xx, xy = products[:, :p, :p], with_y[:, :p]
    total, target = xx.sum(axis=0) + penalty, xy.sum(axis=0)
    inverse = np.linalg.pinv(total, hermitian=True)
    free = inverse @ target
    shares = inverse @ xx @ inverse
    groups = len(products)
    covariance = misfit = None
    if groups >= MIN_GROUPS:
        without = np.linalg.pinv(total - xx, hermitian=True) @ (target - xy)[:, :, None]
        away = without[:, :, 0] - free
        covariance = (groups - 1) / groups * away.T @ away
        misfit = _misfit(products, with_y, squares, free, inverse)
    signed = with_signs(total, target, free, non_negative)
    prior = noise * inverse @ penalty @ inverse
    parts = inverse @ (xx @ free).T
    return Fit(signed, free, covariance, inverse, shares, parts, prior, misfit, groups)


def with_signs(
    total: FloatArray, target: FloatArray, free: FloatArray, non_negative: Sequence[int]
) -> FloatArray:
    """Least squares where some coefficients are at least 0, from the normal equations.

    The active-set method of Lawson and Hanson in the form of Bro and de Jong (1997, Journal of
    Chemometrics 11, 393-401).
    """
    signed = np.zeros(len(free), dtype=np.bool_)
    signed[list(non_negative)] = True
    if (free[signed] >= 0.0).all():
        return free
    active = ~signed  # columns that are not held at 0
    found = _solved(total, target, active)
    for _ in range(3 * len(free)):
        gradient = target - total @ found
        gradient[active] = -np.inf
        enters = int(np.argmax(gradient))
        if gradient[enters] <= _STILL * max(float(np.abs(target).max()), 1e-300):
            break
        active[enters] = True
        tried = _solved(total, target, active)
        while (tried[active & signed] < 0.0).any():
            falls = active & signed & (tried < 0.0)
            step = float((found[falls] / (found[falls] - tried[falls])).min())
            found = found + step * (tried - found)
            active &= ~(falls & (found <= _STILL * float(np.abs(found).max())))
            found[signed & ~active] = 0.0
            tried = _solved(total, target, active)
        found = tried
    return found


def _solved(total: FloatArray, target: FloatArray, active: NDArray[np.bool_]) -> FloatArray:
    solved = np.zeros_like(target)
    if active.any():
        part = np.linalg.pinv(total[np.ix_(active, active)], hermitian=True)
        solved[active] = part @ target[active]
    return solved


def _grouped(sums: FloatArray, n: FloatArray) -> FloatArray:
    """Neighbouring blocks put together to at most `GROUPS` groups of about equal weight."""
    kept = n > 0.0
    n, sums = n[kept], sums[kept]
    middle = (np.cumsum(n) - n / 2.0) / max(float(n.sum()), 1e-300)
    index = np.minimum((middle * GROUPS).astype(np.int64), GROUPS - 1)
    first = np.flatnonzero(np.diff(index, prepend=-1))
    return np.add.reduceat(sums, first, axis=0) if len(first) else sums


def _misfit(
    products: FloatArray,
    with_y: FloatArray,
    squares: FloatArray,
    beta: FloatArray,
    inverse: FloatArray,
) -> float | None:
    """Whether any of the directions left out would have a coefficient other than 0.

    Each is freed of what the model explains of it, and its coefficient judged like the others: by
    leaving groups out, with Student's t. The smallest probability counts, times their number.
    """
    p = len(beta)
    gamma = products[:, p:].sum(axis=0) @ inverse
    residual = with_y - products @ beta
    scores = residual[:, p:] - residual[:, :p] @ gamma.T
    explained = 2.0 * products[:, p:] - gamma @ products[:, :p]
    information = squares - np.einsum("qp,gqp->gq", gamma, explained)
    left, outside = information.sum(axis=0), squares.sum(axis=0)
    apart = left > _INDEPENDENT * outside
    scores, information = scores[:, apart], information[:, apart].clip(0.0)
    groups, q = scores.shape
    if not q:
        return None
    total, whole = scores.sum(axis=0), information.sum(axis=0)
    without = (total - scores) / np.maximum(whole - information, _INDEPENDENT * whole)
    away = without - total / whole
    error = np.sqrt((groups - 1) / groups * (away**2).sum(axis=0))
    freedom = whole**2 / (information**2).sum(axis=0) - 1.0
    t = total / whole / np.maximum(error, 1e-300)
    tails: list[float] = [
        2.0 * (1.0 - student_t_cdf(abs(t_of), max(df, 1.0)))
        for t_of, df in zip(t.tolist(), freedom.tolist(), strict=True)
    ]
    return float(min(min(tails) * q, 1.0))
