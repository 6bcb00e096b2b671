"""Effects against brute force, and with data that say nothing or lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks import degenerate_views, example_arms, example_view
from policies.estimators.effects import (
    NU0,
    S0,
    ArmEffects,
    arm_effects,
    draw_effects,
    noise_variance,
)
from policies.types import ArmView, ClassId, FloatArray, Prior


def view_of(n: FloatArray, mean: FloatArray, sd: float = 0.3) -> ArmView:
    """A view with these counts and means and the same spread everywhere."""
    arms = example_arms(n.shape[1])
    none = np.zeros(len(arms))
    return ArmView(ClassId("chat"), arms, n, n * mean, n * (mean**2 + sd**2), none, none)


def by_least_squares(view: ArmView, prior_sd: float | None) -> tuple[FloatArray, FloatArray]:
    """The same posterior from the full design: a column per stratum and per arm, dense algebra."""
    strata, arms = view.n.shape
    rows = [(s, a) for s in range(strata) for a in range(arms) if view.n[s, a] > 0]
    residual = view.total_sq - view.total**2 / np.maximum(view.n, 1e-12)
    variance, _ = noise_variance(view.n, np.where(view.n > 0, residual, 0.0))
    design = np.zeros((len(rows), strata + arms - 1))
    for row, (s, a) in enumerate(rows):
        design[row, s] = 1.0
        if a:
            design[row, strata + a - 1] = 1.0
    weight = np.array([view.n[s, a] / variance[a] for s, a in rows])
    y = np.array([view.total[s, a] / view.n[s, a] for s, a in rows])
    precision = design.T @ (weight[:, None] * design)
    if prior_sd is not None:
        precision[strata:, strata:] += np.eye(arms - 1) / prior_sd**2
    covariance = np.linalg.inv(precision)
    return (covariance @ design.T @ (weight * y))[strata:], covariance[strata:, strata:]


@pytest.mark.parametrize("prior_sd", [None, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_profiling_equals_the_full_regression(prior_sd: float | None, seed: int) -> None:
    """Reduced normal equations give the same mean and covariance as dense least squares."""
    rng = np.random.default_rng(seed)
    n = rng.integers(0, 9, (6, 4)).astype(np.float64)
    n[0] = 3.0
    n[:, 0] += n.sum(axis=1) == 0
    view = view_of(n, rng.normal(0.0, 1.0, (6, 4)))
    mean, covariance = by_least_squares(view, prior_sd)
    effects = arm_effects(view, prior_sd=prior_sd)
    assert np.allclose(effects.mean[1:], mean, atol=1e-9)
    assert np.allclose(effects.covariance[1:, 1:], covariance, atol=1e-9)
    assert effects.mean[0] == 0.0
    assert not effects.covariance[0].any()


@given(st.integers(0, 10_000), st.floats(-9, 11))
def test_what_is_common_to_a_stratum_says_nothing(seed: int, shift: float) -> None:
    """Adding a level to one stratum leaves every effect as it was."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 9, (3, 3)).astype(np.float64)
    mean = rng.normal(0.0, 0.5, (3, 3))
    moved = mean + np.array([[shift], [0.0], [0.0]])
    left, right = arm_effects(view_of(n, mean)), arm_effects(view_of(n, moved))
    assert np.allclose(left.mean, right.mean, atol=1e-6)


def test_arms_that_never_meet_are_not_identified() -> None:
    """Before and after is no comparison: without a shared stratum there is no effect."""
    n = np.array([[10.0, 0.0, 0.0], [0.0, 10.0, 10.0]])
    effects = arm_effects(view_of(n, np.zeros((2, 3))))
    assert effects.identified.tolist() == [True, False, False]
    assert effects.mean.tolist() == [0.0, 0.0, 0.0]
    assert np.isinf(effects.covariance[1, 1])
    assert not np.isnan(effects.covariance).any()


def test_a_chain_of_strata_identifies() -> None:
    """Arm 2 never met the baseline but met arm 1, which did: the effect is the sum."""
    n = np.array([[50.0, 50.0, 0.0], [0.0, 50.0, 50.0]])
    effects = arm_effects(view_of(n, np.array([[0.0, -0.2, 0.0], [1.0, 1.0, 0.7]])))
    assert effects.identified.all()
    assert np.allclose(effects.mean, [0.0, -0.2, -0.5])


def test_with_a_prior_arms_compare_without_the_baseline() -> None:
    """Two arms that met only each other keep their difference; their common level is the prior's."""
    n = np.array([[0.0, 5000.0, 5000.0]])
    effects = arm_effects(view_of(n, np.array([[0.0, 1.0, 0.5]])), prior_sd=0.5)
    assert np.allclose(effects.mean[1] - effects.mean[2], 0.5, atol=1e-3)
    assert np.allclose(effects.mean[1] + effects.mean[2], 0.0, atol=1e-3)
    assert effects.identified.tolist() == [True, False, False]


def test_an_empty_view_is_the_prior() -> None:
    """Nothing known: effects 0 with the prior's spread, or infinite spread without a prior."""
    view = ArmView.empty(ClassId("chat"), example_arms(3))
    assert np.allclose(arm_effects(view, prior_sd=0.5).covariance, np.diag([0.0, 0.25, 0.25]))
    assert [0.0, np.inf, np.inf] == np.diag(arm_effects(view).covariance).tolist()


@pytest.mark.parametrize("prior_sd", [None, 0.5])
def test_impossible_numbers_leave_their_arm_with_its_prior(prior_sd: float | None) -> None:
    """NaN, infinity, negative and absurd numbers never raise and never reach the answer."""
    for view in degenerate_views(example_arms(4)):
        effects = arm_effects(view, prior_sd=prior_sd)
        assert np.isfinite(effects.mean).all()
        assert not np.isnan(effects.covariance).any()
        assert np.isfinite(effects.df).all()


