"""Tokens per step of every class on every arm: what is measured, and what arms and priors add.

It reads no clock and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from policies.knowledge import Drafting, Knowledge
from policies.types import Arm, ClassId, FloatArray

_PLAIN: Final = "none"
_UNKNOWN_TAU: Final = 1.5
"""Of an arm nothing is published about. Judgement: look-up methods on prose have 1.2, trained
drafters 2 to 3; a speculative arm is not set up to gain nothing."""
_CELL_SD: Final = (0.2, 0.35)
"""How much a class differs from what is expected of it, on the log scale: with and without a
published figure. Between published sources the same method and class differ by 0.2."""
_ARM_SD: Final = (0.2, 0.4)
"""How much an arm differs in all classes alike."""
_REQUEST_SD: Final = 0.25
_REQUEST_N: Final = 4.0
"""Spread of a request's log tau, and what that expectation is worth in requests. Judgement: traces
show 0.1 to 0.17 for trained drafters, 0.25 to 0.37 for look-up on edits."""
_PART_SD: Final = 0.15
"""How much a part differs from what it is a part of. Judgement: of the spread between requests a
fifth is their template's in the worlds; languages of one class differ by a third at most."""
_MOST_N: Final = 1e9
_MOST_K: Final = 63
_MOST_LOG_TAU: Final = 6.0


def draw_log_tau(
    known: Knowledge, draws: int, rng: np.random.Generator
) -> Mapping[ClassId, FloatArray]:
    """Joint posterior draws of log tokens per step, shape (arms, draws), of each whole class.

    A class's deviation on an arm is normal around a deviation of the arm that all its classes
    share: partial pooling (Gelman et al. 2013, chapter 5), in closed form for each arm.
    """
    classes = sorted({class_id for class_id, _ in known.beliefs} | set(known.tau_priors))
    found = {class_id: np.zeros((len(known.arms), draws)) for class_id in classes}
    if not classes:
        return found
    for a, arm in enumerate(known.arms):
        if arm.method == _PLAIN:
            continue
        prior = np.array([_expected(known, class_id, a) for class_id in classes])
        published = np.isfinite(prior)
        centre = np.log(np.where(published, prior, _UNKNOWN_TAU))
        cell_sd = np.where(published, *_CELL_SD)
        value, variance = _measured(known, classes, a)
        deviation = (value - centre, variance)
        log = _pooled(deviation, cell_sd, _ARM_SD[not published.any()], draws, rng)
        most = np.log1p(arm.num_speculative_tokens or _MOST_K)
        for c, class_id in enumerate(classes):
            found[class_id][a] = np.clip(centre[c] + log[c], 0.0, most)
    return found


def _expected(known: Knowledge, class_id: ClassId, arm: int) -> float:
    row = known.tau_priors.get(class_id)
    known_prior = row is not None and 1.0 <= row[arm] <= _MOST_K
    return float(row[arm]) if row is not None and known_prior else np.nan


def _measured(known: Knowledge, classes: list[ClassId], a: int) -> tuple[FloatArray, FloatArray]:
    """Log tau and its sampling variance, by class; infinite where nothing was measured."""
    value, variance = np.zeros(len(classes)), np.full(len(classes), np.inf)
    for c, class_id in enumerate(classes):
        belief = known.beliefs.get((class_id, ""))
        if belief is not None:
            found, error = log_tau(belief.drafting)
            value[c], variance[c] = found[a], error[a]
    return value, variance


def log_tau(d: Drafting) -> tuple[FloatArray, FloatArray]:
    """Log tokens per step of each arm and its sampling variance, infinite where nothing is known.

    Example:
        >>> one = Drafting(*np.array([[16.0], [1600.0], [800.0], [160000.0], [80000.0], [40000.0]]))
        >>> log_tau(one)[0].round(3), log_tau(one)[1].round(4)
        (array([0.693]), array([0.0008]))
    """
    with np.errstate(all="ignore"):
        n, tokens, steps = d.n, d.tokens, d.steps
        sound = (n > 0.0) & (n < _MOST_N) & (steps > 0.0) & (steps <= tokens * (1.0 + 1e-9))
        sound &= tokens < _MOST_N * _MOST_N
        tau = tokens / steps
        spread = np.maximum(d.tt - 2.0 * tau * d.ts + tau**2 * d.ss, 0.0) / tokens**2
        spread = np.where(np.isfinite(spread), spread, 0.0)
        # Requests of uneven length weigh as fewer.
        even = np.clip(tokens**2 / np.maximum(d.tt, 1.0), np.minimum(n, 1.0), n)
        even = np.where(np.isfinite(even) & (even > 0.0), even, n)
        variance = (_REQUEST_N * _REQUEST_SD**2 / even + n * spread) / (_REQUEST_N + n)
        value = np.log(tau)
    sound &= np.isfinite(value) & np.isfinite(variance) & (value < _MOST_LOG_TAU)
    return np.where(sound, value, 0.0), np.where(sound, variance, np.inf)


def of_part(
    parent: FloatArray, d: Drafting, arms: tuple[Arm, ...], rng: np.random.Generator
) -> FloatArray:
    """Draws of a part's log tokens per step, around those of what it is a part of.

    Args:
        parent: Draws of the class or larger part, shape (arms, draws).
        d: What was measured of the part.
        arms: The arms.
        rng: Source of randomness.
    """
    value, variance = log_tau(d)
    sd = np.array([0.0 if arm.method == _PLAIN else _PART_SD for arm in arms])
    trust = np.where(
        np.isfinite(variance), sd**2 / (sd**2 + np.where(sd > 0.0, variance, 1.0)), 0.0
    )
    left = sd * np.sqrt(1.0 - trust)
    drawn = parent + trust[:, None] * (value[:, None] - parent)
    found: FloatArray = drawn + left[:, None] * rng.standard_normal(parent.shape)
    most = np.array([np.log1p(arm.num_speculative_tokens or _MOST_K) for arm in arms])
    return np.clip(found, 0.0, most[:, None])


def _pooled(
    measured: tuple[FloatArray, FloatArray],
    cell_sd: FloatArray,
    arm_sd: float,
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws of deviations, shape (classes, draws), from noisy ones and their variances."""
    z, variance = measured
    weight = np.where(np.isfinite(variance), 1.0 / (cell_sd**2 + variance), 0.0)
    precision = arm_sd**-2.0 + weight.sum()
    shared = float((weight * z).sum()) / precision
    shared_draws = shared + rng.standard_normal(draws) / np.sqrt(precision)
    trust = np.where(np.isfinite(variance), cell_sd**2 / (cell_sd**2 + variance), 0.0)
    left = cell_sd * np.sqrt(1.0 - trust)
    own = left[:, None] * rng.standard_normal((len(z), draws))
    z = np.where(np.isfinite(variance), z, 0.0)
    found: FloatArray = shared_draws * (1.0 - trust[:, None]) + (trust * z)[:, None] + own
    return found
