"""A policy's proposals, computed once for each snapshot and swapped whole; requests only draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.base import Policy
from policies.types import Arm, ArmView, ClassId, Proposal


@dataclass(frozen=True, slots=True)
class Plan:
    """What a route's policy proposes for every class, given one snapshot."""

    policy: str
    snapshot_version: int
    arms: tuple[Arm, ...]
    proposals: Mapping[ClassId, Proposal]
    spoiled: tuple[ClassId, ...] = ()
    """Classes for which the policy failed; they get the baseline."""

    def proposal(self, class_id: ClassId) -> Proposal:
        """The proposal for a class; a class nobody knows gets the baseline."""
        return self.proposals.get(class_id) or baseline_only(self.arms)


def baseline_only(arms: tuple[Arm, ...]) -> Proposal:
    """All traffic to plain decoding: what is always safe."""
    probabilities = np.array([1.0 if arm.baseline else 0.0 for arm in arms])
    return Proposal(probabilities, np.zeros(len(arms)))


def make_plan(
    policy: Policy,
    views: Mapping[ClassId, ArmView],
    arms: tuple[Arm, ...],
    *,
    version: int,
    rng: np.random.Generator,
) -> Plan:
    """Asks the policy about every class. A policy that fails for a class never fails a request."""
    proposals: dict[ClassId, Proposal] = {}
    spoiled: list[ClassId] = []
    for class_id, view in views.items():
        try:
            proposal = policy.propose(view, rng)
        except (ArithmeticError, ValueError, IndexError, np.linalg.LinAlgError):
            proposal = None
        if proposal is None or not _usable(proposal, len(arms)):
            spoiled.append(class_id)
            proposal = baseline_only(arms)
        proposals[class_id] = proposal
    return Plan(policy.name, version, arms, proposals, tuple(spoiled))


def _usable(proposal: Proposal, arms: int) -> bool:
    p = proposal.probabilities
    return bool(
        p.shape == (arms,)
        and np.all(np.isfinite(p))
        and np.all(p >= 0)
        and abs(float(p.sum()) - 1.0) < 1e-6  # noqa: PLR2004 - rounding of a sum of a few terms
    )
