"""Exponential weights, for a world that may be out to get you. It draws no arm, keeps no state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.beliefs import Told, of_view
from policies.expected import PRIOR_SD, expected_cost
from policies.parameters import number, parameter
from policies.proposal import with_floor
from policies.types import Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm, ArmView, ClassId, FloatArray

_MOST_N = 1e12


@dataclass(frozen=True, slots=True)
class Exp3Parameters:
    """What can be set.

    Attributes:
        range: Effects on log cost beyond this, either way, count as this: exponential weights need
            bounded losses. Judgement: 1.0 is a factor of 2.7.
        least: Share of traffic that stays spread evenly for good.
        prior_sd: Sd of the prior of an arm's effect on log cost.
    """

    range: float = parameter(1.0, number(0.05, 10.0))
    least: float = parameter(0.05, number(0.0, 1.0))
    prior_sd: float = parameter(PRIOR_SD, number(0.01, 10.0))


@dataclass(frozen=True, slots=True)
class Exp3Policy:
    """Gives an arm a weight that falls exponentially with its total loss.

    Exp3 (Auer, Cesa-Bianchi, Freund and Schapire 2002, SIAM J. Comput. 32, section 3)::

        p_a = (1 - g) exp(-eta L_a) / sum_b exp(-eta L_b) + g / K
        g   = min(1, sqrt(K ln K / ((e - 1) n))),    eta = g / K

    with losses within [0, 1]. `L_a` is `n` times the arm's mean loss inside strata, where the paper
    has the sum of losses over their propensities: both estimate what the arm would have lost on all
    n requests, and the mean does so without the variance of small propensities. Sums are
    discounted, so `n` stays bounded and the weights keep following (as in Exp3.S, section 8).

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n, level = np.array([[900.0, 900.0]]), np.array([[0.0, -0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                n[0], np.zeros(2))
        >>> Exp3Policy().propose(view, np.random.default_rng(0)).probabilities.round(3)
        array([0.033, 0.967])
    """

    parameters: Exp3Parameters = Exp3Parameters()
    name: str = "exp3"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:  # noqa: ARG002
        """Answer exponential weights, mixed with an equal share."""
        known, arms = expected_cost(view, self.parameters.prior_sd), len(view.arms)
        reach = self.parameters.range
        loss = (np.clip(known.mean, -reach, reach) + reach) / (2.0 * reach)
        n = min(max(float(known.n.sum()), 1.0), _MOST_N)
        mixed = min(1.0, math.sqrt(arms * math.log(arms) / ((math.e - 1.0) * n)))
        weights = _softmax(-(mixed / arms) * n * loss)
        share = min(max(mixed, self.parameters.least), 1.0)
        return Proposal(with_floor(weights, share / arms), known.mean)

    def told(self, view: ArmView) -> Told:
        """What is believed of the arms; see `policies.beliefs`."""
        return of_view(view, self.parameters.prior_sd)


def _softmax(scores: FloatArray) -> FloatArray:
    weights = np.exp(scores - scores.max())
    shares: FloatArray = weights / weights.sum()
    return shares


def build_exp3(
    parameters: Exp3Parameters,
    arms: Sequence[Arm],  # noqa: ARG001 - any number will do
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - every class is treated alike
) -> Exp3Policy:
    """Build the policy."""
    return Exp3Policy(parameters)
