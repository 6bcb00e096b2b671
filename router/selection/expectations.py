"""What is expected of arms before anything was measured: published figures, weakly held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policies.estimators.knowledge import Expectations
from policies.priors import MethodPrior
from policies.types import Arm, ClassId


def expectations(
    arms: Sequence[Arm], classes: Sequence[ClassId], priors: Mapping[str, MethodPrior]
) -> Expectations:
    """The priors of the arms' methods, at their draft lengths; NaN for methods nobody published of.

    Args:
        arms: The route's arms.
        classes: Those that are told apart.
        priors: By method.
    """
    tau = {}
    for class_id in classes:
        row = [
            priors[arm.method].tau_at(class_id, arm.num_speculative_tokens)
            if arm.method in priors
            else np.nan
            for arm in arms
        ]
        tau[class_id] = np.array(row)
    steps = [
        priors[arm.method].step_at(arm.num_speculative_tokens) if arm.method in priors else np.nan
        for arm in arms
    ]
    return Expectations(tau, np.array(steps))
