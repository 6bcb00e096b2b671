"""What policies tell of their beliefs, and that telling changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.beliefs import POINTS, TellsOfMoments, TellsOfViews, Told, of_draws, of_normals
from policies.knowledge import Belief, Drafting, Knowledge, Moment, Ratios
from policies.registry import build_any_policy
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray

CHAT = ClassId("chat")
ARMS = (
    Arm(ArmId("plain"), "none", baseline=True),
    Arm(ArmId("fast"), "eagle3", 3),
    Arm(ArmId("slow"), "draft_model", 3),
)
VIEWED = ("epsilon_greedy", "exp3", "thompson", "ucb")
IDLE = Moment(CHAT, "", (1, 1, 1), 500, (0, 0, 0))


def view(n: float = 100.0) -> ArmView:
    """`fast` takes 0.6 of the baseline's time, `slow` 1.6 times as long."""
    level = np.array([[0.0, -0.5, 0.5]])
    counts = np.full((1, 3), n)
    sums = counts * level, counts * (level**2 + 0.04)
    return ArmView(CHAT, ARMS, counts, *sums, counts[0], np.zeros(3))


def knowledge(held: dict[int, str] | None = None) -> Knowledge:
    """The same as what contextual policies get."""
    seen = view()
    costs = np.zeros((3, 3, 5))
    costs[:, :, 0] = np.stack([seen.n[0], seen.total[0], seen.total_sq[0]])
    belief = Belief(seen, drafting((100.0, 50.0, 100.0)), held_back=held or {})
    none = Ratios.none(3)
    expected = np.array([1.0, 1.1, 1.4])
    return Knowledge(
        ARMS, {(CHAT, ""): belief}, none, none, costs={CHAT: costs}, step_priors=expected
    )


def drafting(steps: tuple[float, ...], n: float = 100.0, tokens: float = 100.0) -> Drafting:
    """Requests of so many tokens, each in so many steps by arm."""
    taken = np.array(steps)
    all_of = np.full(3, n)
    return Drafting(
        all_of,
        all_of * tokens,
        all_of * taken,
        all_of * tokens**2,
        all_of * tokens * taken,
        all_of * taken**2,
    )


def told_of(name: str, **given: Any) -> Told:
    """What a policy tells of the class."""
    policy: Any = build_any_policy(name, {}, ARMS, [CHAT])
    rng = np.random.default_rng(3)
    if isinstance(policy, TellsOfViews):
        return policy.told(view())
    prepared: object = policy.prepare(knowledge(**given), rng)
    assert isinstance(prepared, TellsOfMoments)
    return prepared.told(IDLE)


@pytest.mark.parametrize("name", [*VIEWED, "linear", "net_gain"])
def test_beliefs_are_of_time_against_the_baseline(name: str) -> None:
    """In the order of the data; the baseline is itself, without a doubt and without a hill."""
    beliefs = told_of(name).beliefs
    assert beliefs.mean[1] < beliefs.mean[0] < beliefs.mean[2]
    assert (beliefs.mean[0], beliefs.better[0]) == (pytest.approx(0.0, abs=1e-5), 1.0)
    assert beliefs.better[1] > 0.5 > beliefs.better[2]
    assert beliefs.density.shape == (3, POINTS)
    assert not beliefs.density[0].any()
    areas = np.trapezoid(beliefs.density[1:], beliefs.grid, axis=1)
    assert areas == pytest.approx([1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("name", ["fixed", "rules"])
def test_policies_without_estimates_tell_nothing(name: str) -> None:
    """They have none to tell."""
    parameters = {"weights": {"plain": 1.0}} if name == "fixed" else {}
    policy: object = build_any_policy(name, parameters, ARMS, [CHAT])
    assert not isinstance(policy, TellsOfViews | TellsOfMoments)


def test_the_budget_is_told_with_who_needs_it() -> None:
    """What is not surely no worse shares it; what is held back is named with its reason."""
    exploring = told_of("net_gain", held={2: "failures"}).exploring
    assert exploring is not None
    assert dict(exploring.held) == {2: "failures"}
    assert 2 not in exploring.unproven
    free = told_of("net_gain").exploring
    assert free is not None
    assert 2 in free.unproven
    assert 0.0 < free.budget < 0.05


def test_telling_changes_no_proposal() -> None:
    """It may be asked at any time, between any two requests."""
    policy: Any = build_any_policy("net_gain", {}, ARMS, [CHAT])
    asked, unasked = (policy.prepare(knowledge(), np.random.default_rng(5)) for _ in range(2))
    asked.told(IDLE)
    one, other = asked.propose(IDLE), unasked.propose(IDLE)
    assert one.probabilities.tolist() == other.probabilities.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_cannot_be_true_do_not_spread(bad: float) -> None:
    """Whoever looks sees finite figures."""
    mean: FloatArray = np.array([0.0, bad])
    drawn = np.stack([np.zeros(50), np.full(50, bad)])
    for beliefs in (of_normals(mean, np.array([0.0, bad])), of_draws(drawn)):
        for values in (beliefs.mean, beliefs.low, beliefs.high, beliefs.grid, beliefs.density):
            assert np.isfinite(values).all()
