"""Policies are built by name, strictly."""

from __future__ import annotations

import dataclasses

import pytest

from policies.checks import example_arms
from policies.registry import REGISTRY, Entry, Stability, build_policy
from policies.thompson import ThompsonParameters, build_thompson

ARMS = example_arms(4)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_policy_builds_with_defaults_under_its_name(name: str) -> None:
    """The registered name is the one that is logged."""
    assert name == build_policy(name, {}, ARMS).name


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_parameter_declares_its_check_and_is_documented(name: str) -> None:
    """A field without a check would pass anything; a field nobody describes is no parameter."""
    kind = REGISTRY[name].parameters
    for field in dataclasses.fields(kind):
        assert callable(field.metadata["check"])
        assert f"{field.name}: " in (kind.__doc__ or "")


def test_an_unknown_policy_is_refused_with_a_suggestion() -> None:
    """The message lists the names and the likely one."""
    with pytest.raises(
        ValueError,
        match=(
            "no policy 'tompson'; allowed: epsilon_greedy, exp3, fixed, rules, thompson, ucb; "
            "did you mean 'thompson'"
        ),
    ):
        build_policy("tompson", {}, ARMS)


def test_an_unknown_parameter_is_refused_with_a_suggestion() -> None:
    """Strictness holds through the registry."""
    with pytest.raises(
        ValueError,
        match="'thompson' has no parameter 'flor'; allowed: draws, floor, prior_sd; did you mean 'floor'",
    ):
        build_policy("thompson", {"flor": 0.1}, ARMS)


def test_exactly_one_arm_is_the_baseline() -> None:
    """Without a baseline there is nothing to compare with; with two there is no answer."""
    for arms in (ARMS[1:], (ARMS[0], dataclasses.replace(ARMS[1], baseline=True))):
        with pytest.raises(ValueError, match="exactly one arm must be the baseline"):
            build_policy("fixed", {}, arms)


def test_a_larger_registry_adds_policies_from_outside() -> None:
    """Packages outside the tree extend the mapping instead of changing it."""
    entry = Entry(build_thompson, ThompsonParameters, Stability.EXPERIMENTAL, explores=True)
    policy = build_policy("mine", {"floor": 0.1}, ARMS, registry={**REGISTRY, "mine": entry})
    assert policy.name == "thompson"
