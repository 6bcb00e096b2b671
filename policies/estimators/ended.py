"""How often an arm's requests end badly, against the baseline's of the same time. Pure.

An outage of everything meets the arm that has the traffic just then, and requests of one kind are
given up more often than those of another. So only requests of one stratum, a stretch of time and a
part of the class, are compared; a stratum in which one side had none says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.types import FloatArray

SURE_Z = 3.3
"""Of bounds of shares: 0.999, since they are looked at again and again. Twice 1.65, as is the
interval that `policies.estimators.verdict.gain_of` keeps at all looks."""

ABANDONED_MARGIN = 0.02
"""Share of answers that may be abandoned beyond the baseline's. Judgement: had two in a hundred
taken ten times as long, `0.02 ln 10` would be missing in log cost, which is no more than what
counts as no difference."""

LEAST_MET = 5.0
"""Fewer requests of the baseline at the same time are none. Judgement: as for other verdicts."""

_PRIOR_PAIRS = 5.0
"""What the difference over all times counts for. Judgement: as much as five requests of the
baseline at the same time, or ten of either, as the prior of a failure probability is worth
(`policies.expected.FAILURE_PRIOR`)."""

_MOST = 1e12


@dataclass(frozen=True, slots=True)
class Excess:
    """By how much the share of an arm is above the baseline's of the same time, shape (..., arms).

    Attributes:
        value: Difference of shares, within -1..1; 0 for the baseline and where nothing is met.
        low: Lower bound; -1 where nothing is met.
        met: Requests of the baseline in the strata that both have.
        pairs: What these strata are worth: `W` below. Where the baseline is a mere control, its
            requests; where both have as many, half of them.
    """

    value: FloatArray
    low: FloatArray
    met: FloatArray
    pairs: FloatArray

    def above(self, margin: float) -> NDArray[np.bool_]:
        """Arms whose share is surely higher by more than a margin, and that were met at all."""
        found: NDArray[np.bool_] = (self.met >= LEAST_MET) & (self.low > margin)
        return found


def excess(hits: FloatArray, n: FloatArray, baseline: int) -> Excess:
    """Compare shares within strata: the risk difference of Mantel and Haenszel.

    With `n_s` requests of the arm and `m_s` of the baseline in stratum s (Greenland and Robins
    1985, Biometrics 41)::

        w_s   = n_s m_s / (n_s + m_s)
        p, p0 = sum_s w_s hits_s / n_s / W, the same of the baseline        W = sum_s w_s
        value = p - p0

    Their variance takes each stratum by itself and is 0 where the baseline has one request in each,
    as it has where it is a mere control. So both shares are taken to be of `W^2 / sum_s w_s^2 /
    n_s` requests, which are no fewer than they count for, because p (1 - p) is concave. The bound
    is that of Agresti and Caffo (2000, American Statistician 54), `z^2 / 4` hits and as many
    misses added to either side, which holds where there are few or none.

    Args:
        hits: Requests that ended so, shape (..., strata, arms).
        n: All of them, of the same shape.
        baseline: Index of the arm to compare with.

    Example:
        >>> n = np.array([[540.0, 60.0], [30.0, 570.0]])
        >>> outage = np.array([[0.0, 0.0], [3.0, 57.0]])
        >>> found = excess(outage, n, 0)
        >>> abs(found.value).round(9), found.above(0.02)
        (array([0., 0.]), array([False, False]))
        >>> excess(np.array([[0.0, 12.0], [0.0, 114.0]]), n, 0).above(0.02)
        array([False,  True])
    """
    n = _sound(n)
    hits = np.minimum(_sound(hits), n)
    m, base_hits = n[..., [baseline]], hits[..., [baseline]]
    both = (n > 0.0) & (m > 0.0)
    both[..., baseline] = False
    w = np.where(both, n * m / np.where(both, n + m, 1.0), 0.0)
    pairs = w.sum(axis=-2)
    p, size = _standardised(hits, n, w, pairs)
    p0, size0 = _standardised(base_hits, m, w, pairs)
    more = SURE_Z**2 / 4.0
    shares, variances = [], []
    for share, of in ((p, size), (p0, size0)):
        centre = (share * of + more) / (of + 2.0 * more)
        shares.append(centre)
        variances.append(centre * (1.0 - centre) / (of + 2.0 * more))
    low = shares[0] - shares[1] - SURE_Z * np.sqrt(variances[0] + variances[1])
    met = np.where(both, m, 0.0).sum(axis=-2)
    there = pairs > 0.0
    return Excess(np.where(there, p - p0, 0.0), np.where(there, low, -1.0), met, pairs)


def _standardised(
    hits: FloatArray, n: FloatArray, w: FloatArray, pairs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A share under the weights of the strata, and the requests that it is worth."""
    per = w / np.where(n > 0.0, n, 1.0)
    whole = np.where(pairs > 0.0, pairs, 1.0)
    spread = (w * per).sum(axis=-2)
    size = whole**2 / np.where(pairs > 0.0, spread, np.inf)
    return (per * hits).sum(axis=-2) / whole, size


