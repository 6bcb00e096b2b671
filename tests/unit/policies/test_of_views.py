"""A policy of views answers by class, once for a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from policies.checks import example_arms
from policies.context_checks import example_knowledge, example_moment
from policies.of_views import OfViews
from policies.types import ArmView, ClassId, Proposal

ARMS = example_arms(3)


@dataclass
class Counting:
    """Says what it is told to, and counts how often it is asked."""

    name: str = "counting"
    seen: list[ArmView] = field(default_factory=list)

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Half to the last arm."""
        self.seen.append(view)
        return Proposal(np.array([0.3, 0.2, 0.5]), np.zeros(3))


def test_a_class_is_asked_about_once() -> None:
    """Loads and prompts change nothing; a class nothing is known of has an empty view."""
    policy, known = Counting(), example_knowledge(ARMS, [0.0, 0.1, 0.2])
    plan = OfViews(policy).prepare(known, np.random.default_rng(0))
    for load in (1, 5, 50):
        plan.propose(replace(example_moment(ARMS), load=(load,) * 3))
    plan.propose(example_moment(ARMS, ClassId("new")))
    assert [view.class_id for view in policy.seen] == ["chat", "new"]
    assert policy.seen[0] is known.beliefs[ClassId("chat"), ""].view
    assert policy.seen[1].n.size == 0


def test_arms_without_a_server_hand_their_share_on() -> None:
    """The others keep their proportions."""
    known = example_knowledge(ARMS, [0.0, 0.1, 0.2])
    plan = OfViews(Counting()).prepare(known, np.random.default_rng(0))
    p = plan.propose(replace(example_moment(ARMS), load=(2, 2, 0))).probabilities
    np.testing.assert_allclose(p, [0.6, 0.4, 0.0])
