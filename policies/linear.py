"""Linear Thompson sampling on log cost, with class and load as features. It keeps no state.

What it can know of length is what log cost holds: the time of the class's typical answer. No sums
tell log costs by prompt or answer length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.beliefs import Told, of_draws
from policies.estimators.load import BANDS
from policies.knowledge import Knowledge, Moment
from policies.parameters import ParameterError, integer, number, parameter
from policies.types import ClassId, FloatArray, Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm

BAND_LOADS: Final = (1.0, 3.0, 10.0, 30.0, 80.0)
"""Loads that stand for the bands of `policies.estimators.load`."""

_NOISE_SD: Final = 0.35
_LEVEL_SD: Final = 3.0
_MOST_Y: Final = 20.0
_MOST_N: Final = 1e9
_BEND: Final = 4.0
"""Doublings of load from which a second slope holds."""


@dataclass(frozen=True, slots=True)
class LinearParameters:
    """What can be set.

    Attributes:
        draws: Joint draws of the coefficients whose winners are counted.
        floor: Least probability of every arm that has a server.
        arm_sd: Prior sd of what an arm differs by from the baseline in all classes.
        class_sd: Prior sd of what it differs by besides in one class.
        slope_sd: Prior sd of what a doubling of load adds to an arm's log cost.
    """

    draws: int = parameter(128, integer(16, 4096))
    floor: float = parameter(0.005, number(0.0, 0.5))
    arm_sd: float = parameter(0.4, number(0.01, 10.0))
    class_sd: float = parameter(0.3, number(0.01, 10.0))
    slope_sd: float = parameter(0.2, number(0.01, 10.0))


class LinearPlan:
    """Draws of the coefficients; `propose` adds those of the moment up."""

    def __init__(
        self, known: Knowledge, parameters: LinearParameters, rng: np.random.Generator
    ) -> None:
        self._p, self._base = parameters, known.baseline
        self._classes = {class_id: place for place, class_id in enumerate(sorted(known.costs))}
        arms, classes = len(known.arms), len(self._classes)
        drawn = _draws(known, self._classes, parameters, rng)
        self._own = drawn[classes : classes + arms]
        slopes = classes + arms
        self._slope, self._bend = (
            drawn[slopes : slopes + arms],
            drawn[slopes + arms : slopes + 2 * arms],
        )
        together = drawn[slopes + 2 * arms :].reshape(classes, arms, parameters.draws)
        unknown = parameters.class_sd * rng.standard_normal((arms, parameters.draws))
        unknown[self._base] = 0.0
        self._of_class = [*together, unknown]

    def told(self, moment: Moment) -> Told:
        """What the draws say of the arms."""
        cost = self._cost(moment)
        return Told(of_draws(cost - cost[self._base]))

    def _cost(self, moment: Moment) -> FloatArray:
        """Log costs over a level that all arms share, shape (arms, draws)."""
        x = np.array([math.log2(load) if load > 1 else 0.0 for load in moment.load])
        cost = self._own + self._of_class[self._classes.get(moment.class_id, -1)]
        found: FloatArray = (
            cost + self._slope * x[:, None] + self._bend * np.maximum(x - _BEND, 0.0)[:, None]
        )
        return found

    def propose(self, moment: Moment) -> Proposal:
        """Count winners; scores are mean log costs."""
        cost = self._cost(moment)
        there = np.array(moment.load) > 0
        scores = cost.mean(axis=1)
        if not there.any():
            p = np.zeros(len(there))
            p[self._base] = 1.0
            return Proposal(p, scores)
        cost[~there] = np.inf
        p = np.bincount(cost.argmin(axis=0), minlength=len(there)) / self._p.draws
        floor = min(self._p.floor, 1.0 / int(there.sum()))
        shares = np.where(there, floor + (1.0 - floor * int(there.sum())) * p, 0.0)
        return Proposal(shares / shares.sum(), scores)


def _draws(
    known: Knowledge,
    classes: dict[ClassId, int],
    given: LinearParameters,
    rng: np.random.Generator,
) -> FloatArray:
    """Posterior draws: levels of classes, arms, slopes, second slopes, class with arm.

    Bayesian linear regression on the means of cells (Agrawal and Goyal 2013, arXiv 1209.3352, with
    the noise of one request for v).
    """
    arms, base = len(known.arms), known.baseline
    own = np.full(arms, given.arm_sd)
    own[base] = 1e-6
    pair = np.tile(np.where(np.arange(arms) == base, 1e-6, given.class_sd), len(classes))
    slope = np.full(2 * arms, given.slope_sd)
    sd = np.concatenate([np.full(len(classes), _LEVEL_SD), own, slope, pair])
    precision: FloatArray = np.diag(sd**-2.0)
    score = np.zeros(len(sd))
    x = np.log2(np.array(BAND_LOADS))
    for class_id, c in classes.items():
        n, total, total_sq = known.costs[class_id]
        with np.errstate(all="ignore"):
            mean = total / n
            sound = (n > 0.0) & (n < _MOST_N) & (np.abs(mean) < _MOST_Y) & (total_sq >= 0.0)
        for a, band in zip(*np.nonzero(sound), strict=True):
            row = np.zeros(len(sd))
            at = len(classes) + a
            row[c] = row[at] = 1.0
            row[at + arms], row[at + 2 * arms] = x[band], max(x[band] - _BEND, 0.0)
            row[len(classes) + 3 * arms + c * arms + a] = 1.0
            weight = float(n[a, band]) / _NOISE_SD**2
            precision += np.outer(weight * row, row)
            score += weight * float(mean[a, band]) * row
    lower = np.linalg.cholesky(precision)
    noise = np.linalg.solve(lower.T, rng.standard_normal((len(sd), given.draws)))
    found: FloatArray = np.asarray(
        np.linalg.solve(precision, score)[:, None] + noise, dtype=np.float64
    )
    return found


@dataclass(frozen=True, slots=True)
class LinearPolicy:
    """See the module."""

    parameters: LinearParameters = LinearParameters()
    name: str = "linear"

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> LinearPlan:
        """Make the draws."""
        return LinearPlan(known, self.parameters, rng)


def build_linear(
    parameters: LinearParameters,
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - classes come with what is known
) -> LinearPolicy:
    """Build the policy after checking that the floor leaves something to distribute.

    Raises:
        ValueError: The floor is too high for that many arms.
    """
    if parameters.floor * len(arms) > 1.0:
        most = 1 / len(arms)
        raise ParameterError("floor", f"policy 'linear': floor must be within 0..{most:.4g}")
    return LinearPolicy(parameters)


assert len(BAND_LOADS) == BANDS
