"""Whether one method's answers are damaged more often than another's, at any look. Pure.

Three tests of one side each, all of them mixtures of likelihood ratios over a few alternatives:
under the null a mixture is a non-negative martingale of mean 1, so the chance that it ever reaches
e is at most 1 / e (Ville; Ramdas et al. 2023, Statistical Science 38, section 3). Where the null is
"at most", its boundary is tested: with monotone likelihood ratios no other null gives more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from policies.types import FloatArray

BORNE_ODDS = 1.25
"""Ratio of the odds of damage that is borne: what strata do not hold apart may make a healthy
method look worse by as much. Judgement."""

_ODDS = (2.0, 5.0, 20.0, 100.0)
"""Alternatives: damage doubled, up to damage where there was none."""

_SHARES = (0.65, 0.8, 0.95, 0.99)
"""Alternatives to an even chance."""

_RATES = (2.0, 5.0, 20.0, 80.0)
"""Alternatives to a rate, as multiples of it."""

_MOST = 700.0
"""Beyond it an exponential is no double."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Answers that can be compared with each other: those of one stretch of time and one part.

    Attributes:
        tried: Answers of the method.
        damaged: Of these, the damaged ones.
        control: Answers of the control.
        control_damaged: Of these, the damaged ones.
    """

    tried: int
    damaged: int
    control: int
    control_damaged: int

    @property
    def informs(self) -> bool:
        """Whether it says anything: both answered, and some but not all answers are damaged."""
        hits = self.damaged + self.control_damaged
        return (
            0 <= self.damaged <= self.tried
            and 0 <= self.control_damaged <= self.control
            and min(self.tried, self.control) > 0
            and 0 < hits < self.tried + self.control
        )


def odds_ratios(stratum: Stratum) -> FloatArray:
    """Log likelihood ratios of the alternatives for one stratum; add them up over strata.

    Given how many answers were damaged in all, how many of them are the method's is Fisher's
    noncentral hypergeometric, which depends on the odds ratio alone and on no rate (Fisher 1935;
    Breslow and Day 1980, eq. 4.2): whatever damages both alike, at whatever time, cancels out.

    Returns:
        Shape (alternatives,); zeros where the stratum says nothing.

    Example:
        >>> odds_ratios(Stratum(100, 0, 100, 0))
        array([0., 0., 0., 0.])
        >>> bool((odds_ratios(Stratum(100, 5, 100, 0)) > 0.0).all())
        True
    """
    if not stratum.informs:
        return np.zeros(len(_ODDS))
    hits = stratum.damaged + stratum.control_damaged
    low, high = max(0, hits - stratum.control), min(hits, stratum.tried)
    k = np.arange(low, high + 1)
    logs = _log_factorials(max(stratum.tried, stratum.control))
    ways = -logs[k] - logs[stratum.tried - k] - logs[hits - k] - logs[stratum.control - hits + k]
    terms = ways + k * _LOG_ODDS[:, np.newaxis]
    most = terms.max(axis=1)
    totals = most + np.log(np.exp(terms - most[:, np.newaxis]).sum(axis=1))
    likelihoods = terms[:, stratum.damaged - low] - totals
    ratios: FloatArray = likelihoods[1:] - likelihoods[0]
    return ratios


_LOG_ODDS = np.log((BORNE_ODDS, *_ODDS))


def _log_factorials(largest: int) -> FloatArray:
    """Of 0 and all numbers up to a power of two above the largest that is wanted."""
    return _table(largest.bit_length())


@lru_cache(maxsize=32)
def _table(bits: int) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, 2**bits + 1)))))


def no_evidence() -> FloatArray:
    """Log likelihood ratios before any stratum."""
    return np.zeros(len(_ODDS))


def e_value(log_ratios: Sequence[float] | FloatArray) -> float:
    """The mixture of likelihood ratios, all alternatives alike.

    Example:
        >>> e_value([0.0, 0.0])
        1.0
    """
    logs = np.asarray(log_ratios, dtype=np.float64)
    most = float(logs.max())
    if most > _MOST:
        return math.inf
    return float(np.exp(logs).mean())


def sign_e_value(worse: int, better: int) -> float:
    """Evidence that pairs differ in one direction: the sign test (Arbuthnott; McNemar 1947).

    Args:
        worse: Pairs in which the method's answer was the worse one.
        better: Pairs in which the control's was.

    Example:
        >>> round(sign_e_value(3, 3), 2) < 1.0, sign_e_value(16, 0) > 10_000
        (True, True)
    """
    return e_value(
        [
            worse * math.log(2.0 * share) + better * math.log(2.0 * (1.0 - share))
            for share in _SHARES
        ]
    )


def rate_e_value(hits: int, n: int, borne: float) -> float:
    """Evidence that something happens more often than is borne.

    Args:
        hits: How often it happened.
        n: How often it could have.
        borne: The largest rate that is borne, in (0, 0.01].

    Example:
        >>> rate_e_value(0, 1000, 0.002) < 1.0, rate_e_value(20, 1000, 0.002) > 10_000
        (True, True)
    """
    rates = [borne * multiple for multiple in _RATES]
    return e_value(
        [
            hits * math.log(rate / borne) + (n - hits) * math.log((1.0 - rate) / (1.0 - borne))
            for rate in rates
        ]
    )
