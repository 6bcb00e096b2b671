"""What groups of a class say of each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks import example_arms
from policies.estimators.effects import arm_effects
from policies.estimators.pooling import (
    NU_TAU,
    PRIOR_SD,
    TAU0,
    Groups,
    between_variance,
    differences,
    effects_of,
    groups_of,
    joined,
    priors,
    rest_of,
    together,
)
from policies.estimators.verdict import gain_of
from policies.types import ArmView, ClassId, FloatArray, Prior

ARMS = example_arms(3)
NONE = np.zeros(3)
CHAT = ClassId("chat")


def rows(effects: Sequence[float], n: float, strata: int = 2) -> FloatArray:
    """Sums of strata in which each arm has exactly this effect and noise 0.3."""
    level = np.arange(strata, dtype=np.float64)[:, None] + np.array(effects)[None, :]
    counts = np.full(level.shape, n)
    return np.stack([counts, counts * level, counts * (level**2 + 0.09)], axis=1)


def groups(*made: FloatArray) -> Groups:
    """Groups of these strata."""
    starts = np.cumsum([0, *(len(of) for of in made)])[:-1].tolist()
    return groups_of(np.concatenate(made), starts, 0)


def view(sums: FloatArray, prior: Prior | None = None) -> ArmView:
    """The same as a policy sees it."""
    return ArmView(CHAT, ARMS, sums[:, 0], sums[:, 1], sums[:, 2], NONE, NONE, prior)


A, B = rows([0.0, -0.5, 0.2], 50.0), rows([0.0, 0.4, -0.3], 50.0)


def test_one_group_says_what_the_class_says() -> None:
    """The algebra is that of `arm_effects`."""
    one, effects = groups(A), arm_effects(view(A))
    own = differences(one, None, 0.95)[0]
    for arm in (1, 2):
        difference, expected = own[arm], gain_of(effects, arm)
        assert difference is not None
        assert expected is not None
        gain = difference.as_gain()
        assert (gain.value, gain.low, gain.high) == pytest.approx(
            (expected.value, expected.low, expected.high), abs=1e-4
        )
    assert own[0] is None


def test_strata_of_groups_are_compared_only_with_themselves() -> None:
    """A slow group on one arm and a fast one on the other say nothing about the arms."""
    slow, fast = rows([3.0, 3.0, 3.0], 50.0), rows([0.0, 0.0, 0.0], 50.0)
    slow[:, :, 1] = fast[:, :, 0] = 0.0
    assert all(found[1] is None for found in differences(groups(slow, fast), None, 0.95))


def test_groups_that_differ_have_a_large_variance_between_them() -> None:
    """And those that do not, one near 0 once there are many."""
    assert between_variance(groups(A, B)) > 0.1
    alike = between_variance(groups(*[A] * 30))
    assert alike == pytest.approx(NU_TAU * TAU0**2 / (NU_TAU + 2 * 29))


def test_without_contrasts_the_variance_is_its_prior() -> None:
    """One group, or groups that nothing is known of."""
    assert between_variance(groups(A)) == pytest.approx(TAU0**2)
    assert between_variance(groups(0 * A, 0 * B)) == pytest.approx(TAU0**2)


def test_the_moments_recover_the_variance_of_a_world() -> None:
    """Of 60 groups with sd 0.3 between their effects: within a fifth."""
    rng = np.random.default_rng(5)
    effects = rng.normal(0.0, 0.3, (60, 3))
    effects[:, 0] = 0.0
    found = between_variance(groups(*(rows(list(of), 200.0) for of in effects)))
    assert found**0.5 == pytest.approx(0.3, rel=0.2)


def test_a_group_without_data_starts_from_its_class() -> None:
    """Its posterior is the class's, wider by what groups differ."""
    tau_sq = 0.01
    given_ = priors(groups(A, 0 * A), tau_sq)[1]
    posterior = arm_effects(view(0 * A, given_), prior_sd=PRIOR_SD)
    whole = arm_effects(view(A), prior_sd=PRIOR_SD)
    assert posterior.mean == pytest.approx(whole.mean, abs=0.02)
    assert posterior.covariance == pytest.approx(given_.covariance)
    assert np.diag(posterior.covariance)[1] == pytest.approx(
        np.diag(whole.covariance)[1] + 2 * tau_sq, abs=0.002
    )


