"""One contract for every registered policy, and for a toy that proves outsiders can write one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from policies.base import Policy
from policies.checks import CHECKS, EXPLORING_CHECKS, Check, PolicyFor
from policies.proposal import with_floor
from policies.registry import REGISTRY, build_policy
from policies.types import Arm, ArmView, Proposal


@dataclass(frozen=True, slots=True)
class FewestFailures:
    """A policy from outside: the arm with the fewest failures, ties in equal parts."""

    name: str = "fewest_failures"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Answer the arms with the least count that can be true."""
        failed = np.where(np.isfinite(view.failed) & (view.failed >= 0), view.failed, 0.0)
        best = failed == failed.min()
        return Proposal(with_floor(best / best.sum(), 0.01), failed)


def registered(name: str) -> PolicyFor:
    """Build the registered policy with its defaults."""

    def make(arms: Sequence[Arm]) -> Policy:
        return build_policy(name, {}, arms)

    return make


def toy(arms: Sequence[Arm]) -> Policy:
    """Build the policy from outside."""
    return FewestFailures()


MAKERS = {**{name: registered(name) for name in sorted(REGISTRY)}, "toy": toy}
EXPLORERS = [*(name for name in sorted(REGISTRY) if REGISTRY[name].explores), "toy"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MAKERS)
def test_every_policy_keeps_the_contract(name: str, check: Check) -> None:
    """PMF, degenerate numbers, same seed, untouched view, order of arms."""
    check(MAKERS[name])


@pytest.mark.parametrize("check", EXPLORING_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXPLORERS)
def test_policies_that_explore_keep_the_baseline_measured(name: str, check: Check) -> None:
    """A policy that says it explores never starves the baseline."""
    check(MAKERS[name])
