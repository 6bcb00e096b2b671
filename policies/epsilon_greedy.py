"""The arm that looks best, and now and then any other. It draws no arm and keeps no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.beliefs import Told, of_view
from policies.expected import PRIOR_SD, expected_cost, shared_by_best
from policies.parameters import number, parameter
from policies.proposal import with_floor
from policies.types import Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from policies.types import Arm, ArmView, ClassId


@dataclass(frozen=True, slots=True)
class EpsilonGreedyParameters:
    """What can be set.

    Attributes:
        epsilon: Share of traffic that is spread evenly while nothing is known.
        least: Share that stays spread evenly for good.
        decay: Observations of a class after which `epsilon` has halved. Judgement: a verdict needs
            some 24 a side, and there are several arms.
        prior_sd: Sd of the prior of an arm's effect on log cost.
    """

    epsilon: float = parameter(0.3, number(0.0, 1.0))
    least: float = parameter(0.05, number(0.0, 1.0))
    decay: float = parameter(200.0, number(1.0, 1e9))
    prior_sd: float = parameter(PRIOR_SD, number(0.01, 10.0))


@dataclass(frozen=True, slots=True)
class EpsilonGreedyPolicy:
    """Gives the arm with the lowest expected cost all but a share `e_n`, spread over all arms.

    `e_n = max(least, epsilon * decay / (decay + n))`: the epsilon_n-greedy of Auer, Cesa-Bianchi
    and Fischer (2002, Machine Learning 47, figure 3), whose `c K / (d^2 n)` needs the gap d that
    nobody knows. `n` is discounted, so a class that comes back after a while is explored anew.

    Example:
        >>> import numpy as np
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n, level = np.array([[900.0, 900.0]]), np.array([[0.0, -0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                n[0], np.zeros(2))
        >>> EpsilonGreedyPolicy().propose(view, np.random.default_rng(0)).probabilities
        array([0.025, 0.975])
    """

    parameters: EpsilonGreedyParameters = EpsilonGreedyParameters()
    name: str = "epsilon_greedy"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:  # noqa: ARG002
        """Answer the best arm and the rest; arms that look alike share."""
        known, given = expected_cost(view, self.parameters.prior_sd), self.parameters
        falling = given.epsilon * given.decay / (given.decay + float(known.n.sum()))
        floor = max(given.least, falling) / len(view.arms)
        return Proposal(with_floor(shared_by_best(known.mean), floor), known.mean)

    def told(self, view: ArmView) -> Told:
        """What is believed of the arms; see `policies.beliefs`."""
        return of_view(view, self.parameters.prior_sd)


def build_epsilon_greedy(
    parameters: EpsilonGreedyParameters,
    arms: Sequence[Arm],  # noqa: ARG001 - any number will do
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - every class is treated alike
) -> EpsilonGreedyPolicy:
    """Build the policy."""
    return EpsilonGreedyPolicy(parameters)