def of_the_same_time(ended: FloatArray, baseline: int) -> tuple[FloatArray, FloatArray]:
    """Requests served and failed, as they would be had each arm met what the baseline met.

    Each arm keeps the number of its requests, and gets the share that failed::

        p' = p + k (p0 + excess - p)        k = pairs / (pairs + 5)

    with p and p0 over all times: the baseline's share and what the arm failed beyond it at the same
    time. Where they hardly met, what the arm has shown at other times stands. Answers that were
    abandoned more often than the baseline's of the same time have failed too, as far as that is
    sure: somebody stopped waiting for them. Where nothing failed and nobody left, sums stay as they
    are.

    Args:
        ended: Requests served, failed and abandoned, shape (..., strata, 3, arms).
        baseline: Index of the arm to compare with.

    Returns:
        Served and failed, each of shape (..., arms).

    Example:
        >>> outage = np.array([[[540.0, 60.0], [0.0, 0.0], [0.0, 0.0]],
        ...                    [[27.0, 513.0], [3.0, 57.0], [0.0, 0.0]]])
        >>> served, failed = of_the_same_time(outage, 0)
        >>> (failed / (served + failed)).round(3)
        array([0.005, 0.01 ])
    """
    ended = _sound(ended)
    failed, answered = ended[..., 1, :], ended[..., :2, :].sum(axis=-2)
    n, hits = answered.sum(axis=-2), failed.sum(axis=-2)
    left = abandoned_beyond(ended, baseline)
    if not hits.any():  # as nearly always; there is nothing to compare
        return n - hits, hits + left
    share = hits / np.where(n > 0.0, n, 1.0)
    fails = excess(failed, answered, baseline)
    trust = fails.pairs / (fails.pairs + _PRIOR_PAIRS)
    moved = trust * (share[..., [baseline]] + fails.value - share)
    hits = np.clip(hits + n * moved, 0.0, n)
    return n - hits, hits + left


def abandoned_beyond(ended: FloatArray, baseline: int) -> FloatArray:
    """Answers surely abandoned beyond the baseline's share of the same time, shape (..., arms).

    Args:
        ended: Requests served, failed and abandoned, shape (..., strata, 3, arms).
        baseline: Index of the arm to compare with.

    Example:
        >>> left = np.array([[[75.0, 75.0], [0.0, 0.0], [5.0, 25.0]]] * 10)
        >>> abandoned_beyond(left, 0).round()
        array([  0., 132.])
    """
    abandoned, n = ended[..., 2, :], ended.sum(axis=-2)
    if not abandoned.any():
        return np.zeros_like(n.sum(axis=-2))
    found = excess(abandoned, n, baseline)
    surely = np.where(found.met >= LEAST_MET, np.clip(found.low, 0.0, 1.0), 0.0)
    beyond: FloatArray = surely * n.sum(axis=-2)
    return beyond


def _sound(counts: FloatArray) -> FloatArray:
    known: FloatArray = np.nan_to_num(counts, nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(known, 0.0, _MOST)
