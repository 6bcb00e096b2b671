"""Which arms do harm to a class, and why. It routes nothing and keeps nothing.

An arm that is held back is left to probing: it keeps a small share, and what that brings lets it
back. Two thresholds, and the caller telling which arms were held back before, keep it from
flapping.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.types import FloatArray

FAILURES: Final = "failures"
TAIL: Final = "slow_tail"

_FAILED: Final = (0.25, 0.08)
"""Share of failed requests, lately, from which an arm is out, and below which it is back."""
_OF_BASELINE: Final = 3.0
"""And so many times the baseline's share. A fleet that fails as a whole has no arm to blame."""
_LEAST_FAILED: Final = 2.0
_PRIOR: Final = (0.2, 5.0)
_SLOW: Final = (0.4, 0.2)
"""How far, in log cost, an arm's 99th percentile is beyond the baseline's when it goes, and when it
comes back; that of a normal with the mean and spread of its requests. Judgement: two pools of one
model on one kind of server are within 0.15 in the worlds of docs/world.md."""
_LEAST_N: Final = 30.0
_P99: Final = 2.326
_SURE: Final = 2.0


def held_back(
    recent: FloatArray,
    costs: FloatArray,
    baseline: int,
    before: Collection[int] = (),
    alike: NDArray[np.bool_] | None = None,
) -> dict[int, str]:
    """Arms to hold back, with the reason.

    Args:
        recent: Requests served and failed of late, shape (2, arms).
        costs: Log costs: number, sum, sum of squares, shape (3, arms).
        baseline: Index of the arm that is never held back.
        before: Arms that were held back until now.
        alike: Arms that answered the same mix of parts as the baseline; of the others no tail is
            judged, which may be that of the parts. None where no part is told apart.

    Example:
        >>> recent = np.array([[20.0, 3.0], [0.0, 4.0]])
        >>> held_back(recent, np.zeros((3, 2)), 0)
        {1: 'failures'}
    """
    arms = recent.shape[1]
    was = np.isin(np.arange(arms), list(before))
    with np.errstate(all="ignore"):
        served, failed = np.nan_to_num(recent, nan=0.0, posinf=0.0, neginf=0.0)
        rate = (failed + _PRIOR[0]) / (served + failed + _PRIOR[0] + _PRIOR[1])
        broken = (rate > np.where(was, _FAILED[1], _FAILED[0])) & (
            rate > _OF_BASELINE * rate[baseline]
        )
        broken &= was | (failed >= _LEAST_FAILED)
        slow = _slow_by(costs, baseline) > np.where(was, _SLOW[1], _SLOW[0])
    if alike is not None:
        slow &= alike
    broken[baseline] = slow[baseline] = False
    return {a: FAILURES if broken[a] else TAIL for a in range(arms) if broken[a] or slow[a]}


def _slow_by(costs: FloatArray, baseline: int) -> FloatArray:
    """How far the tail is beyond the baseline's, at the least."""
    n, total, total_sq = costs
    mean = total / n
    variance = np.maximum(total_sq / n - mean**2, 0.0)
    tail = mean + _P99 * np.sqrt(variance)
    error = variance / n * (1.0 + _P99**2 / 2.0)
    beyond = tail - tail[baseline] - _SURE * np.sqrt(error + error[baseline])
    known = (n >= _LEAST_N) & (n[baseline] >= _LEAST_N) & np.isfinite(beyond)
    return np.where(known, beyond, -np.inf)
