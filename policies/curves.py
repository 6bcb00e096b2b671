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

_MOST_LOAD: Final = 1024
_INDEX: Final = (0, *(round(4.0 * math.log2(load)) for load in range(1, _MOST_LOAD)))
_KNOTS: Final = np.arange(0.0, 11.0)
_HINGES: Final = (0.0, 3.0, 5.0)
"""Where an arm's own bend may begin, besides its level: at once, from 8 and from 32 requests on."""

_LEVEL_SD: Final = 5.0
_SLOPES: Final = np.array([0.01, 0.01, 0.02, 0.03, 0.06, 0.1, 0.17, 0.27, 0.4, 0.55, 0.7])
_SLOPE_SD: Final = 0.08
"""What the shared curve rises over each doubling of the tokens in a step. Judgement: nothing where
memory binds, all of it where arithmetic does, half of it at 300 tokens, which is where published
step times of 8B models on H100 turn (section 1 of the numbers)."""
_BEND_SD: Final = 0.12
_OFFSET_SD: Final = 0.3
_HINGE_SD: Final = (0.04, 0.08, 0.12)
_CV: Final = 0.25
"""Spread of a request's mean around the curve, while there is too little data to tell."""
_CV_N: Final = 6.0
_MOST_TOKENS: Final = 64.0
_MOST_RATIO: Final = 100.0
_LEAST_N: Final = 0.5
_MOST_N: Final = 1e9
_MOST_CV_SQ: Final = 1e4
_ROUNDING: Final = 1e-6
_LOG_RANGE: Final = (math.log(1e-8), math.log(1e3))
_STICKY: Final = 0.05
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
    return _INDEX[load] if 0 <= load < _MOST_LOAD else (len(GRID) - 1 if load > 0 else 0)


def _shared(x: FloatArray) -> FloatArray:
    """Columns of the shared curve at log2 tokens x."""
    bends = [np.clip(x - knot, 0.0, 1.0) for knot in _KNOTS[:-1]]
    return np.stack([np.ones_like(x), *bends, np.maximum(x - _KNOTS[-1], 0.0)], axis=-1)


def _own(x: FloatArray) -> FloatArray:
    """Columns of an arm's own part, at log2 loads x."""
    return np.stack([np.ones_like(x), *[np.maximum(x - h, 0.0) for h in _HINGES]], axis=-1)


_SHARED: Final = 1 + len(_KNOTS)
_OWN: Final = 1 + len(_HINGES)
_OWN_GRID: Final = _own(GRID)


def fit_curves(
    sums: Ratios,
    baseline: int,
    ratios: FloatArray | None,
    draws: int,
    rng: np.random.Generator,
    *,
    start: float,
    tokens: FloatArray | None = None,
) -> Curves:
    """Posterior draws of the curves: normal errors on the log of each bucket's mean.

    Args:
        sums: What was measured.
        baseline: Index of the arm whose own part is nothing.
        ratios: Expected factor of each arm over the baseline; None or NaN for 1.
        draws: How many.
        rng: Source of randomness.
        start: The quantity while nothing is known.
        tokens: Tokens of a request in each step, drafts included, by arm; None for 1. A batch of
            that many times more tokens is where the shared curve is read.
    """
    arms = len(sums.n)
    shift = np.zeros(arms) if tokens is None else np.log2(np.clip(tokens, 1.0, _MOST_TOKENS))
    size = _SHARED + arms * _OWN
    mean = np.zeros(size)
    precision = np.zeros((size, size))
    mean[0], precision[0, 0] = math.log(start), _LEVEL_SD**-2
    mean[1:_SHARED] = _SLOPES
    precision[1:_SHARED, 1:_SHARED] = np.eye(_SHARED - 1) / _SLOPE_SD**2
    bend = np.diff(np.eye(_SHARED - 1), axis=0) / _BEND_SD
    precision[1:_SHARED, 1:_SHARED] += bend.T @ bend
    for arm in range(arms):
        at = _SHARED + arm * _OWN
        own = np.array([_OFFSET_SD, *_HINGE_SD])
        if arm == baseline:
            own = own * 1e-3
        elif ratios is not None and 0.0 < ratios[arm] < _MOST_RATIO:
            mean[at] = math.log(ratios[arm])
        precision[range(at, at + _OWN), range(at, at + _OWN)] = own**-2.0
    score = precision @ mean
    n, load, value, cv_sq = _sound(sums)
    arm_of, bucket = np.nonzero(n)
    if len(arm_of):
        variance = cv_sq[arm_of, bucket] / n[arm_of, bucket] + _STICKY**2
        x = np.log2(load[arm_of, bucket])
        rows = np.zeros((len(arm_of), size))
        rows[:, :_SHARED] = _shared(x + shift[arm_of])
        columns = _SHARED + arm_of[:, None] * _OWN + np.arange(_OWN)
        np.put_along_axis(rows, columns, _own(x), axis=1)
        weighed = rows / variance[:, None]
        precision += rows.T @ weighed
        score += weighed.T @ np.log(value[arm_of, bucket])
    lower = np.linalg.cholesky(precision)
    centre = np.linalg.solve(precision, score)
    found = centre[:, None] + np.linalg.solve(lower.T, rng.standard_normal((size, draws)))
    each = found[_SHARED:].reshape(arms, _OWN, draws)
    log = _shared(GRID + shift[:, None]) @ found[:_SHARED] + _OWN_GRID @ each
    # A step does not get shorter with more requests in it.
    log = np.clip(np.maximum.accumulate(log, axis=1), *_LOG_RANGE)
    return Curves(np.exp(log), n.sum(axis=1))


def _sound(sums: Ratios) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Requests, mean load, mean and squared coefficient of variation; no requests where absurd."""
    low, high = np.exp(_LOG_RANGE)
    with np.errstate(all="ignore"):
        n, load, value = sums.n, sums.load / sums.n, sums.total / sums.n
        cv_sq = sums.total_sq / n / value**2 - 1.0
        sound = (n >= _LEAST_N) & (n <= _MOST_N) & (load > 0.0) & (load < _MOST_N)
        sound &= (value >= low) & (value <= high) & (cv_sq >= -_ROUNDING) & (cv_sq < _MOST_CV_SQ)
    n, load = np.where(sound, n, 0.0), np.where(sound, np.maximum(load, 1.0), 1.0)
    cv_sq = np.where(sound, np.maximum(cv_sq, 0.0), 0.0)
    cv_sq = (cv_sq * n + _CV**2 * _CV_N) / (n + _CV_N)
    return n, load, np.where(sound, value, 1.0), cv_sq
