"""Acceptance of drafted tokens: definitions and conversions. Missing is None, never 0.

`acceptance_length` (tau) is tokens per decode step, `acceptance_rate` (alpha) the probability that
a drafted token is accepted given that all before it in its draft were. `accepted / drafted`, which
engines print, falls with k at equal alpha: it never ranks arms.
"""

from __future__ import annotations

from itertools import accumulate, count
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HALVINGS = 60


def acceptance_length(tokens: int, steps: int) -> float | None:
    """Tokens per decode step: tau = tokens / steps.

    Args:
        tokens: Completion tokens.
        steps: Decode steps, with a draft or without: tokens - accepted.

    Returns:
        tau, or None when the totals cannot be true (tau is never below 1).

    Example:
        >>> round(acceptance_length(53, 43), 2)
        1.23
    """
    return tokens / steps if 0 < steps <= tokens else None


def draft_acceptance_rate(accepted: int, drafted: int) -> float | None:
    """Accepted / drafted, as engines print it; for people only.

    Example:
        >>> round(draft_acceptance_rate(10, 129), 3)
        0.078
    """
    return accepted / drafted if drafted > 0 and 0 <= accepted <= drafted else None


def tau_from_alpha(alpha: float, k: int) -> float:
    """Expected tokens per step: tau = (1 - alpha^(k+1)) / (1 - alpha).

    Leviathan et al. 2023 (arXiv 2211.17192), equation 1, with gamma = k; holds when every position
    of the draft has the same alpha.

    Args:
        alpha: Probability in [0, 1].
        k: Length of the draft, at least 0.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> round(tau_from_alpha(0.8, 5), 2), round(tau_from_alpha(0.8, 4), 2)
        (3.69, 3.36)
    """
    if not (0.0 <= alpha <= 1.0 and k >= 0):
        raise ValueError(f"alpha must be within 0..1 and k at least 0, not {alpha}, {k}")
    tau = 1.0
    for _ in range(k):  # Horner's form of 1 + alpha + ... + alpha^k, good at alpha = 1 too
        tau = 1.0 + alpha * tau
    return tau


def alpha_from_tau(tau: float, k: int) -> float | None:
    """The alpha that would give tau if every position of the draft had the same.

    Inverts `tau_from_alpha` by bisection: tau rises strictly with alpha when k >= 1.

    Args:
        tau: Tokens per step.
        k: Length of the draft.

    Returns:
        alpha in [0, 1]; None when tau is outside [1, k + 1] or k is below 1.

    Example:
        >>> round(alpha_from_tau(3.68928, 5), 6)
        0.8
        >>> alpha_from_tau(7.0, 5) is None
        True
    """
    if k < 1 or not 1.0 <= tau <= k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if tau_from_alpha(middle, k) < tau:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def tau_from_position_rates(rates: Sequence[float]) -> float:
    """Tokens per step with a draft from alpha by position: 1 + r1 + r1 r2 + r1 r2 r3 + ...

    Over the steps of one histogram it is exact, not a model: each product is the share of drafts
    that got so far.

    Args:
        rates: As `position_rates` gives them, up to the first None.

    Example:
        >>> rates = position_rates((39, 1, 0, 3), 3)
        >>> round(tau_from_position_rates(rates), 6) == round(53 / 43, 6)
        True
    """
    tau = 1.0
    for rate in reversed(rates):  # Horner's form
        tau = 1.0 + rate * tau
    return tau


def draft_rate_from_tau(tau: float, k: int) -> float | None:
    """Accepted / drafted where every step drafts k tokens: (tau - 1) / k.

    Example:
        >>> [round(draft_rate_from_tau(tau_from_alpha(0.8, k), k), 2) for k in (3, 7)]
        [0.65, 0.45]
    """
    return (tau - 1.0) / k if k >= 1 and 1.0 <= tau <= k + 1 else None


def stopped_early(histogram: Sequence[int], k: int) -> tuple[int, int] | None:
    """Successes and failures behind alpha: tokens accepted, and steps that stopped early.

    Only right when every draft had k tokens: a shorter draft that was accepted whole would count
    as stopped.

    Args:
        histogram: Index j holds the steps that accepted j tokens.
        k: Length of the drafts.

    Returns:
        (accepted, steps that accepted fewer than k), or None when the histogram does not fit k.

    Example:
        >>> stopped_early((39, 1, 0, 3), 3)
        (10, 40)
    """
    if k < 1 or len(histogram) < 1 or min(histogram) < 0 or any(histogram[k + 1 :]):
        return None
    accepted = sum(map(mul, histogram, count()))
    return accepted, sum(histogram[:k])


def acceptance_rate(histogram: Sequence[int], k: int) -> float | None:
    """Alpha from accepted tokens per step: accepted / (accepted + steps that stopped early).

    The maximum-likelihood estimate of a geometric law cut at k.

    Example:
        >>> acceptance_rate((39, 1, 0, 3), 3)
        0.2
    """
    counts = stopped_early(histogram, k)
    if counts is None or sum(counts) == 0:
        return None
    accepted, early = counts
    return accepted / (accepted + early)


def position_rates(histogram: Sequence[int], k: int) -> tuple[float | None, ...]:
    """Conditional acceptance by position: P(position i accepted | all before it accepted).

    Args:
        histogram: Index j holds the steps that accepted j tokens.
        k: Length of the drafts.

    Returns:
        k values; None where no step got that far, or everywhere when the histogram does not fit.

    Example:
        >>> [round(rate, 3) for rate in position_rates((39, 1, 0, 3), 3)]
        [0.093, 0.75, 1.0]
    """
    if stopped_early(histogram, k) is None:
        return (None,) * max(k, 0)
    padded = [*histogram, *([0] * (k + 1))][: k + 1]
    reached = list(accumulate(reversed(padded)))[::-1]  # steps that accepted at least i
    return tuple(reached[i + 1] / reached[i] if reached[i] else None for i in range(k))
