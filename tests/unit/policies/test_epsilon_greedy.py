"""Epsilon-greedy: how much is spread, and who gets the rest."""

from __future__ import annotations

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.epsilon_greedy import EpsilonGreedyParameters, EpsilonGreedyPolicy
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(4)


def shares(view: ArmView, **given: float) -> FloatArray:
    """Probabilities for a view."""
    policy = EpsilonGreedyPolicy(EpsilonGreedyParameters(**given))
    return policy.propose(view, np.random.default_rng(0)).probabilities


def test_exploration_halves_after_as_many_observations_as_asked() -> None:
    """So many observations of the class leave epsilon * decay / (decay + n)."""
    n = 4 * 2 * 25.0
    p = shares(example_view(ARMS, [0, 0.2, -0.5, -0.1], n=25.0), epsilon=0.4, decay=n, least=0.0)
    assert p.tolist() == pytest.approx([0.05, 0.05, 0.85, 0.05])


def test_some_exploration_stays_for_good() -> None:
    """The least share is kept however much is known, so that drift is seen."""
    p = shares(example_view(ARMS, [0, 0.2, -0.5, -0.1], n=1e6), least=0.08)
    assert p.tolist() == pytest.approx([0.02, 0.02, 0.94, 0.02])


def test_without_data_all_share() -> None:
    """Nothing speaks for an arm."""
    assert shares(ArmView.empty(ClassId("chat"), ARMS)).tolist() == pytest.approx([0.25] * 4)


def test_an_arm_that_fails_is_not_the_best() -> None:
    """However fast it is when it does not."""
    p = shares(example_view(ARMS, [0, 0.2, 0.3, -0.1], failed=80))
    assert int(p.argmax()) == 0
