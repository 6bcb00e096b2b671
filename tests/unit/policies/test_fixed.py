"""The fixed policy gives what it was told."""

from __future__ import annotations

import numpy as np
import pytest

from policies.checks import example_arms
from policies.fixed import FixedParameters, build_fixed
from policies.types import ArmView, ClassId

ARMS = example_arms(3)
VIEW = ArmView.empty(ClassId("chat"), ARMS)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (FixedParameters(), [1.0, 0.0, 0.0]),
        (FixedParameters(arm="arm-2"), [0.0, 0.0, 1.0]),
        (FixedParameters(weights={"arm-0": 1.0, "arm-1": 3.0}), [0.25, 0.75, 0.0]),
    ],
    ids=["baseline", "arm", "weights"],
)
def test_probabilities_are_the_weights(parameters: FixedParameters, expected: list[float]) -> None:
    """Nothing given means the baseline; weights are normalised."""
    policy = build_fixed(parameters, ARMS)
    assert expected == policy.propose(VIEW, RNG).probabilities.tolist()


def test_an_arm_that_left_the_route_leaves_its_share_to_the_baseline() -> None:
    """A view without the chosen arm still gets a PMF."""
    policy = build_fixed(FixedParameters(arm="arm-2"), ARMS)
    view = ArmView.empty(ClassId("chat"), example_arms(2))
    assert policy.propose(view, RNG).probabilities.tolist() == [1.0, 0.0]


def test_arm_and_weights_exclude_each_other() -> None:
    """Two answers to one question are refused."""
    with pytest.raises(ValueError, match="give arm or weights, not both"):
        build_fixed(FixedParameters("arm-0", {"arm-1": 1.0}), ARMS)


@pytest.mark.parametrize(
    "parameters", [FixedParameters(arm="arm_2"), FixedParameters(weights={"arm_2": 1.0})]
)
def test_an_unknown_arm_is_refused_with_a_suggestion(parameters: FixedParameters) -> None:
    """A typing error is found when the policy is built."""
    with pytest.raises(
        ValueError, match="no arm 'arm_2'; allowed: arm-0, arm-1, arm-2; did you mean"
    ):
        build_fixed(parameters, ARMS)
