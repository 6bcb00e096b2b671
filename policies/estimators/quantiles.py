"""Quantiles of durations over blocks of time, with intervals. It compares no arms.

Requests of one block met like load, those of different blocks did not. So the spread of a quantile
comes from the spread inside blocks; that of the load between them is part of what is described.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from policies.estimators.histogram import GAMMA, LOWEST_S, representative
from policies.types import FloatArray

SHOWN = (0.5, 0.95, 0.99)
"""Quantiles that are shown."""

_PRIOR_N = 4.0
"""Observations that unlike blocks have to outweigh. Judgement: as `effects.NU0`."""


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile in seconds.

    Attributes:
        value: Estimate, within 2 % of the sample's.
        low: Lower bound; None where there are too few observations for one.
        high: Upper bound; None where there are too few observations for one.
    """

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Histograms of one duration, block by block.

    Attributes:
        counts: Observations, shape (blocks, buckets).
        first: Index of the first bucket (`policies.estimators.histogram`).
    """

    counts: FloatArray
    first: int

    @classmethod
    def of(
        cls,
        block: NDArray[np.int64],
        bucket: NDArray[np.int64],
        count: NDArray[np.int64],
        blocks: int,
    ) -> Blocks:
        """Lays rows of (block, bucket, count) out.

        Example:
            >>> rows = np.array([[0, 300, 2], [1, 302, 5], [0, 300, 1]]).T
            >>> Blocks.of(*rows, 2).counts
            array([[3., 0., 0.],
                   [0., 0., 5.]])
        """
        if not len(bucket):
            return cls(np.zeros((blocks, 0)), 0)
        first, last = int(bucket.min()), int(bucket.max())
        wide = last - first + 1
        at = block * wide + (bucket - first)
        laid = np.bincount(at, np.maximum(count, 0), blocks * wide).astype(np.float64)
        return cls(laid.reshape(blocks, wide), first)

    @property
    def n(self) -> int:
        """Observations."""
        return int(self.counts.sum())


def quantile_of(
    blocks: Blocks, q: float, weight: FloatArray | None = None, level: float = 0.95
) -> Quantile | None:
    """Quantile of the mixture of blocks, with an interval.

    The share of the mixture at or below `x` has the variance of a stratified sample, with the
    variance inside blocks pooled and shrunk to `q (1 - q)` by `_PRIOR_N` observations::

        V = (sum_b r_b n_b p_b (1 - p_b) + 4 q (1 - q)) / (sum_b r_b (n_b - 1) + 4)
        m = q (1 - q) / (V sum_b n_b u_b^2)
        p_b = F_b(x_q)      r_b = (u_b / max u)^2
        u_b weight of one observation, sum_b n_b u_b = 1

    `m` is the size of the simple sample that would know it as well (Korn and Graubard 1998, Survey
    Methodology 24). The bounds are its fractional order statistics (Hutson 1999, Journal of Applied
    Statistics 26), by the normal approximation of the binomial with its first correction::

        F(bound) = q +- z sqrt(q (1 - q) / m) + (1 - 2 q) (z^2 - 1) / (6 m)

    with `F` spread evenly (on the log scale) inside each bucket. No bound is beyond the outermost
    observation, and an interval within one bucket is widened to its edges, since nothing finer is
    known.

    Args:
        blocks: Histograms.
        q: Probability in (0, 1).
        weight: Weight of each block, shape (blocks,); None weighs each observation alike.
        level: Confidence in (0, 1).

    Returns:
        The quantile, or None where nothing has weight. The 99th percentile has an upper bound from
        some 368 observations on.

    Example:
        >>> counts = np.array([[10.0, 20.0, 10.0], [30.0, 60.0, 30.0]])
        >>> found = quantile_of(Blocks(counts, 300), 0.5)
        >>> round(found.value, 4), round(found.low, 4), round(found.high, 4)
        (0.1663, 0.163, 0.1697)
    """
    n = blocks.counts.sum(axis=1)
    unit = _units(n, weight)
    if unit is None:
        return None
    mass = unit @ blocks.counts
    reached = np.cumsum(mass)
    at = min(int(np.searchsorted(reached, q)), len(mass) - 1)
    variance = _variance(blocks, n, unit, q, at=at, part=_part(reached, mass, at, q))
    m = q * (1.0 - q) / variance
    fewest = min(m, 1.0 / float((n * unit**2).sum()))
    lower, upper = _levels(m, q, level, fewest=fewest)
    low = None if lower is None else _place(reached, mass, lower)
    high = None if upper is None else _place(reached, mass, upper)
    if low is not None and high is not None and math.ceil(low) == math.ceil(high):
        low, high = math.ceil(low) - 1.0, float(math.ceil(high))
    value = _place(reached, mass, q)
    return Quantile(
        _seconds(blocks.first, value),
        None if low is None else _seconds(blocks.first, min(low, value)),
        None if high is None else _seconds(blocks.first, max(high, value)),
    )


def shown(blocks: Blocks, q: float) -> Quantile | None:
    """The quantile as people see it: its value is that of `histogram.quantile`.

    Example:
        >>> round(shown(Blocks(np.array([[5.0]]), 311), 0.5).value, 3)
        0.248
    """
    found = quantile_of(blocks, q)
    if found is None:
        return None
    reached = np.cumsum(blocks.counts.sum(axis=0))
    rank = math.floor(q * (float(reached[-1]) - 1.0)) + 1
    value = representative(blocks.first + int(np.searchsorted(reached, rank)))
    low = None if found.low is None else min(found.low, value)
    high = None if found.high is None else max(found.high, value)
    return Quantile(value, low, high)


def _units(n: FloatArray, weight: FloatArray | None) -> FloatArray | None:
    """Weight of one observation of each block; together they have weight 1."""
    unit: FloatArray = np.zeros(len(n))
    there = n > 0.0
    unit[there] = 1.0 if weight is None else weight[there] / n[there]
    whole = float((unit * n).sum())
    return unit / whole if whole > 0.0 else None


def _variance(
    blocks: Blocks, n: FloatArray, unit: FloatArray, q: float, *, at: int, part: float
) -> float:
    """Variance of the share at or below the quantile, which is `part` into bucket `at`."""
    below = blocks.counts[:, :at].sum(axis=1) + part * blocks.counts[:, at]
    p = below / np.maximum(n, 1.0)
    bearing = np.where(n > 1.0, (unit / unit.max()) ** 2, 0.0)
    inside = float((bearing * n * p * (1.0 - p)).sum()) + _PRIOR_N * q * (1.0 - q)
    pooled = inside / (float((bearing * (n - 1.0)).sum()) + _PRIOR_N)
    return pooled * float((n * unit**2).sum())


def _levels(
    m: float, q: float, level: float, *, fewest: float
) -> tuple[float | None, float | None]:
    """Shares of the mixture that lie below the bounds.

    Whether there is a bound is asked of the observations themselves, however alike they are inside
    blocks: beyond the outermost of them nothing is known.
    """
    half = (1.0 - level) / 2.0
    z = _normal(half)
    reach = z * math.sqrt(q * (1.0 - q) / m)
    skew = (1.0 - 2.0 * q) * (z * z - 1.0) / (6.0 * m)
    lower = None if fewest * math.log1p(-q) > math.log(half) else max(q - reach + skew, 0.5 / m)
    upper = None if fewest * math.log(q) > math.log(half) else min(q + reach + skew, 1.0 - 0.5 / m)
    return lower, upper


@lru_cache(maxsize=16)
def _normal(half: float) -> float:
    return -NormalDist().inv_cdf(half)


def _part(reached: FloatArray, mass: FloatArray, at: int, level: float) -> float:
    """How far into a bucket a share lies."""
    before = float(reached[at]) - float(mass[at])
    inside = (level - before) / float(mass[at]) if mass[at] > 0.0 else 1.0
    return min(max(inside, 0.0), 1.0)


def _place(reached: FloatArray, mass: FloatArray, level: float) -> float:
    """Place of a share, in buckets from the lower edge of the first."""
    at = min(int(np.searchsorted(reached, level)), len(mass) - 1)
    while at and mass[at] <= 0.0:  # rounding can point behind the last observation
        at -= 1
    return at + _part(reached, mass, at, level)


def _seconds(first: int, place: float) -> float:
    return float(LOWEST_S * GAMMA ** (first - 1 + place))
