"""Thompson sampling: who gets the mass, and what lies cannot do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policies.checks import example_arms, example_prior, example_view
from policies.expected import failure_posterior
from policies.thompson import (
    ThompsonParameters,
    ThompsonPolicy,
    build_thompson,
)
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(4)
EXACT = ThompsonPolicy(ThompsonParameters(draws=16_384, floor=0.0))


def shares(view: ArmView, policy: ThompsonPolicy = EXACT, seed: int = 0) -> FloatArray:
    """Probabilities for a view."""
    return policy.propose(view, np.random.default_rng(seed)).probabilities


def test_without_data_no_arm_is_preferred_among_the_untried() -> None:
    """Equal priors give equal shares to the arms that are not the baseline."""
    p = shares(ArmView.empty(ClassId("chat"), ARMS))
    assert np.ptp(p[1:]) < 0.03
    assert p[0] > 0.05


def test_the_share_is_the_posterior_probability_of_being_best() -> None:
    """Two arms: P(delta < 0) in closed form, within 4 standard errors of 16 384 draws."""
    view = example_view(example_arms(2), [0.0, -0.02])
    variance = 1 / (1 / 0.5**2 + 2 * 20 / (0.3**2 * 160 / (160 + 4 - 4)))
    p = shares(replace(view, served=np.full(2, 1e9)))[1]
    effects_sd = math.sqrt(variance)
    expected = 0.5 * (1 + math.erf(0.02 / effects_sd / math.sqrt(2)))
    assert abs(p - expected) < 4 * 0.5 / 128 + 0.01


def test_the_best_arm_gets_nearly_everything_once_it_is_known() -> None:
    """Clear data leave the others the floor."""
    p = shares(example_view(ARMS, [0.0, 0.2, -0.5, -0.1]), ThompsonPolicy())
    assert pytest.approx(p.tolist()) == [0.02, 0.02, 0.94, 0.02]


def test_failures_count_against_an_arm_apart_from_its_speed() -> None:
    """An arm 10 % faster that fails half of its requests loses its share."""
    sound = example_view(ARMS, [0.0, 0.2, 0.3, -0.1])
    assert shares(sound)[3] > 0.9
    assert shares(example_view(ARMS, [0.0, 0.2, 0.3, -0.1], failed=80))[3] < 0.01


def test_an_untried_arm_that_only_fails_is_left() -> None:
    """Ten failures and nothing else cost the arm its traffic, though no time was ever measured."""
    empty = ArmView.empty(ClassId("chat"), ARMS)
    failing = replace(empty, failed=np.array([0.0, 0.0, 0.0, 10.0]))
    assert shares(failing)[3] < 0.4 * shares(empty)[3]


def test_scores_are_posterior_means_of_the_cost() -> None:
    """Lower is better, the baseline is near its failure cost."""
    view = example_view(ARMS, [0.0, 0.2, -0.5, -0.1])
    scores = EXACT.propose(view, np.random.default_rng(0)).scores
    assert scores.argmin() == 2
    assert scores[0] == pytest.approx(-math.log(1 - 0.2 / 90))


def test_the_floor_holds_for_more_arms_than_it_was_built_for() -> None:
    """A view with more arms gets the largest floor that fits."""
    policy = ThompsonPolicy(ThompsonParameters(floor=0.25))
    p = shares(ArmView.empty(ClassId("chat"), example_arms(8)), policy)
    assert np.allclose(p, 1 / 8)


def test_a_floor_too_high_for_the_arms_is_refused_when_built() -> None:
    """A floor that leaves nothing to choose is a mistake of the configuration."""
    with pytest.raises(ValueError, match=r"floor must be within 0\.\.0\.25"):
        build_thompson(ThompsonParameters(floor=0.3), ARMS)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1000)
TABLE = arrays(np.float64, (3, 4), elements=NUMBERS)
ROW = arrays(np.float64, (4,), elements=NUMBERS)


@given(st.builds(ArmView, st.just(ClassId("chat")), st.just(ARMS), TABLE, TABLE, TABLE, ROW, ROW))
def test_no_state_however_degenerate_raises_or_gives_nan(view: ArmView) -> None:
    """Any numbers at all: a PMF with its floor, and finite scores."""
    proposal = ThompsonPolicy().propose(view, np.random.default_rng(0))
    assert abs(proposal.probabilities.sum() - 1.0) < 1e-9
    assert (proposal.probabilities >= 0.02).all()
    assert np.isfinite(proposal.scores).all()


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -1.0, 1e300])
def test_a_spoilt_arm_falls_back_to_its_prior_and_spoils_no_other(absurd: float) -> None:
    """The others keep what they are known for; the spoilt arm is as if untried."""
    view = example_view(ARMS, [0.0, 0.2, -0.5, -0.1])
    broken = view.n.copy()
    broken[1, 3] = absurd
    untried = [array.copy() for array in (view.n, view.total, view.total_sq)]
    for array in untried:
        array[:, 3] = 0.0
    expected = shares(replace(view, n=untried[0], total=untried[1], total_sq=untried[2]))
    assert np.array_equal(expected, shares(replace(view, n=broken)))


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -1.0, 1e300])
def test_impossible_failure_counts_leave_the_prior(absurd: float) -> None:
    """Beta(0.2, 9.8) for the spoilt arm, data for the others."""
    view = replace(
        ArmView.empty(ClassId("chat"), example_arms(2)),
        failed=np.array([absurd, 1.0]),
        served=np.array([10.0, 10.0]),
    )
    a, b = failure_posterior(view)
    assert a.tolist() == [0.2, 1.2]
    assert b.tolist() == [9.8, 19.8]


def test_a_view_without_data_gets_the_shares_of_its_prior() -> None:
    """A new segment starts with what its class does."""
    prior = example_prior(ARMS, [0.0, 0.4, -0.4, 0.4])
    p = shares(replace(ArmView.empty(ClassId("chat"), ARMS), prior=prior))
    assert p.argmax() == 2
    assert p[2] > 0.85
