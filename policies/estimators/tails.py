"""Ratios of an arm's tail to the baseline's, block by block at the same time. It judges nothing.

Histograms added up over a window mislead as soon as shares move: an arm that got most of its
requests in the busy hour has a long tail for that reason alone. So both arms are weighed alike in
every block, and only blocks that both have count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.estimators.quantiles import Blocks, quantile_of


@dataclass(frozen=True, slots=True)
class TailRatio:
    """Quantile of the arm / quantile of the baseline.

    Attributes:
        value: Estimate.
        low: Lower bound; None where there are too few observations for one.
        high: Upper bound; None where there are too few observations for one.
    """

    value: float
    low: float | None
    high: float | None


def tail_ratio(
    arm: Blocks, baseline: Blocks, q: float = 0.99, level: float = 0.95
) -> TailRatio | None:
    """Ratio of two quantiles over the same mixture of blocks, with an interval for one look.

    Block b weighs `n_arm n_base / (n_arm + n_base)`, as it does in the estimate of the gain where
    noise is alike. The intervals of the two quantiles are combined on the log scale by MOVER (Zou
    and Donner 2008, Statistics in Medicine 27, 1693-1702): each bound of the difference takes the
    distances that bear on it.

    Args:
        arm: Histograms of the arm.
        baseline: Histograms of the baseline, over the same blocks.
        q: Which quantile.
        level: Confidence in (0, 1).

    Returns:
        The ratio, or None when no block has observations of both.

    Example:
        >>> slow, fast = np.array([[500.0, 0.0]]), np.array([[0.0, 500.0]])
        >>> ratio = tail_ratio(Blocks(fast, 311), Blocks(slow, 311))
        >>> 1.0 <= ratio.low < ratio.value < ratio.high < 1.1
        True
        >>> tail_ratio(Blocks(fast[:, :0], 0), Blocks(slow, 311)) is None
        True
    """
    n_arm, n_base = arm.counts.sum(axis=1), baseline.counts.sum(axis=1)
    weight = n_arm * n_base / np.maximum(n_arm + n_base, 1.0)
    top = quantile_of(arm, q, weight, level)
    bottom = quantile_of(baseline, q, weight, level)
    if top is None or bottom is None:
        return None
    below = _distance(top.value, top.low, bottom.value, bottom.high)
    above = _distance(top.value, top.high, bottom.value, bottom.low)
    ratio = top.value / bottom.value
    return TailRatio(
        ratio,
        None if below is None else ratio * math.exp(-below),
        None if above is None else ratio * math.exp(above),
    )


def _distance(a: float, a_bound: float | None, b: float, b_bound: float | None) -> float | None:
    """Distance of a bound of log(a / b) from its estimate."""
    if a_bound is None or b_bound is None:
        return None
    return math.hypot(math.log(a / a_bound), math.log(b / b_bound))
