"""Thompson sampling on log cost, answered as probabilities. It draws no arm and keeps no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.beliefs import Told, of_view
from policies.estimators.effects import arm_effects, draw_effects
from policies.expected import PRIOR_SD, failure_posterior
from policies.parameters import ParameterError, integer, number, parameter
from policies.proposal import with_floor
from policies.types import Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm, ArmView, ClassId

_SURE_TO_FAIL = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class ThompsonParameters:
    """What can be set.

    Attributes:
        draws: Joint draws whose winners are counted; the PMF's resolution is 1 / draws.
        floor: Least probability of every arm, so that each stays measured and no propensity is 0.
        prior_sd: Sd of the prior of an arm's effect on log cost.
    """

    draws: int = parameter(256, integer(16, 16_384))
    floor: float = parameter(0.02, number(0.0, 1.0))
    prior_sd: float = parameter(PRIOR_SD, number(0.01, 10.0))


@dataclass(frozen=True, slots=True)
class ThompsonPolicy:
    """Gives an arm the probability that it is the best one.

    Thompson (1933); Gaussian form with discounted sums as in Qi et al. (2023, arXiv 2305.10718).
    A draw of an arm's cost is its effect on log cost drawn from the posterior of `arm_effects`
    (the baseline's is 0) plus `-ln(1 - p)`, p its failure probability drawn from
    `Beta(0.2 + failed, 9.8 + served)`: an arm whose requests must be repeated with probability p
    costs 1 / (1 - p) times as much.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n = np.array([[50.0, 50.0]])
        >>> level = np.array([[0.0, -0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                n[0], np.zeros(2))
        >>> ThompsonPolicy().propose(view, np.random.default_rng(0)).probabilities
        array([0.02, 0.98])
    """

    parameters: ThompsonParameters = ThompsonParameters()
    name: str = "thompson"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Count the winners of joint posterior draws; scores are posterior means of the cost."""
        effects = arm_effects(view, prior_sd=self.parameters.prior_sd)
        a, b = failure_posterior(view)
        p = rng.beta(a, b, size=(self.parameters.draws, len(view.arms)))
        cost = draw_effects(effects, rng, self.parameters.draws)
        cost -= np.log1p(-np.minimum(p, _SURE_TO_FAIL))
        wins = np.bincount(cost.argmin(axis=1), minlength=len(view.arms)) / self.parameters.draws
        floor = min(self.parameters.floor, 1.0 / len(view.arms))
        return Proposal(with_floor(wins, floor), effects.mean - np.log1p(-a / (a + b)))

    def told(self, view: ArmView) -> Told:
        """What is believed of the arms; see `policies.beliefs`."""
        return of_view(view, self.parameters.prior_sd)


def build_thompson(
    parameters: ThompsonParameters,
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - every class is treated alike
) -> ThompsonPolicy:
    """Build the policy after checking that the floor leaves something to distribute.

    Raises:
        ValueError: The floor is too high for that many arms.
    """
    if parameters.floor * len(arms) > 1.0:
        most = 1 / len(arms)
        raise ParameterError("floor", f"policy 'thompson': floor must be within 0..{most:.4g}")
    return ThompsonPolicy(parameters)
