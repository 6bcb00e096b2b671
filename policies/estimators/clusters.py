"""What a contrast is worth where requests come in clusters that are alike. It knows no experiment.

Whoever is assigned as a whole (a session, a user) brings requests that are alike, so the noise of a
mean is that between units, not that between requests. Units are too many to keep sums of each: each
falls into one of a few buckets by a hash, and buckets, which share no unit, are what varies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from policies.types import FloatArray

BUCKETS = 32
"""Of the units of one side. Judgement: so many that the t-quantile of their degrees of freedom is
near the normal one, so few that their sums are not the most of what is stored."""

_LEAST_DF = 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate and how sure it is.

    Attributes:
        value: It.
        variance: Of it, by buckets.
        df: Degrees of freedom of the variance.
    """

    value: float
    variance: float
    df: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """Treated less control inside strata, in a form that can be added up over strata.

    Attributes:
        weight: Sum of the weights of the strata.
        total: Sum of their differences, each times its weight.
        parts: What each bucket has moved `total` by, shape (buckets, 2): control, treated.
        sizes: Share of its side that each bucket has, times the weights; same shape.
    """

    weight: float
    total: float
    parts: FloatArray
    sizes: FloatArray

    @classmethod
    def nothing(cls) -> Contrast:
        """Of no stratum."""
        return cls(0.0, 0.0, np.zeros((BUCKETS, 2)), np.zeros((BUCKETS, 2)))

    @classmethod
    def of(cls, n: FloatArray, total: FloatArray) -> Contrast:
        """The contrast of some strata.

        With `n_sab` and `T_sab` the number and the sum of y in stratum s, side a and bucket b::

            h_s    = n_s0 n_s1 / (n_s0 + n_s1)
            d      = sum_s h_s (ybar_s1 - ybar_s0) / sum_s h_s
            e_ab   = sum_s h_s (T_sab - n_sab ybar_sa) / (n_sa - n_sab) sqrt((m_sa - 1) / m_sa)
            V(d)   = sum_ab e_ab^2 / (sum_s h_s)^2

        the jackknife over clusters (CR3 of Bell and McCaffrey 2002, Survey Methodology 28; Cameron
        and Miller 2015, J. Human Resources 50), `m_sa` being the buckets that are not empty. A
        stratum where a side has one bucket alone says nothing about noise and is left out.

        Args:
            n: Requests, shape (strata, buckets, 2).
            total: Sums of y, same shape.
        """
        there = (n > 0.0).sum(axis=1)
        told = (there > 1).all(axis=1)
        n, total, there = n[told], total[told], there[told]
        if not len(n):
            return cls.nothing()
        of_side = n.sum(axis=1)
        mean = total.sum(axis=1) / of_side
        weight = of_side.prod(axis=1) / of_side.sum(axis=1)
        scale = weight[:, None] * np.sqrt((there - 1.0) / there)
        others = np.maximum(of_side[:, None] - n, 1e-12)
        parts = scale[:, None] * (total - n * mean[:, None]) / others
        sizes = weight[:, None, None] * n / of_side[:, None]
        difference = float((weight * (mean[:, 1] - mean[:, 0])).sum())
        return cls(float(weight.sum()), difference, parts.sum(axis=0), sizes.sum(axis=0))

    def __add__(self, other: Contrast) -> Contrast:
        """Of both's strata."""
        return Contrast(
            self.weight + other.weight,
            self.total + other.total,
            self.parts + other.parts,
            self.sizes + other.sizes,
        )

    @property
    def estimate(self) -> Estimate | None:
        """The difference; None where its noise is not known.

        Degrees of freedom are those of Satterthwaite (1946) over both sides, each of which has the
        effective number of its buckets less one (Carter, Schnepel and Steigerwald 2017, Rev.
        Economics and Statistics 99, for units that are alike throughout).

        Example:
            >>> rng = np.random.default_rng(1)
            >>> n = np.full((1, BUCKETS, 2), 10.0)
            >>> y = n * (np.array([0.0, -0.5]) + 0.1 * rng.standard_normal(n.shape))
            >>> found = Contrast.of(n, y).estimate
            >>> round(found.value, 1), round(found.variance * BUCKETS / 2, 2), round(found.df)
            (-0.5, 0.01, 62)
        """
        if self.weight <= 0.0:
            return None
        variance = (self.parts**2).sum(axis=0) / self.weight**2
        freedom = _effective(self.sizes**2) - 1.0
        if not (freedom >= _LEAST_DF).all() or not variance.sum() > 0.0:
            return None
        df = float(variance.sum() ** 2 / (variance**2 / freedom).sum())
        return Estimate(self.total / self.weight, float(variance.sum()), df)


def mean_of(n: FloatArray, total: FloatArray) -> Estimate | None:
    """A mean by buckets, with the same variance; None where it is not known.

    Args:
        n: Requests, shape (buckets,).
        total: Sums, same shape.

    Example:
        >>> found = mean_of(np.array([5.0, 5.0, 5.0, 0.0]), np.array([4.0, 5.0, 6.0, 0.0]))
        >>> found.value, round(found.variance, 4), found.df
        (1.0, 0.0133, 2.0)
    """
    there = n > 0.0
    if there.sum() < 2:  # noqa: PLR2004 - one says nothing about the others
        return None
    n, total = n[there], total[there]
    mean = total.sum() / n.sum()
    parts = (total - n * mean) / (n.sum() - n)
    variance = float((parts**2).sum()) * (len(n) - 1.0) / len(n)
    df = float(_effective((n**2)[:, None])[0]) - 1.0
    return Estimate(float(mean), variance, df) if df >= _LEAST_DF else None


def _effective(weights: FloatArray) -> FloatArray:
    """Number of equal weights that vary as much, by column."""
    squares = (weights**2).sum(axis=0)
    effective: FloatArray = weights.sum(axis=0) ** 2 / np.where(squares > 0.0, squares, 1.0)
    return effective


def design_effect(found: Estimate | None, variance: float) -> float:
    """How many requests are worth one that is independent: Kish's design effect, at least 1.

    Args:
        found: A mean by buckets.
        variance: The same if requests were independent.

    Returns:
        Infinite where the noise is not known.
    """
    if found is None:
        return math.inf
    return max(found.variance / variance, 1.0) if variance > 0.0 else 1.0
