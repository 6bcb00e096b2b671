"""One contract for every policy of moments, those of views made into one included."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policies.base import ContextPolicy
from policies.context_checks import CONTEXT_CHECKS, EXPLORING_CONTEXT_CHECKS, ContextCheck
from policies.registry import CONTEXT_REGISTRY, POLICY_NAMES, REGISTRY, build_context_policy
from policies.types import Arm

EXPLORERS = [
    *(name for name, entry in REGISTRY.items() if entry.explores),
    *(name for name, entry in CONTEXT_REGISTRY.items() if entry.explores),
]


def build(name: str, arms: Sequence[Arm]) -> ContextPolicy:
    """Build a policy with its defaults."""
    return build_context_policy(name, {"arm": "arm-0"} if name == "fixed" else {}, arms)


@pytest.mark.parametrize("check", CONTEXT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_keeps_the_contract(name: str, check: ContextCheck) -> None:
    """PMF, degenerate numbers, same moment, arms without a server, order of arms."""
    check(lambda arms: build(name, arms))


@pytest.mark.parametrize("check", EXPLORING_CONTEXT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXPLORERS)
def test_policies_that_explore_keep_the_baseline_measured(name: str, check: ContextCheck) -> None:
    """A policy that says it explores never starves the baseline."""
    check(lambda arms: build(name, arms))