def test_a_spoilt_arm_does_not_spoil_the_others() -> None:
    """The other arms' effects are what they would be without the spoilt one."""
    view = example_view(example_arms(3), [0.0, -0.5, 0.2])
    broken = view.n.copy()
    broken[0, 2] = np.nan
    without = view.n.copy()
    without[:, 2] = 0.0
    spoilt, absent = arm_effects(replace(view, n=broken)), arm_effects(replace(view, n=without))
    assert not spoilt.identified[2]
    assert np.allclose(spoilt.mean[:2], absent.mean[:2])


def test_noise_of_an_unseen_arm_is_that_of_all_arms() -> None:
    """No data at all: S0. Data on one arm: the others take its variance, not S0."""
    none = np.zeros((0, 2))
    assert np.allclose(noise_variance(none, none)[0], S0**2)
    variance, nu = noise_variance(np.array([[1001.0, 0.0]]), np.array([[1000.0, 0.0]]))
    assert np.allclose(variance, 1.0, atol=0.01)
    assert nu.tolist() == [NU0 + 1000, NU0]


def test_effects_carry_the_noise_they_were_weighted_with() -> None:
    """The variance of one observation, by arm: what a spread in units of the noise refers to."""
    view = view_of(np.array([[40.0, 10.0]]), np.zeros((1, 2)))
    expected, _ = noise_variance(view.n, view.total_sq)
    assert np.allclose(arm_effects(view).noise, expected)


def test_degrees_of_freedom_lie_between_the_smaller_and_the_sum() -> None:
    """Welch and Satterthwaite: at least the smaller side's, at most both together."""
    n = np.array([[40.0, 10.0]])
    effects = arm_effects(view_of(n, np.zeros((1, 2))))
    assert NU0 + 9 <= effects.df[1] <= 2 * NU0 + 48


def test_draws_have_the_posteriors_mean_and_covariance() -> None:
    """200 000 draws; tolerances are six standard errors of the sample moments."""
    covariance = np.array([[0.0, 0.0, 0.0], [0.0, 0.04, 0.03], [0.0, 0.03, 0.09]])
    effects = ArmEffects(
        np.array([0.0, -0.5, 0.3]),
        covariance,
        np.full(3, 9.0),
        np.full(3, 0.09),
        np.full(3, fill_value=True),
        0,
    )
    drawn = draw_effects(effects, np.random.default_rng(1), 200_000)
    assert np.allclose(drawn.mean(axis=0), effects.mean, atol=6 * 0.3 / 200_000**0.5)
    assert np.allclose(np.cov(drawn.T), covariance, atol=6 * 0.09 * (2 / 200_000) ** 0.5)
    assert not drawn[:, 0].any()


PRIOR = Prior(
    np.array([0.0, -0.4, 0.3]), np.array([[0.0, 0.0, 0.0], [0.0, 0.04, 0.02], [0.0, 0.02, 0.09]])
)


def test_a_views_own_prior_takes_the_place_of_the_policys() -> None:
    """Conjugate: precisions add, and means by precision."""
    view = view_of(np.full((4, 3), 5.0), np.zeros((4, 3)))
    flat = arm_effects(view)
    own, prior = (np.linalg.inv(of.covariance[1:, 1:]) for of in (flat, PRIOR))
    expected = np.linalg.solve(own + prior, own @ flat.mean[1:] + prior @ PRIOR.mean[1:])
    posterior = arm_effects(replace(view, prior=PRIOR), prior_sd=0.5)
    assert posterior.mean[1:] == pytest.approx(expected)
    assert posterior.covariance[1:, 1:] == pytest.approx(np.linalg.inv(own + prior))


def test_without_data_the_posterior_is_the_views_prior() -> None:
    """That is where a new segment starts."""
    posterior = arm_effects(
        replace(ArmView.empty(ClassId("chat"), example_arms(3)), prior=PRIOR), prior_sd=0.5
    )
    assert posterior.mean == pytest.approx(PRIOR.mean)
    assert posterior.covariance == pytest.approx(PRIOR.covariance)


def test_estimates_without_a_prior_leave_the_views_out() -> None:
    """Verdicts rest on data alone."""
    view = view_of(np.full((4, 3), 5.0), np.zeros((4, 3)))
    plain, given_ = arm_effects(view), arm_effects(replace(view, prior=PRIOR))
    assert (given_.mean == plain.mean).all()
    assert (given_.covariance == plain.covariance).all()


@pytest.mark.parametrize(
    "prior",
    [
        replace(PRIOR, mean=np.array([0.0, np.nan, 0.0])),
        replace(PRIOR, mean=np.zeros(2)),
        replace(PRIOR, covariance=-PRIOR.covariance),
        replace(PRIOR, covariance=np.zeros((3, 3))),
        replace(PRIOR, covariance=np.ones((3, 3)) - np.eye(3) * 0.9),
        replace(PRIOR, covariance=np.full((3, 3), np.inf)),
    ],
    ids=["nan", "shape", "negative", "zero", "no correlation", "infinite"],
)
def test_a_prior_that_cannot_be_true_is_left_out(prior: Prior) -> None:
    """The policy's own is used instead."""
    view = view_of(np.full((4, 3), 5.0), np.zeros((4, 3)))
    plain, given_ = (arm_effects(of, prior_sd=0.5) for of in (view, replace(view, prior=prior)))
    assert (given_.mean == plain.mean).all()
