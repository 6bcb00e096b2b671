"""Exp3: weights and their mixture, against the paper's formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.exp3 import Exp3Parameters, Exp3Policy
from policies.expected import expected_cost
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(4)


def shares(view: ArmView, **given: float) -> FloatArray:
    """Probabilities for a view."""
    policy = Exp3Policy(Exp3Parameters(**given))
    return policy.propose(view, np.random.default_rng(0)).probabilities


def test_probabilities_are_those_of_the_paper() -> None:
    """Worked out by hand for losses within [0, 1]."""
    view = example_view(ARMS, [0.0, 0.2, -0.5, -0.1], n=500.0)
    mean, n, k = expected_cost(view).mean, 4000.0, 4
    mixed = math.sqrt(k * math.log(k) / ((math.e - 1) * n))
    weights = np.exp(-(mixed / k) * n * (mean + 1) / 2)
    expected = (1 - mixed) * weights / weights.sum() + mixed / k
    assert shares(view, least=0.0).tolist() == pytest.approx(expected.tolist())


def test_without_data_all_share() -> None:
    """Nothing was lost yet."""
    assert shares(ArmView.empty(ClassId("chat"), ARMS)).tolist() == pytest.approx([0.25] * 4)


def test_an_absurdly_slow_arm_counts_as_the_slowest_that_is_told_apart() -> None:
    """Losses are bounded, so that one lie cannot outweigh all else."""
    slow, slower = ([0.0, 0.0, 0.0, effect] for effect in (2.0, 9.0))
    view, other = (example_view(ARMS, effects, n=200.0) for effects in (slow, slower))
    assert shares(view)[3] == pytest.approx(shares(other)[3], abs=0.01)


def test_a_share_stays_spread() -> None:
    """However much is known."""
    p = shares(example_view(ARMS, [0.0, 0.2, -0.9, -0.1], n=1e6), least=0.08)
    assert p.min() == pytest.approx(0.02)
    assert p.max() == pytest.approx(0.94)


def test_a_single_arm_gets_everything() -> None:
    """With one arm there is nothing to mix."""
    assert shares(ArmView.empty(ClassId("chat"), example_arms(1))).tolist() == [1.0]
