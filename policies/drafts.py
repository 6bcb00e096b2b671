"""Tokens per step of every class on every arm: what is measured, and what arms and priors add.

It reads no clock and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from policies.knowledge import Knowledge
from policies.types import ClassId, FloatArray

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
_MOST_N: Final = 1e9


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
        log = _pooled(value - centre, variance, cell_sd, _ARM_SD[not published.any()], draws, rng)
        most = np.log1p(arm.num_speculative_tokens or 63)
        for c, class_id in enumerate(classes):
            found[class_id][a] = np.clip(centre[c] + log[c], 0.0, most)
    return found


def _expected(known: Knowledge, class_id: ClassId, arm: int) -> float:
    row = known.tau_priors.get(class_id)
    return float(row[arm]) if row is not None and row[arm] >= 1.0 else np.nan


def _measured(known: Knowledge, classes: list[ClassId], a: int) -> tuple[FloatArray, FloatArray]:
    """Log tau and its sampling variance, by class; infinite where nothing was measured."""
    value, variance = np.zeros(len(classes)), np.full(len(classes), np.inf)
    for c, class_id in enumerate(classes):
        belief = known.beliefs.get((class_id, ""))
        if belief is None:
            continue
        d = belief.drafting
        n, tokens, steps = float(d.n[a]), float(d.tokens[a]), float(d.steps[a])
        if not (0.0 < n < _MOST_N and 0.0 < steps <= tokens * (1.0 + 1e-9)):
            continue
        tau = tokens / steps
        spread = max(float(d.tt[a] - 2.0 * tau * d.ts[a] + tau * tau * d.ss[a]), 0.0) / tokens**2
        # Requests of uneven length weigh as fewer.
        even = min(max(tokens * tokens / max(float(d.tt[a]), 1.0), 1.0), n)
        value[c] = np.log(tau)
        variance[c] = (_REQUEST_N * _REQUEST_SD**2 / even + n * spread) / (_REQUEST_N + n)
    return value, variance


def _pooled(
    z: FloatArray,
    variance: FloatArray,
    cell_sd: FloatArray,
    arm_sd: float,
    draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws of deviations, shape (classes, draws), from noisy ones."""
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
