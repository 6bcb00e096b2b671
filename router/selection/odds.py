"""What an arm is drawn by: a proposal under a mask, in plain numbers; knows no randomness.

The arithmetic is `policies.proposal`'s, done once for a plan: small arrays and the scalars of numpy
would cost a request more than all the rest of its choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from policies.proposal import masked
from policies.types import Arm, ArmId, Proposal


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities of arms, and what is needed to draw by them."""

    probabilities: Mapping[ArmId, float]
    """By arm, in the route's order; exactly 0 for arms that are excluded."""
    arms: tuple[ArmId, ...]
    """Those that can be drawn."""
    cumulative: tuple[float, ...]
    """Of `arms`, increasing."""

    @classmethod
    def of(cls, proposal: Proposal, arms: tuple[Arm, ...], excluded: Collection[ArmId]) -> Odds:
        """The odds of a proposal for a request that must not use the excluded arms.

        Raises:
            ValueError: No arm is left.
        """
        eligible = np.array([arm.arm_id not in excluded for arm in arms])
        fallback = next(index for index, arm in enumerate(arms) if arm.baseline)
        p = masked(proposal.probabilities, eligible, fallback)
        drawn = np.flatnonzero(p)
        return cls(
            {arm.arm_id: value for arm, value in zip(arms, p.tolist(), strict=True)},
            tuple(arms[index].arm_id for index in drawn),
            tuple(np.cumsum(p)[drawn].tolist()),
        )

    def at(self, u: float) -> ArmId:
        """The arm at a point of the cumulative distribution (`policies.proposal.draw`).

        Args:
            u: In [0, 1), uniform for a fair draw.
        """
        index = bisect_right(self.cumulative, u * self.cumulative[-1])
        return self.arms[min(index, len(self.arms) - 1)]
