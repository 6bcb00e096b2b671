"""Optimism: the arm that may be the cheapest. It draws no arm and keeps no state."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from policies.beliefs import Told, of_view
from policies.expected import PRIOR_SD, expected_cost, shared_by_best
from policies.parameters import ParameterError, number, parameter
from policies.proposal import with_floor
from policies.types import Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from policies.types import Arm, ArmView, ClassId

_NORMAL = NormalDist()
_MOST_N = 1e12


@dataclass(frozen=True, slots=True)
class UcbParameters:
    """What can be set.

    Attributes:
        floor: Least probability of every arm, so that each stays measured and no propensity is 0.
        prior_sd: Sd of the prior of an arm's effect on log cost.
    """

    floor: float = parameter(0.02, number(0.0, 1.0))
    prior_sd: float = parameter(PRIOR_SD, number(0.01, 10.0))


@dataclass(frozen=True, slots=True)
class UcbPolicy:
    """Gives the arm with the lowest plausible cost all but the floor.

    The index is the posterior quantile at 1 / (n + 2) of the arm's effect, n the observations of
    the class that still count: Bayes-UCB (Kaufmann, Cappe and Garivier 2012, AISTATS, algorithm 1
    with c = 0) on discounted sums, as in discounted UCB (Garivier and Moulines 2011, arXiv
    0805.3415). The baseline's effect is 0 by definition, so it has no bonus. Between two snapshots
    everybody goes to the same arm; `thompson` spreads them.

    Example:
        >>> import numpy as np
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n, level = np.array([[50.0, 50.0]]), np.array([[0.0, 0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                n[0], np.zeros(2))
        >>> UcbPolicy().propose(view, np.random.default_rng(0)).probabilities
        array([0.98, 0.02])
    """

    parameters: UcbParameters = UcbParameters()
    name: str = "ucb"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:  # noqa: ARG002
        """Answer the arm with the lowest index; arms that look alike share."""
        known = expected_cost(view, self.parameters.prior_sd)
        n = min(float(known.n.sum()), _MOST_N)
        index = known.mean + _NORMAL.inv_cdf(1.0 / (n + 2.0)) * known.sd
        floor = min(self.parameters.floor, 1.0 / len(view.arms))
        return Proposal(with_floor(shared_by_best(index), floor), index)

    def told(self, view: ArmView) -> Told:
        """What is believed of the arms; see `policies.beliefs`."""
        return of_view(view, self.parameters.prior_sd)


def build_ucb(
    parameters: UcbParameters,
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - every class is treated alike
) -> UcbPolicy:
    """Build the policy after checking that the floor leaves something to distribute.

    Raises:
        ValueError: The floor is too high for that many arms.
    """
    if parameters.floor * len(arms) > 1.0:
        most = 1 / len(arms)
        raise ParameterError("floor", f"policy 'ucb': floor must be within 0..{most:.4g}")
    return UcbPolicy(parameters)
