"""Where drafting changed last, seen within a few requests. It forgets nothing by itself.

`policies.estimators.drift` counts its false alarms over a day and tells people; this looks again at
each snapshot and is read by a policy, to which a false alarm costs a few requests and a missed one
all of them. So it asks for less: one split of all rows into before and after, tested on log tokens
per step, with the spread of requests as their sums give it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.types import FloatArray

_Z: Final = 5.0
"""Sd that before and after must be apart. Judgement: the best of some hundred splits, of requests
whose tau is far from normal in some classes; in the worlds no false alarm was seen."""
_LEAST: Final = 0.18
"""And log tau. A smaller change is the business of discounting."""
_BEFORE_N: Final = 6.0
_AFTER_N: Final = 3.0
_REQUEST_SD: Final = 0.25
_REQUEST_N: Final = 6.0


def latest_break(sums: FloatArray) -> NDArray[np.int64]:
    """First row after the latest change, by arm; 0 where none is found.

    Args:
        sums: Undiscounted, in the order of time, shape (rows, 6, arms): requests, tokens, steps,
            tokens squared, tokens times steps, steps squared.

    Example:
        >>> good, bad = [1.0, 100.0, 25.0, 1e4, 2500.0, 625.0], [1.0, 100.0, 80.0, 1e4, 8e3, 6400.0]
        >>> latest_break(np.array([good] * 20 + [bad] * 4)[:, :, None])
        array([20])
    """
    rows, _, arms = sums.shape
    first = np.zeros(arms, dtype=np.int64)
    if rows < 2:  # noqa: PLR2004 - a split has two sides
        return first
    columns = np.arange(arms)
    for _ in range(2):
        # What came before a change found already says nothing about a later one.
        live = np.where(np.arange(rows)[:, None, None] >= first, sums, 0.0)
        after = live[::-1].cumsum(axis=0)[::-1]
        score = _scores(after[0] - after, after)
        split = score.argmax(axis=0)
        first = np.where(score[split, columns] > _Z**2, split, first)
    return first


def _scores(before: FloatArray, after: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        apart = np.log(after[:, 1] / after[:, 2]) - np.log(before[:, 1] / before[:, 2])
        n_before, n_after = before[:, 0], after[:, 0]
        spread = (
            _spread(before) * n_before + _spread(after) * n_after + _REQUEST_N * _REQUEST_SD**2
        ) / (n_before + n_after + _REQUEST_N)
        score = apart**2 / (spread * (1.0 / n_before + 1.0 / n_after))
        sound = (n_before >= _BEFORE_N) & (n_after >= _AFTER_N) & (np.abs(apart) > _LEAST)
        return np.where(sound & np.isfinite(score), score, 0.0)


def _spread(sums: FloatArray) -> FloatArray:
    """Variance that one request brings to log tau."""
    n, tokens, steps, tt, ts, ss = (sums[:, i] for i in range(6))
    tau = tokens / steps
    spread: FloatArray = n * np.maximum(tt - 2.0 * tau * ts + tau**2 * ss, 0.0) / tokens**2
    return np.nan_to_num(spread, nan=0.0, posinf=0.0)
