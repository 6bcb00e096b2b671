"""What a view says an arm costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.expected import PRIOR_SD, expected_cost, failure_posterior, shared_by_best
from policies.types import ArmView, ClassId

ARMS = example_arms(4)


def test_without_data_the_prior_remains() -> None:
    """Every arm costs what the baseline costs, give or take the prior; the baseline is exact."""
    known = expected_cost(ArmView.empty(ClassId("chat"), ARMS))
    assert known.sd.tolist() == pytest.approx([0.0, *[PRIOR_SD] * 3])
    assert np.ptp(known.mean) == pytest.approx(0.0)
    assert known.n.tolist() == pytest.approx([0.0] * 4)


def test_an_arm_that_fails_costs_what_repeating_costs() -> None:
    """Its mean rises by -ln(1 - p) of the posterior mean p."""
    sound = example_view(ARMS, [0.0, 0.0, 0.0, -0.5])
    failing = replace(sound, failed=np.array([0.0, 0.0, 0.0, 80.0]))
    a, b = failure_posterior(failing)
    p = a[3] / (a[3] + b[3])
    fine = a[0] / (a[0] + b[0])
    both = expected_cost(failing).mean
    assert both[3] - both[0] == pytest.approx(
        (expected_cost(sound).mean[3] + math.log1p(-fine)) - math.log1p(-p) + math.log1p(-fine)
    )


def test_failures_count_as_observations() -> None:
    """An arm that only fails is not unknown."""
    empty = ArmView.empty(ClassId("chat"), ARMS)
    known = expected_cost(replace(empty, failed=np.array([0.0, 0.0, 0.0, 7.0])))
    assert known.n.tolist() == pytest.approx([0.0, 0.0, 0.0, 7.0])


def test_counts_that_cannot_be_true_are_no_observations() -> None:
    """NaN, negative and infinite counts."""
    for absurd in (math.nan, math.inf, -5.0):
        view = replace(
            ArmView.empty(ClassId("chat"), ARMS),
            n=np.array([[absurd, 1.0, 1.0, 1.0]]),
            total=np.zeros((1, 4)),
            total_sq=np.zeros((1, 4)),
        )
        assert expected_cost(view).n[0] == pytest.approx(0.0)


def test_equals_share() -> None:
    """Nobody is preferred for standing first."""
    assert shared_by_best(np.array([1.0, 1.0, 2.0])).tolist() == [0.5, 0.5, 0.0]
