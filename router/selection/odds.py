"""What an arm is drawn by: a proposal under a mask, in plain numbers; knows no randomness.

The arithmetic is `policies.proposal`'s to the bit, in plain numbers as far as that is possible:
small arrays and the scalars of numpy would cost a request more than all the rest of its choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate, compress

import numpy as np

from policies.proposal import lean_of, masked
from policies.types import Arm, ArmId, Proposal

_ADDED_IN_A_ROW = 7
"""Of more numbers numpy adds up several series at a time, which rounds otherwise."""
_ROUNDING = 1e-12
"""As in `policies.proposal`."""


@dataclass(frozen=True, slots=True)
class Odds:
    """Probabilities of arms, and what is needed to draw by them."""

    probabilities: Mapping[ArmId, float]
    """By arm, in the route's order; exactly 0 for arms that are excluded."""
    arms: tuple[ArmId, ...]
    """Those that can be drawn."""
    cumulative: tuple[float, ...]
    """Of `arms`, increasing."""
    lean: str
    """Where they lean (`policies.proposal.lean_of`)."""

    @classmethod
    def of(cls, proposal: Proposal, arms: tuple[Arm, ...], excluded: Collection[ArmId]) -> Odds:
        """The odds of a proposal for a request that must not use the excluded arms.

        Raises:
            ValueError: No arm is left.
        """
        eligible = [arm.arm_id not in excluded for arm in arms]
        p = _shares(proposal, eligible)
        if p is None:
            fallback = next(index for index, arm in enumerate(arms) if arm.baseline)
            p = masked(proposal.probabilities, np.array(eligible), fallback).tolist()
        names = [arm.arm_id for arm in arms]
        return cls(
            dict(zip(names, p, strict=True)),
            tuple(compress(names, p)),
            tuple(compress(accumulate(p), p)),
            lean_of(names, p),
        )

    def at(self, u: float) -> ArmId:
        """The arm at a point of the cumulative distribution (`policies.proposal.draw`).

        Args:
            u: In [0, 1), uniform for a fair draw.
        """
        index = bisect_right(self.cumulative, u * self.cumulative[-1])
        return self.arms[min(index, len(self.arms) - 1)]


def _shares(proposal: Proposal, eligible: list[bool]) -> list[float] | None:
    """What `policies.proposal.masked` makes of a few arms in the usual case; None in all others."""
    if len(eligible) > _ADDED_IN_A_ROW:
        return None
    shares = zip(proposal.probabilities.tolist(), eligible, strict=True)
    kept: list[float] = [share if may else 0.0 for share, may in shares]
    *_, mass = accumulate(kept)
    if not (0.0 < mass < np.inf and min(kept) >= 0.0):
        return None
    p = [share / mass for share in kept]
    *_, total = accumulate(p)
    return p if abs(total - 1.0) < _ROUNDING else None
