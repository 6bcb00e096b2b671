"""UCB: optimism about what is little known, none about what is."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.expected import expected_cost
from policies.types import ArmView, ClassId, FloatArray
from policies.ucb import UcbParameters, UcbPolicy, build_ucb

ARMS = example_arms(3)


def shares(view: ArmView, floor: float = 0.02) -> FloatArray:
    """Probabilities for a view."""
    policy = UcbPolicy(UcbParameters(floor=floor))
    return policy.propose(view, np.random.default_rng(0)).probabilities


def test_the_index_is_the_posterior_quantile_of_the_paper() -> None:
    """At 1 / (n + 2) of the class's observations."""
    view = example_view(ARMS, [0.0, -0.3, 0.1])
    known = expected_cost(view)
    quantile = NormalDist().inv_cdf(1 / (float(known.n.sum()) + 2))
    scores = UcbPolicy().propose(view, np.random.default_rng(0)).scores
    assert scores.tolist() == pytest.approx((known.mean + quantile * known.sd).tolist())


def test_what_is_untried_goes_first() -> None:
    """An arm nobody knows may be the cheapest, unless another is known to be far cheaper."""
    view = example_view(ARMS, [0.0, -0.2, 0.0])
    blind = np.array([1.0, 1.0, 0.0])
    view = replace(view, n=view.n * blind, total=view.total * blind, total_sq=view.total_sq * blind)
    assert int(shares(view).argmax()) == 2


def test_once_all_is_known_the_best_gets_nearly_everything() -> None:
    """The others keep the floor."""
    p = shares(example_view(ARMS, [0.0, -0.2, 0.3], n=5000.0))
    assert p.tolist() == pytest.approx([0.02, 0.96, 0.02])


def test_without_data_all_share() -> None:
    """Nothing speaks for an arm."""
    p = shares(ArmView.empty(ClassId("chat"), ARMS), floor=0.0)
    assert p.tolist() == pytest.approx([1 / 3] * 3)


def test_a_floor_that_leaves_nothing_is_refused() -> None:
    """With what would be allowed."""
    with pytest.raises(ValueError, match=r"policy 'ucb': floor must be within 0\.\.0\.3333"):
        build_ucb(UcbParameters(floor=0.5), ARMS)
