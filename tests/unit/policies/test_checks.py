"""Each check catches the fault it is named after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from policies import checks
from policies.types import Arm, ArmView, FloatArray, Proposal

Answer = Callable[[ArmView, np.random.Generator], FloatArray]


@dataclass
class Toy:
    """A policy that answers whatever a function says."""

    answer: Answer
    name: str = "toy"
    calls: list[int] = field(default_factory=list)

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Answer the function's probabilities with scores of 0."""
        self.calls.append(1)
        return Proposal(self.answer(view, rng), np.zeros(len(view.arms)))


def uniform(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """Every arm alike."""
    share: FloatArray = np.full(len(view.arms), 1.0 / len(view.arms))
    return share


def first(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """Whatever stands first."""
    share: FloatArray = np.eye(len(view.arms))[0]
    return share


def follows_numbers(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """A PMF from raw counts, without a thought for what they may be."""
    if (view.served == view.served[0]).all():
        return uniform(view, rng)
    with np.errstate(all="ignore"):
        share: FloatArray = view.served / view.served.sum()
    return share


def writes(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """Changes what others read."""
    view.served[:] = 0.0
    return uniform(view, rng)


def own_randomness(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """Randomness from elsewhere."""
    return np.random.default_rng().dirichlet(np.ones(len(view.arms)))


def starves(view: ArmView, rng: np.random.Generator) -> FloatArray:
    """Everything but the baseline."""
    p = np.array([0.0 if arm.baseline and len(view.arms) > 1 else 1.0 for arm in view.arms])
    share: FloatArray = p / p.sum()
    return share


def made_by(answer: Answer) -> checks.PolicyFor:
    """A factory of toys."""

    def make(arms: Sequence[Arm]) -> Toy:
        return Toy(answer)

    return make


@pytest.mark.parametrize("check", [*checks.CHECKS, *checks.EXPLORING_CHECKS])
def test_a_good_policy_passes(check: checks.Check) -> None:
    """No false alarm."""
    check(made_by(uniform))


@pytest.mark.parametrize(
    ("check", "answer", "message"),
    [
        (checks.check_answers_a_pmf, lambda v, r: np.ones(len(v.arms)) * 0.9, "sum to 1"),
        (checks.check_answers_a_pmf, lambda v, r: np.ones(1 + len(v.arms)), "wrong shape"),
        (checks.check_survives_degenerate_numbers, follows_numbers, "not finite|negative"),
        (checks.check_same_seed_same_answer, own_randomness, "another answer"),
        (checks.check_order_of_arms_is_irrelevant, first, "order of arms"),
        (checks.check_baseline_is_not_starved, starves, "starved"),
    ],
)
def test_a_faulty_policy_is_caught(check: checks.Check, answer: Answer, message: str) -> None:
    """The message names the policy and the fault."""
    with pytest.raises(AssertionError, match=f"toy: .*({message})"):
        check(made_by(answer))


def test_a_policy_that_writes_into_the_view_is_caught() -> None:
    """Views are read-only during the check."""
    with pytest.raises(ValueError, match="read-only"):
        checks.check_leaves_the_view_alone(made_by(writes))
