"""A quantity against load for several arms at once: what they share, and how each differs.

Used for the time of a step and for TTFT. Everything is on the log scale, where arms differ by
factors. It reads no clock and decides nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.knowledge import Ratios
from policies.types import FloatArray

GRID: Final = np.arange(0.0, 10.25, 0.25)
"""Base-2 logarithms of the loads at which curves are drawn: 1 to 1024."""

_KNOTS: Final = np.arange(0.0, 9.0)
_HINGES: Final = (0.0, 3.0, 5.0)
"""Where an arm's own bend may begin, besides its level: at once, from 8 and from 32 requests on."""

_LEVEL_SD: Final = 5.0
_SLOPE: Final = (0.08, 0.15)
"""Mean and sd of what the shared curve rises over a doubling of load. Judgement: on the published
step times of section 1 of the numbers, 0.0 where memory binds, 0.6 where arithmetic does."""
_BEND_SD: Final = 0.15
_OFFSET_SD: Final = 0.3
_HINGE_SD: Final = (0.04, 0.08, 0.12)
_CV: Final = 0.25
"""Spread of a request's mean around the curve, while there is too little data to tell."""
_CV_N: Final = 6.0
_STICKY: Final = 0.02
"""Part of an error that more requests do not take away: those of one moment share it."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Joint draws of the curves of all arms.

    Attributes:
        values: The quantity at `GRID`, shape (arms, len(GRID), draws).
        seen: Requests behind each arm's curve, shape (arms,).
    """

    values: FloatArray
    seen: FloatArray


def grid_index(load: int) -> int:
    """Where a load lies on the grid.

    >>> [grid_index(load) for load in (1, 2, 3, 1024, 99999)]
    [0, 4, 6, 40, 40]
    """
    return min(round(4.0 * math.log2(load)), len(GRID) - 1) if load > 1 else 0


def _design(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns of the shared curve and of an arm's own, at log2 loads x."""
    shared = np.stack(
        [np.ones_like(x), *[np.clip(x - knot, 0.0, 1.0) for knot in _KNOTS]], axis=-1
    )
    own = np.stack([np.ones_like(x), *[np.maximum(x - h, 0.0) for h in _HINGES]], axis=-1)
    return shared, own


_SHARED: Final = 1 + len(_KNOTS)
_OWN: Final = 1 + len(_HINGES)
_SHARED_GRID, _OWN_GRID = _design(GRID)


def fit_curves(
    sums: Ratios,
    baseline: int,
    ratios: FloatArray | None,
    draws: int,
    rng: np.random.Generator,
    *,
    start: float,
) -> Curves:
    """Posterior draws of the curves: normal errors on the log of each bucket's mean.

    Args:
        sums: What was measured.
        baseline: Index of the arm whose own part is nothing.
        ratios: Expected factor of each arm over the baseline; None or NaN for 1.
        draws: How many.
        rng: Source of randomness.
        start: The quantity while nothing is known.
    """
    arms = len(sums.n)
    size = _SHARED + arms * _OWN
    mean = np.zeros(size)
    precision = np.zeros((size, size))
    mean[0], precision[0, 0] = math.log(start), _LEVEL_SD**-2
    mean[1:_SHARED] = _SLOPE[0]
    precision[1:_SHARED, 1:_SHARED] = np.eye(_SHARED - 1) / _SLOPE[1] ** 2
    bend = np.diff(np.eye(_SHARED - 1), axis=0) / _BEND_SD
    precision[1:_SHARED, 1:_SHARED] += bend.T @ bend
    for arm in range(arms):
        at = _SHARED + arm * _OWN
        own = np.array([_OFFSET_SD, *_HINGE_SD])
        if arm == baseline:
            own = own * 1e-3
        elif ratios is not None and ratios[arm] > 0.0:
            mean[at] = math.log(ratios[arm])
        precision[range(at, at + _OWN), range(at, at + _OWN)] = own**-2.0
    score = precision @ mean
    arm_of, bucket = np.nonzero(sums.n > 0.5)  # noqa: PLR2004 - half a request is none
    if len(arm_of):
        n, total = sums.n[arm_of, bucket], sums.total[arm_of, bucket]
        value = total / n
        cv_sq = np.maximum(sums.total_sq[arm_of, bucket] / n / value**2 - 1.0, 0.0)
        cv_sq = (cv_sq * n + _CV**2 * _CV_N) / (n + _CV_N)
        variance = cv_sq / n + _STICKY**2
        shared, own = _design(np.log2(np.maximum(sums.load[arm_of, bucket] / n, 1.0)))
        rows = np.zeros((len(arm_of), size))
        rows[:, :_SHARED] = shared
        columns = _SHARED + arm_of[:, None] * _OWN + np.arange(_OWN)
        np.put_along_axis(rows, columns, own, axis=1)
        weighed = rows / variance[:, None]
        precision += rows.T @ weighed
        score += weighed.T @ np.log(value)
    lower = np.linalg.cholesky(precision)
    centre = np.linalg.solve(precision, score)
    found = centre[:, None] + np.linalg.solve(lower.T, rng.standard_normal((size, draws)))
    common = _SHARED_GRID @ found[:_SHARED]
    each = found[_SHARED:].reshape(arms, _OWN, draws)
    log = common[None] + np.einsum("go,aod->agd", _OWN_GRID, each)
    # A step does not get shorter with more requests in it.
    return Curves(np.exp(np.maximum.accumulate(log, axis=1)), sums.n.sum(axis=1))
