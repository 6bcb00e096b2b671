"""Lets a policy that looks at one class at a time answer for moments. It adds nothing to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.base import Policy
from policies.knowledge import Knowledge, Moment
from policies.types import ArmView, ClassId, Proposal


class ViewPlan:
    """Proposals of a policy by class, each made once, in draws of its own."""

    def __init__(self, policy: Policy, known: Knowledge, seed: int) -> None:
        self._policy, self._known, self._seed = policy, known, seed
        self._made: dict[ClassId, Proposal] = {}

    def propose(self, moment: Moment) -> Proposal:
        """What the policy proposes for the class; arms without a server have nothing of it."""
        found = self._made.get(moment.class_id)
        if found is None:
            found = self._made[moment.class_id] = self._propose(moment.class_id)
        if 0 not in moment.load:
            return found
        there = found.probabilities * (np.array(moment.load) > 0)
        total = float(there.sum())
        return Proposal(there / total, found.scores) if total > 0.0 else found

    def _propose(self, class_id: ClassId) -> Proposal:
        _, belief = self._known.belief(class_id, "")
        view = ArmView.empty(class_id, self._known.arms) if belief is None else belief.view
        rng = np.random.default_rng((self._seed, *class_id.encode()))
        return self._policy.propose(view, rng)


@dataclass(frozen=True, slots=True)
class OfViews:
    """A policy of moments made of one of views."""

    policy: Policy

    @property
    def name(self) -> str:
        """That policy's name."""
        return self.policy.name

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> ViewPlan:
        """Take the snapshot; proposals are made when they are asked for."""
        return ViewPlan(self.policy, known, int(rng.integers(2**62)))