def test_a_group_with_much_data_speaks_for_itself() -> None:
    """Whatever the others say."""
    big = rows([0.0, 0.4, -0.3], 20_000.0)
    made = groups(A, big)
    posterior = arm_effects(view(big, priors(made, between_variance(made))[1]), prior_sd=0.5)
    assert posterior.mean == pytest.approx([0.0, 0.4, -0.3], abs=0.001)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=2), st.floats(0, 500), st.floats(0, 1))
def test_a_posterior_lies_between_the_class_and_its_own(
    effects: list[float], n: float, tau_sq: float
) -> None:
    """Pooling is shrinkage (of both arms together, so to within a little)."""
    own = rows([0.0, *effects], n)
    made = priors(groups(A, own), tau_sq)[1]
    mean = arm_effects(view(own, made), prior_sd=0.5).mean
    low, high = np.minimum([0.0, *effects], made.mean), np.maximum([0.0, *effects], made.mean)
    slack = 0.15 * np.abs(np.array([0.0, *effects]) - made.mean).max() + 1e-9
    assert (low - slack <= mean).all()
    assert (mean <= high + slack).all()


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), st.floats(0, 4))
def test_a_prior_is_always_one_that_can_be_true(n: list[float], tau_sq: float) -> None:
    """Finite, symmetric, positive definite beside the baseline."""
    for made in priors(groups(*(rows([0.0, -0.5, 0.2], of) for of in n)), tau_sq):
        assert np.isfinite(made.mean).all()
        assert (made.covariance[0] == 0.0).all()
        assert np.linalg.eigvalsh(made.covariance[1:, 1:]).min() > 0.0


def test_the_rest_of_a_group_is_all_the_others() -> None:
    """Leaving one out of three is taking the two others together."""
    made = groups(A, B, 2 * A)
    rest, two = rest_of(made), joined(made, [[1, 2]])
    assert rest.precision[0] == pytest.approx(two.precision[0])
    assert rest.score[0] == pytest.approx(two.score[0])
    assert rest.n[0] == pytest.approx(two.n[0])
    assert rest.noise[0] == pytest.approx(two.noise[0])


def test_groups_that_differ_are_seen_to() -> None:
    """And in the right direction."""
    made = groups(A, B)
    arm = differences(made, rest_of(made), 0.99)[0][1]
    assert arm is not None
    assert arm.low < -0.9 < arm.high < 0.0


def test_where_data_bound_nothing_there_is_no_difference() -> None:
    """Rather than a huge one."""
    made = groups(A, 0 * A)
    assert differences(made, rest_of(made), 0.95) == [[None] * 3] * 2


def test_effects_of_a_group_are_those_of_its_requests_alone() -> None:
    """As `arm_effects` has them, which shrinks noise to that of all groups here."""
    for mine, found in zip((A, B), effects_of(groups(A, B)), strict=True):
        alone = arm_effects(view(mine))
        np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-5)
        np.testing.assert_allclose(found.covariance, alone.covariance, rtol=1e-3, atol=1e-9)
        np.testing.assert_allclose(found.df, alone.df, rtol=1e-3)
        assert found.identified.all()


def test_an_arm_that_never_met_the_baseline_has_no_effect_in_a_group() -> None:
    """Nor one that is known less well than is asked for."""
    apart = A * np.array([1.0, 1.0, 0.0])
    [found] = effects_of(groups(apart))
    assert found.identified.tolist() == [True, True, False]
    assert (found.mean[2], found.covariance[2, 2]) == (0.0, np.inf)
    [strict] = effects_of(groups(apart), most_variance=1e-6)
    assert strict.identified.tolist() == [True, False, False]


def test_hours_add_up() -> None:
    """Whether their strata or their equations are put together is the same, noise aside."""
    hours = joined(together(groups(A), groups(B)), [[0, 1]])
    at_once = groups(np.concatenate([A, B]))
    np.testing.assert_allclose(hours.precision, at_once.precision, rtol=1e-6)
    np.testing.assert_allclose(hours.score, at_once.score, rtol=1e-6, atol=1e-9)
    assert hours.n.tolist() == at_once.n.tolist()
