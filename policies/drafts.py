"""Tokens per step of every class on every arm: what is measured, and what arms and priors add.

It reads no clock and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

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
_LOG_ODDS_WRONG: Final = math.log(0.05 / 0.95)
"""Of what is published saying nothing of these arms, before anything is measured. Judgement."""
_MOST_ODDS: Final = 50.0
_MOST_N: Final = 1e9
_MOST_K: Final = 63
_MOST_LOG_TAU: Final = 6.0


def draw_log_tau(
    known: Knowledge, draws: int, rng: np.random.Generator
) -> Mapping[ClassId, FloatArray]:
    """Joint posterior draws of log tokens per step, shape (arms, draws), of each whole class.

    A class's deviation on an arm is normal around a deviation of the arm that all its classes
    share: partial pooling (Gelman et al. 2013, chapter 5), in closed form for each arm. What is
    published is one model of where that begins and how wide it is, that nothing is published is
    the other; a draw is made from either with its posterior probability, of all arms together
    (model averaging, Hoeting et al. 1999). So what was measured of some cells lets go of what was
    published of the others.
    """
    classes = sorted({class_id for class_id, _ in known.beliefs} | set(known.tau_priors))
    found = {class_id: np.zeros((len(known.arms), draws)) for class_id in classes}
    drafting = [a for a, arm in enumerate(known.arms) if arm.method != _PLAIN]
    if not classes or not drafting:
        return found
    measured = {a: _measured(known, classes, a) for a in drafting}
    priors = {a: _priors(known, classes, a) for a in drafting}
    log_odds = _LOG_ODDS_WRONG + sum(
        _evidence(measured[a], untold) - _evidence(measured[a], told)
        for a, (told, untold) in priors.items()
    )
    wrong = rng.random(draws) < 1.0 / (1.0 + np.exp(-np.clip(log_odds, -_MOST_ODDS, _MOST_ODDS)))
    for a in drafting:
        log = np.where(wrong, *(_pooled(measured[a], p, draws, rng) for p in priors[a][::-1]))
        most = np.log1p(known.arms[a].num_speculative_tokens or _MOST_K)
        for c, class_id in enumerate(classes):
            found[class_id][a] = np.clip(log[c], 0.0, most)
    return found


class _Prior(NamedTuple):
    """Of an arm's log tau: centre and sd of each class, and sd of what all classes share."""

    centre: FloatArray
    cell_sd: FloatArray
    arm_sd: float


def _priors(known: Knowledge, classes: list[ClassId], a: int) -> tuple[_Prior, _Prior]:
    """With what is published of an arm, and without."""
    prior = np.array([_expected(known, class_id, a) for class_id in classes])
    published = np.isfinite(prior)
    centre = np.log(np.where(published, prior, _UNKNOWN_TAU))
    told = _Prior(centre, np.where(published, *_CELL_SD), _ARM_SD[not published.any()])
    untold = np.full(len(classes), np.log(_UNKNOWN_TAU)), np.full(len(classes), _CELL_SD[1])
    return told, _Prior(*untold, _ARM_SD[1])


def _evidence(measured: tuple[FloatArray, FloatArray], prior: _Prior) -> float:
    """Log density of what was measured of an arm, but for a constant.

    Its covariance is diagonal but for what all classes share, so inverse and determinant are those
    of Sherman and Morrison.
    """
    value, variance = measured
    known = np.isfinite(variance)
    total = prior.cell_sd[known] ** 2 + variance[known]
    z, weight = value[known] - prior.centre[known], 1.0 / total
    shared = prior.arm_sd**-2.0 + weight.sum()
    square = (weight * z * z).sum() - (weight * z).sum() ** 2 / shared
    return -0.5 * float(np.log(total).sum() + np.log(shared * prior.arm_sd**2) + square)


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
    measured: tuple[FloatArray, FloatArray], prior: _Prior, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws of an arm's log tau, shape (classes, draws), from noisy values and their variances."""
    value, variance = measured
    known = np.isfinite(variance)
    z = np.where(known, value - prior.centre, 0.0)
    weight = np.where(known, 1.0 / (prior.cell_sd**2 + variance), 0.0)
    precision = prior.arm_sd**-2.0 + weight.sum()
    shared = float((weight * z).sum()) / precision
    shared_draws = shared + rng.standard_normal(draws) / np.sqrt(precision)
    trust = np.where(known, prior.cell_sd**2 / (prior.cell_sd**2 + variance), 0.0)
    left = prior.cell_sd * np.sqrt(1.0 - trust)
    own = left[:, None] * rng.standard_normal((len(z), draws))
    found: FloatArray = (
        shared_draws * (1.0 - trust[:, None]) + (prior.centre + trust * z)[:, None] + own
    )
    return found
