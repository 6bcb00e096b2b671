"""A choice that does not depend on data: one arm, or fixed weights. It learns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.parameters import ParameterError, parameter, suggestion, text, weights
from policies.types import Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from policies.types import Arm, ArmView, ClassId


@dataclass(frozen=True, slots=True)
class FixedParameters:
    """Either `arm` or `weights`; with neither, the baseline gets everything.

    Attributes:
        arm: Id of the one arm.
        weights: Arm id to weight; normalised, arms that are not named get 0.
    """

    arm: str | None = parameter(None, text)
    weights: Mapping[str, float] | None = parameter(None, weights)


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Gives every class the same probabilities.

    When none of its arms is in the view any more, the baseline gets everything.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "eagle3"))
        >>> policy = FixedPolicy({"plain": 1.0, "fast": 3.0})
        >>> view = ArmView.empty(ClassId("chat"), arms)
        >>> policy.propose(view, np.random.default_rng(0)).probabilities
        array([0.25, 0.75])
    """

    shares: Mapping[str, float]
    name: str = "fixed"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:  # noqa: ARG002
        """Answer the fixed weights, normalised over the arms of the view."""
        p = np.array([self.shares.get(arm.arm_id, 0.0) for arm in view.arms])
        if not p.sum() > 0.0:
            p[view.baseline_index] = 1.0
        p = p / p.sum()
        return Proposal(p, 1.0 - p)


def build_fixed(
    parameters: FixedParameters,
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - every class is treated alike
) -> FixedPolicy:
    """Build the policy after checking that the arms exist.

    Raises:
        ValueError: Both `arm` and `weights` are given, or an arm is unknown.
    """
    if parameters.arm is not None and parameters.weights is not None:
        raise ParameterError("arm", "policy 'fixed': give arm or weights, not both")
    if parameters.weights is not None:
        shares, where = dict(parameters.weights), "weights"
    elif parameters.arm is not None:
        shares, where = {parameters.arm: 1.0}, "arm"
    else:
        return FixedPolicy({})
    known = [arm.arm_id for arm in arms]
    for arm_id in shares:
        if arm_id not in known:
            hint = suggestion(arm_id, known)
            raise ParameterError(where, f"policy 'fixed': {where} names no arm {arm_id!r}; {hint}")
    return FixedPolicy(shares)
