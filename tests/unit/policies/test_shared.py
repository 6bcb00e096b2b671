"""What answers of one arm in one block share, against the plain linear algebra of the same model."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.checks import example_arms
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.shared import NU_OMEGA, OMEGA0, by_block, marginal, shared_variance
from policies.estimators.verdict import gain_of
from policies.types import ArmView, ClassId, FloatArray

CHAT = ClassId("chat")


def view_of(n: FloatArray, mean: FloatArray, sd: float = 0.3) -> ArmView:
    """A class with the sums of some strata."""
    arms = n.shape[1]
    sums = n, n * mean, n * (mean**2 + sd**2)
    return ArmView(CHAT, example_arms(arms), *sums, np.zeros(arms), np.zeros(arms))


def drawn(seed: int, strata: int = 24, arms: int = 3) -> tuple[FloatArray, FloatArray]:
    """Counts and means of some strata."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 30, (strata, arms)).astype(float), rng.normal(0, 0.2, (strata, arms))


def effects_by_hand(
    n: FloatArray, mean: FloatArray, block: NDArray[np.int64], noise: FloatArray, omega_sq: float
) -> tuple[FloatArray, FloatArray]:
    """Generalised least squares with the whole covariance of all cells written out."""
    strata, arms = n.shape
    cells = [(s, a) for s in range(strata) for a in range(arms) if n[s, a] > 0]
    x = np.zeros((len(cells), strata + arms - 1))
    v = np.zeros((len(cells), len(cells)))
    for i, (s, a) in enumerate(cells):
        x[i, s] = 1.0
        if a:
            x[i, strata + a - 1] = 1.0
        for j, (t, b) in enumerate(cells):
            v[i, j] = (i == j) * noise[a] / n[s, a] + (a == b and block[s] == block[t]) * omega_sq
    told = x.any(axis=0)
    inverse = np.linalg.inv(v)
    y = np.array([mean[s, a] for s, a in cells])
    covariance = np.linalg.inv(x[:, told].T @ inverse @ x[:, told])
    beta = covariance @ x[:, told].T @ inverse @ y
    return beta[1 - arms :], covariance[1 - arms :, 1 - arms :]


@pytest.mark.parametrize("seed", range(4))
def test_effects_are_those_of_generalised_least_squares(seed: int) -> None:
    """Several strata to a block, cells that are empty, three arms."""
    n, mean = drawn(seed)
    block = np.arange(len(n)) // 4
    effects = arm_effects(view_of(n, mean), blocks=block)
    beta, covariance = effects_by_hand(n, mean, block, effects.noise, effects.shared.variance)
    assert effects.mean[1:] == pytest.approx(beta)
    assert effects.covariance[1:, 1:] == pytest.approx(covariance)


def test_the_order_of_strata_is_of_no_account() -> None:
    """Those of a block need not stand together."""
    n, mean = drawn(7)
    block = np.arange(len(n)) // 4
    order = np.random.default_rng(0).permutation(len(n))
    one = arm_effects(view_of(n, mean), blocks=block)
    other = arm_effects(view_of(n[order], mean[order]), blocks=block[order])
    assert one.mean == pytest.approx(other.mean)
    assert one.covariance == pytest.approx(other.covariance)


def test_of_one_block_only_the_prior_knows() -> None:
    """However many answers it has."""
    n = np.full((3, 2), 1e5)
    effects = arm_effects(view_of(n, np.zeros((3, 2))), blocks=np.zeros(3, dtype=np.int64))
    assert effects.shared.variance == OMEGA0**2
    assert effects.covariance[1, 1] == pytest.approx(2 * OMEGA0**2, rel=0.01)
    assert effects.df[1] == pytest.approx(NU_OMEGA, rel=0.01)


def test_many_blocks_that_agree_say_that_nothing_is_shared() -> None:
    """The interval is then that of independent answers again, nearly."""
    n, still = np.full((60, 2), 50.0), np.tile([0.0, -0.2], (60, 1))
    apart = gain_of(arm_effects(view_of(n, still)), 1)
    together = gain_of(arm_effects(view_of(n, still), blocks=np.arange(60)), 1)
    assert apart is not None
    assert together is not None
    assert together.value == pytest.approx(apart.value)
    assert 1.0 < (together.high - together.low) / (apart.high - apart.low) < 1.6


def test_the_estimate_finds_what_was_put_in() -> None:
    """A tenth, within a fifth, over 400 blocks of three arms."""
    rng = np.random.default_rng(3)
    n = np.full((400, 3), 40.0)
    mean = rng.normal(0.0, 0.1, n.shape) + rng.normal(0.0, 0.3 / 40**0.5, n.shape)
    assert arm_effects(
        view_of(n, mean), blocks=np.arange(400)
    ).shared.variance ** 0.5 == pytest.approx(0.1, rel=0.2)


def test_an_arm_without_control_changes_nothing_for_the_others() -> None:
    """It met the baseline in no stratum."""
    n, mean = drawn(11, arms=2)
    block = np.arange(len(n)) // 2
    alone = arm_effects(view_of(n, mean), blocks=block)
    third = np.zeros((1, 3))
    third[0, 2] = 500.0
    wider = np.concatenate([np.column_stack([n, np.zeros(len(n))]), third])
    means = np.concatenate([np.column_stack([mean, np.zeros(len(n))]), third * 0.01])
    with_it = arm_effects(view_of(wider, means), blocks=np.append(block, block[-1]))
    assert not with_it.identified[2]
    assert np.isinf(with_it.covariance[2, 2])
    assert with_it.mean[1] == pytest.approx(alone.mean[1], abs=0.02)
    assert with_it.shared.variance == pytest.approx(alone.shared.variance, rel=0.2)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1e9])
def test_absurd_counts_stay_finite(size: float) -> None:
    """Nothing, next to nothing, and far too much."""
    n = np.full((5, 3), size)
    effects = arm_effects(view_of(n, np.zeros((5, 3))), blocks=np.arange(5))
    assert np.isfinite(effects.mean).all()
    assert not np.isnan(effects.covariance).any()
    assert not np.isnan(effects.df).any()


def test_no_strata_at_all() -> None:
    """A class that is known by name alone."""
    view = ArmView.empty(CHAT, example_arms(2))
    effects: ArmEffects = arm_effects(view, blocks=np.zeros(len(view.n), dtype=np.int64))
    assert not effects.identified[1]


def test_nothing_shared_leaves_the_equations_as_they_are() -> None:
    """Integrated out of them, it is nothing."""
    n, mean = drawn(5)
    blocks = by_block(n, mean, np.arange(len(n)) // 3)
    assert marginal(blocks, 0.0).precision == pytest.approx(blocks.precision)
    assert shared_variance(blocks, np.array([False, True, True])).df > NU_OMEGA
