"""Log-bucket histogram of durations: mergeable by addition, relative error at most 2 %.

The sketch of Masson, Rim and Lee (2019, VLDB 12(12), "DDSketch"), with a bounded range in place of
collapsing. A histogram is any mapping of bucket index to count; adding maps adds histograms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from policies.estimators.distributions import order_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

RELATIVE_ERROR = 0.02
GAMMA = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)
LOWEST_S = 1e-6
HIGHEST_S = 1e5

_LOG_GAMMA = math.log(GAMMA)
MAX_INDEX = math.ceil(math.log(HIGHEST_S / LOWEST_S) / _LOG_GAMMA)


def bucket(seconds: float) -> int:
    """Index of the bucket that holds a duration: ceil(log_gamma(seconds / 1e-6)).

    Args:
        seconds: Any number but NaN; outside 1e-6..1e5 it falls into the outermost bucket.

    Returns:
        Index in 0..`MAX_INDEX`.

    Raises:
        ValueError: The duration is NaN.

    Example:
        >>> bucket(1e-6), bucket(0.25)
        (0, 311)
    """
    if seconds <= LOWEST_S:
        return 0
    if seconds >= HIGHEST_S:
        return MAX_INDEX
    return math.ceil(math.log(seconds / LOWEST_S) / _LOG_GAMMA)  # which refuses NaN


def bounds(index: int) -> tuple[float, float]:
    """Durations between which the bucket lies, in seconds: (above, up to).

    Example:
        >>> low, high = bounds(311)
        >>> low < 0.25 <= high
        True
    """
    return LOWEST_S * GAMMA ** (index - 1), LOWEST_S * GAMMA**index


def representative(index: int) -> float:
    """The duration that is within 2 % of everything in the bucket: 2 gamma^i / (gamma + 1).

    Example:
        >>> abs(representative(bucket(0.25)) / 0.25 - 1) <= 0.02
        True
    """
    return LOWEST_S * 2.0 * GAMMA**index / (GAMMA + 1.0)


def merge(a: Mapping[int, int], b: Mapping[int, int]) -> dict[int, int]:
    """Add two histograms.

    Example:
        >>> merge({1: 2}, {1: 1, 5: 1})
        {1: 3, 5: 1}
    """
    merged = dict(a)
    for index, count in b.items():
        merged[index] = merged.get(index, 0) + count
    return merged


def total(counts: Mapping[int, int]) -> int:
    """Observations in a histogram; counts below 0 are passed over.

    Example:
        >>> total({1: 2, 5: 3})
        5
    """
    return sum(count for count in counts.values() if count > 0)


def summed(counts: Mapping[int, int]) -> float:
    """Sum of all observations in seconds, within 2 %; where they fill their buckets, nearer.

    Example:
        >>> round(summed({bucket(0.1): 10, bucket(2.0): 1}), 1)
        3.0
    """
    return sum(count * representative(index) for index, count in counts.items() if count > 0)


def quantile(counts: Mapping[int, int], q: float) -> float | None:
    """The q-quantile in seconds, within 2 % of the sample's (DDSketch, algorithm 2).

    Args:
        counts: Bucket index to count.
        q: Probability in [0, 1].

    Returns:
        Seconds, or None when the histogram is empty.

    Example:
        >>> counts = {bucket(0.1): 99, bucket(2.0): 1}
        >>> round(quantile(counts, 0.5), 2), round(quantile(counts, 1.0), 1)
        (0.1, 2.0)
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must be within 0..1, not {q}")
    n = total(counts)
    if n == 0:
        return None
    return representative(_at_rank(counts, math.floor(q * (n - 1)) + 1))


def quantile_interval(
    counts: Mapping[int, int], q: float, level: float = 0.95
) -> tuple[float | None, float | None] | None:
    """Confidence interval of the q-quantile, free of any assumption about its law.

    The order statistics that enclose the quantile with the given confidence (Conover 1999, section
    3.2), widened to the edges of their buckets.

    Args:
        counts: Bucket index to count.
        q: Probability in (0, 1).
        level: Confidence in (0, 1); each side misses with at most (1 - level) / 2.

    Returns:
        (low, high) in seconds; a side is None where there are too few observations for it, and the
        whole is None when both are. The 99th percentile has an upper side from 368 on.

    Example:
        >>> low, high = quantile_interval({bucket(0.1): 5, bucket(1.0): 5}, 0.5)
        >>> 0.09 < low <= 0.1, 1.0 <= high < 1.05
        (True, True)
        >>> quantile_interval({bucket(0.1): 10}, 0.99)[1] is None
        True
    """
    lower, upper = order_statistics(total(counts), q, level)
    if lower is None and upper is None:
        return None
    low = bounds(_at_rank(counts, lower))[0] if lower is not None else None
    high = bounds(_at_rank(counts, upper))[1] if upper is not None else None
    return low, high


def _at_rank(counts: Mapping[int, int], rank: int) -> int:
    """Bucket of the observation with this rank, counted from 1."""
    seen = 0
    index = 0
    for index in sorted(counts):
        seen += max(counts[index], 0)
        if seen >= rank:
            break
    return index
