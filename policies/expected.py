"""What a view says an arm costs, failures included; shared by policies, decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.effects import arm_effects

if TYPE_CHECKING:
    from policies.types import ArmView, FloatArray

FAILURE_PRIOR = (0.2, 9.8)
"""Beta prior of an arm's failure probability: mean 2 %, worth 10 requests. Judgement: the first
failure of an untried arm is a warning (11 %), the fifth in a row a reason to stay away (35 %),
while one failure among a hundred answers hardly counts (1 %)."""

PRIOR_SD = 0.5
"""Sd of the prior of an arm's effect on log cost. Judgement: two thirds of its mass lie between
0.61 and 1.65 times the baseline's time (docs/policies.md); speed-ups measured on llama.cpp and vLLM
on two CPU cores ran from 0.7 (prose) to 3.3 (copied code)."""

_MOST_COUNT = 1e12
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Expected:
    """Log cost of each arm against the baseline's; lower is better.

    Attributes:
        mean: Shape (arms,); the effect, plus `-ln(1 - p)` of the mean failure probability.
        sd: Shape (arms,), of the effect; 0 for the baseline.
        n: Observations of each arm, shape (arms,), failures included; what cannot be true is 0.
    """

    mean: FloatArray
    sd: FloatArray
    n: FloatArray


def expected_cost(view: ArmView, prior_sd: float = PRIOR_SD) -> Expected:
    """Put effects and failures of a view together.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n, level = np.array([[50.0, 50.0]]), np.array([[0.0, -0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                n[0], np.zeros(2))
        >>> expected_cost(view).mean.round(2)
        array([ 0.  , -0.49])
    """
    effects = arm_effects(view, prior_sd=prior_sd)
    a, b = failure_posterior(view)
    served = np.clip(np.nan_to_num(view.n, nan=0.0, posinf=0.0, neginf=0.0), 0.0, _MOST_COUNT)
    return Expected(
        effects.mean - np.log1p(-a / (a + b)),
        np.sqrt(np.maximum(np.diagonal(effects.covariance), 0.0)),
        served.sum(axis=0) + (a - FAILURE_PRIOR[0]),
    )


def failure_posterior(view: ArmView) -> tuple[FloatArray, FloatArray]:
    """Beta posterior of each arm's failure probability; impossible counts leave the prior.

    Returns:
        Shapes a and b of Beta(a, b), each of shape (arms,).

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True),)
        >>> failure_posterior(ArmView.empty(ClassId("chat"), arms))
        (array([0.2]), array([9.8]))
    """
    served, failed = view.served, view.failed
    sound = (served >= 0.0) & (failed >= 0.0) & (served <= _MOST_COUNT) & (failed <= _MOST_COUNT)
    a, b = FAILURE_PRIOR
    return a + np.where(sound, failed, 0.0), b + np.where(sound, served, 0.0)


def shared_by_best(index: FloatArray) -> FloatArray:
    """PMF over the arms with the lowest index, in equal parts; rounding makes no difference.

    Example:
        >>> shared_by_best(np.array([0.0, -0.5, -0.5]))
        array([0. , 0.5, 0.5])
    """
    best = index <= index.min() + _ROUNDING
    shares: FloatArray = best / best.sum()
    return shares
