"""Effects of arms on log cost, each against a concurrent control. It decides nothing.

The model is `y = mu_s + delta_a + eps` with a free level `mu_s` per stratum, the baseline's `delta`
0, and `eps ~ N(0, sigma_a^2)`. Levels are profiled out, so whatever is common to a stratum (time of
day, load, length of answers) says nothing about arms. What is common to the answers of one arm at
one time is a term of its own where blocks are told (`shared`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from policies.estimators.shared import (
    NOTHING_SHARED,
    Shared,
    by_block,
    marginal,
    shared_variance,
    with_shared,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.types import ArmView, FloatArray, Prior

NU0 = 4.0
"""Observations the prior of the noise is worth. Judgement: gone after a few dozen requests."""

S0 = 0.3
"""Prior sd of the noise. Judgement: within a class and method the sd of ln TPOT is .1 to .4 where
drafts are accepted about as often in every request, and above that for look-up methods."""

_LEAST_N = 1e-3
_MOST_N = 1e9
_MOST_Y = 20.0
_LEAST_VARIANCE = 1e-4
_MOST_WEIGHT = 1e10
_LEAST_PRECISION = 1e-9


@dataclass(frozen=True, slots=True)
class ArmEffects:
    """Posterior of the arms' effects on log cost; negative is faster than the baseline.

    Attributes:
        mean: Shape (arms,); 0 for the baseline and for arms that are not identified.
        covariance: Shape (arms, arms); 0 in the baseline's row and column. An arm that is not
            identified has infinite variance under the flat prior, and its prior variance else.
        df: Degrees of freedom of the noise behind (arm - baseline), shape (arms,)
            (Welch 1947 and Satterthwaite 1946).
        noise: Variance of one observation of the arm, shape (arms,).
        identified: Whether data connect the arm with the baseline, shape (arms,).
        baseline: Index of the baseline.
        shared: What the answers of one arm in one block have in common; nothing where blocks were
            not told.
        own: Covariance as if they had nothing; None where it is `covariance`.
    """

    mean: FloatArray
    covariance: FloatArray
    df: FloatArray
    noise: FloatArray
    identified: NDArray[np.bool_]
    baseline: int
    shared: Shared = NOTHING_SHARED
    own: FloatArray | None = None


def arm_effects(
    view: ArmView, *, prior_sd: float | None = None, blocks: NDArray[np.int64] | None = None
) -> ArmEffects:
    """Estimate the effects of the arms from sums by stratum.

    With `w_sa = n_sa / sigma_a^2` and `W_s = sum_a w_sa`, profiling out the levels leaves the
    reduced normal equations of a block design (Searle 1987, "Linear Models for Unbalanced Data",
    there with equal variances)::

        Lambda = D0 + sum_s [diag(w_s) - w_s w_s' / W_s]
        b_a    = sum_s w_sa (ybar_sa - sum_a' w_sa' ybar_sa' / W_s)

    over the arms without the baseline; mean `Lambda^-1 b`, covariance `Lambda^-1`. Numbers that
    cannot be true leave their arm with its prior; nothing raises and nothing becomes NaN.

    Args:
        view: Sums of one class. Discounted sums are taken as so many observations; the interval is
            then wider than it need be.
        prior_sd: Sd of the prior N(0, prior_sd^2) of each effect; None is flat. Where the view
            brings a prior of its own that can be true, that one is used instead.
        blocks: Which stretch of time each stratum is of, shape (strata,): answers that an arm gives
            in one stretch are then not independent of each other. None takes them as if they were,
            which makes intervals too narrow to be shown to anybody.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> n = np.array([[50.0, 50.0]])
        >>> level = np.array([[0.0, -0.5]])
        >>> view = ArmView(ClassId("chat"), arms, n, n * level, n * (level**2 + 0.09),
        ...                np.zeros(2), np.zeros(2))
        >>> effects = arm_effects(view)
        >>> effects.mean.round(6), effects.identified
        (array([ 0. , -0.5]), array([ True,  True]))
    """
    base, arms = view.baseline_index, len(view.arms)
    n, ybar, residual = sound_cells(view.n, view.total, view.total_sq)
    sigma_sq, nu = noise_variance(n, residual)
    w = np.minimum(n / sigma_sq, _MOST_WEIGHT)
    identified = _connected(n, base)
    keep = np.ones(arms, dtype=np.bool_) if prior_sd is not None else identified.copy()
    keep[base] = False
    alone, shared = by_block(w, ybar, None), None
    told = alone
    if blocks is not None:
        each = by_block(w * identified, ybar, blocks)
        shared = shared_variance(each, keep & identified)
        told = marginal(each, shared.variance)
    b, lam = told.score.sum(axis=0)[keep], told.precision.sum(axis=0)[np.ix_(keep, keep)]

    d0 = np.eye(int(keep.sum())) * (0.0 if prior_sd is None else prior_sd**-2.0)
    if prior_sd is not None and _sound_prior(view.prior, keep):
        d0 = _inverse(view.prior.covariance[np.ix_(keep, keep)])
        b = b + d0 @ view.prior.mean[keep]
    inverse = _inverse(lam + d0)
    mean, covariance = np.zeros(arms), np.zeros((arms, arms))
    mean[keep] = inverse @ b
    covariance[np.ix_(keep, keep)] = inverse
    lost = ~keep
    lost[base] = False
    covariance[lost, lost] = np.inf
    df = _welch(n, sigma_sq, nu, base)
    if shared is None:
        return ArmEffects(mean, covariance, df, sigma_sq, identified, base)
    apart = _inverse(alone.precision.sum(axis=0)[np.ix_(keep, keep)])
    df[keep] = with_shared(df[keep], np.diagonal(inverse), np.diagonal(apart), shared)
    own = np.zeros((arms, arms))
    own[np.ix_(keep, keep)] = apart
    return ArmEffects(mean, covariance, df, sigma_sq, identified, base, shared, own)


def shared_of(sums: FloatArray, baseline: int, blocks: NDArray[np.int64]) -> Shared:
    """What answers of one arm in one block share, going by all strata of a class.

    Args:
        sums: n, sum and sum of squares by stratum, shape (strata, 3, arms).
        baseline: Index of the baseline.
        blocks: Which block each stratum is of, shape (strata,).
    """
    n, ybar, residual = sound_cells(sums[:, 0], sums[:, 1], sums[:, 2])
    sigma_sq, _ = noise_variance(n, residual)
    keep = _connected(n, baseline)
    each = by_block(np.minimum(n / sigma_sq, _MOST_WEIGHT) * keep, ybar, blocks)
    keep[baseline] = False
    return shared_variance(each, keep)


def noise_variance(n: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Noise variance per arm, shrunk to the variance of all arms, which is shrunk to `S0`.

    The scaled inverse chi-square prior (Gelman et al. 2013, section 2.6) twice over::

        s^2       = (nu0 s0^2 + sum_a SS_a) / (nu0 + sum_a df_a)
        sigma_a^2 = (nu0 s^2 + SS_a) / (nu0 + df_a)

    Args:
        n: Observations, shape (strata, arms).
        residual: Sums of squares around the mean of each (stratum, arm), same shape.

    Returns:
        Variance per arm and its degrees of freedom `nu0 + df_a`, both shape (arms,).

    Example:
        >>> variance, nu = noise_variance(np.array([[97.0, 1.0]]), np.array([[24.0, 0.0]]))
        >>> variance.round(2), nu
        (array([0.25, 0.24]), array([100.,   4.]))
    """
    counted = n > 1.0
    df = np.where(counted, n - 1.0, 0.0).sum(axis=0)
    ss = np.where(counted, residual, 0.0).sum(axis=0)
    s_sq = (NU0 * S0**2 + ss.sum()) / (NU0 + df.sum())
    sigma_sq = (NU0 * s_sq + ss) / (NU0 + df)
    return np.maximum(sigma_sq, _LEAST_VARIANCE), NU0 + df


def draw_effects(effects: ArmEffects, rng: np.random.Generator, draws: int) -> FloatArray:
    """Draw the effects jointly from their normal posterior.

    Args:
        effects: With finite covariance, that is, estimated with a prior.
        rng: Source of randomness.
        draws: Number of draws.

    Returns:
        Shape (draws, arms); the baseline's column is 0.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp"))
        >>> effects = arm_effects(ArmView.empty(ClassId("chat"), arms), prior_sd=0.5)
        >>> draw_effects(effects, np.random.default_rng(0), 1000).std(axis=0).round(1)
        array([0. , 0.5])
    """
    values, vectors = np.linalg.eigh(effects.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: FloatArray = effects.mean + rng.standard_normal((draws, len(effects.mean))) @ root.T
    drawn[:, effects.baseline] = 0.0
    return drawn


def sound_cells(
    n: FloatArray, total: FloatArray, total_sq: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Counts, means and residual sums of squares; an arm with an impossible number is emptied.

    Args:
        n: Observations, shape (strata, arms), as the others.
        total: Sum of y.
        total_sq: Sum of y squared.

    Example:
        >>> n, ybar, residual = sound_cells(*np.array([[[2.0, -1.0]], [[4.0, 0.0]], [[9.0, 0.0]]]))
        >>> n, ybar, residual
        (array([[2., 0.]]), array([[2., 0.]]), array([[1., 0.]]))
    """
    with np.errstate(all="ignore"):
        seen = n >= _LEAST_N
        divisor = np.where(seen, n, 1.0)
        ybar = np.where(seen, total, 0.0) / divisor
        residual = np.where(seen, total_sq, 0.0) - ybar * ybar * np.where(seen, n, 0.0)
        good = (
            (n >= 0.0)
            & (n <= _MOST_N)
            & (np.abs(ybar) <= _MOST_Y)
            & (residual >= -1e-4 * divisor)
            & (residual <= _MOST_Y**2 * divisor)
        )
    sound = seen & good.all(axis=0)
    return (
        np.where(sound, n, 0.0),
        np.where(sound, ybar, 0.0),
        np.where(sound, np.maximum(residual, 0.0), 0.0),
    )


def _sound_prior(prior: Prior | None, keep: NDArray[np.bool_]) -> TypeGuard[Prior]:
    """Whether a prior is there and can be true for the arms to keep."""
    if prior is None or prior.mean.shape != keep.shape or prior.covariance.shape != 2 * keep.shape:
        return False
    mean, covariance = prior.mean[keep], prior.covariance[np.ix_(keep, keep)]
    variance = np.diag(covariance)
    with np.errstate(all="ignore"):
        return bool(
            (np.abs(mean) <= _MOST_Y).all()
            and (np.abs(covariance) <= _MOST_Y**2).all()
            and (variance >= _LEAST_VARIANCE**2).all()
            and (covariance**2 <= np.outer(variance, variance) * (1.0 + 1e-6)).all()
        )


def _connected(n: FloatArray, base: int) -> NDArray[np.bool_]:
    """Arms that a chain of shared strata connects with the baseline (Searle 1987)."""
    present = (n > 0.0).astype(np.float64)
    adjacent = present.T @ present > 0.0
    reached = np.zeros(n.shape[1], dtype=np.bool_)
    reached[base] = True
    for _ in range(n.shape[1]):
        grown = reached | adjacent[reached].any(axis=0)
        if (grown == reached).all():
            break
        reached = grown
    return reached


def _inverse(matrix: FloatArray) -> FloatArray:
    """Inverse of a symmetric positive definite matrix; rounding never makes it indefinite."""
    values, vectors = np.linalg.eigh(matrix)
    inverse: FloatArray = (vectors / np.maximum(values, _LEAST_PRECISION)) @ vectors.T
    return inverse


def _welch(n: FloatArray, sigma_sq: FloatArray, nu: FloatArray, base: int) -> FloatArray:
    """Degrees of freedom of (arm - baseline), as if there were one stratum."""
    v = sigma_sq / np.maximum(n.sum(axis=0), _LEAST_N)
    df: FloatArray = (v + v[base]) ** 2 / (v**2 / nu + v[base] ** 2 / nu[base])
    return df
