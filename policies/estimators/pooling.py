"""Partial pooling of groups of one class: what each group says, and what the others say of it.

A group is a set of requests with strata of its own (an application, say). Its effects are drawn
around those of the class, `delta_g ~ N(mu, tau^2 I)`: the hierarchical normal model (Efron and
Morris 1975, "Data Analysis Using Stein's Estimator"; Gelman and Hill 2007, chapter 12). It decides
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.effects import NU0, ArmEffects, noise_variance, sound_cells
from policies.estimators.shared import NOTHING_SHARED, Shared, by_block, marginal, with_shared
from policies.estimators.verdict import TUNED_BLOCKS, TUNED_N, Gain, anytime_reach
from policies.types import Prior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.types import FloatArray

TAU0 = 0.2
"""Prior sd between the effects of groups. Judgement: applications of a class mostly differ by less
than a fifth."""

NU_TAU = 2.0
"""Contrasts between groups that this prior is worth. Judgement: a handful of groups outweigh it."""

PRIOR_SD = 0.5
"""Sd of the prior of the class's own effects, as in `policies.thompson`."""

_FLAT = 1e-4
_MOST_VARIANCE = 25.0
_MOST_WEIGHT = 1e10
_LEAST_N = 0.5
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Groups:
    """Reduced normal equations of each group (`effects.arm_effects`).

    Attributes:
        precision: `Lambda_g`, shape (groups, arms, arms); 0 in the baseline's row and column.
        score: `b_g`, shape (groups, arms); 0 for the baseline.
        noise: Variance of one observation, shape (groups, arms).
        nu: Its degrees of freedom, shape (groups, arms).
        n: Observations, shape (groups, arms).
        baseline: Index of the baseline.
        alone: `Lambda_g` as if answers of one arm in one block shared nothing, same shape.
        shared: What they do.
    """

    precision: FloatArray
    score: FloatArray
    noise: FloatArray
    nu: FloatArray
    n: FloatArray
    baseline: int
    alone: FloatArray
    shared: Shared


@dataclass(frozen=True, slots=True)
class Difference:
    """How an arm's effect differs between two sets of requests, with an anytime-valid interval.

    Attributes:
        value: Estimate on log cost; negative is faster.
        low: Lower bound.
        high: Upper bound.
    """

    value: float
    low: float
    high: float

    def as_gain(self) -> Gain:
        """The share of time that is saved.

        Example:
            >>> Difference(-0.5, -0.6, -0.4).as_gain().value.__round__(3)
            0.393
        """
        return Gain(-math.expm1(self.value), -math.expm1(self.high), -math.expm1(self.low))


def groups_of(
    sums: FloatArray,
    starts: Sequence[int],
    baseline: int,
    *,
    blocks: NDArray[np.int64] | None = None,
    shared: Shared = NOTHING_SHARED,
) -> Groups:
    """Normal equations of groups of strata.

    The noise of a group's arm is shrunk to that of the arm in all groups, which is shrunk as in
    `effects.noise_variance`.

    Args:
        sums: n, sum and sum of squares by stratum, shape (strata, 3, arms), groups one after
            another.
        starts: First row of each group; every group has at least one.
        baseline: Index of the baseline.
        blocks: Which stretch of time each stratum is of, shape (strata,).
        shared: What the answers of one arm in one of them share, as `effects.arm_effects` found it
            for the class.

    Example:
        >>> n, level = np.full((1, 2), 50.0), np.array([[0.0, -0.5]])
        >>> one = np.stack([n, n * level, n * (level**2 + 0.09)], axis=1)
        >>> groups = groups_of(np.concatenate([one, one]), [0, 1], 0)
        >>> (groups.score[:, 1] / groups.precision[:, 1, 1]).round(3)
        array([-0.5, -0.5])
    """
    n, ybar, residual = sound_cells(sums[:, 0], sums[:, 1], sums[:, 2])
    first = np.asarray(starts)
    counted = n > 1.0
    df = np.add.reduceat(np.where(counted, n - 1.0, 0.0), first, axis=0)
    ss = np.add.reduceat(np.where(counted, residual, 0.0), first, axis=0)
    common, _ = noise_variance(n, residual)
    noise = np.maximum((NU0 * common + ss) / (NU0 + df), 1e-4)
    sizes = np.diff(np.append(first, len(n)))
    w = np.minimum(n / np.repeat(noise, sizes, axis=0), _MOST_WEIGHT)
    at = np.zeros(len(n), dtype=np.int64) if blocks is None else blocks + 1
    span = int(at.max()) + 1
    each = by_block(w, ybar, np.repeat(np.arange(len(first)), sizes) * span + at)
    begins = np.searchsorted(each.number // span, np.arange(len(first)))
    told = marginal(each, shared.variance) if shared.variance else each
    precision, alone = (np.add.reduceat(of.precision, begins, axis=0) for of in (told, each))
    score = np.add.reduceat(told.score, begins, axis=0)
    for matrix in (precision, alone):
        matrix[:, baseline] = matrix[:, :, baseline] = 0.0
    score[:, baseline] = 0.0
    n_of = np.add.reduceat(n, first, axis=0)
    return Groups(precision, score, noise, NU0 + df, n_of, baseline, alone, shared)


def between_variance(groups: Groups) -> float:
    """Variance tau^2 of effects between groups, by moments, shrunk to `TAU0`.

    DerSimonian and Laird (1986, Controlled Clinical Trials 7, 177-188), numerators and
    denominators added over arms; the prior is worth `NU_TAU` contrasts.

    Example:
        >>> n = np.full((1, 2), 500.0)
        >>> rows = [np.stack([n, n * d, n * (d**2 + 0.09)], axis=1)
        ...         for d in (np.array([[0.0, x]]) for x in (-0.5, 0.5))]
        >>> apart = between_variance(groups_of(np.concatenate(rows), [0, 1], 0))
        >>> alike = between_variance(groups_of(np.concatenate(rows[:1] * 2), [0, 1], 0))
        >>> round(apart, 2), round(alike, 3)
        (0.19, 0.027)
    """
    mean, covariance = _own(groups)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    known = (variance > 0.0) & (variance < _MOST_VARIANCE)
    w = np.where(known, 1.0 / np.where(known, variance, 1.0), 0.0)
    total = np.maximum(w.sum(axis=0), 1e-12)
    contrasts = np.maximum(known.sum(axis=0) - 1, 0)
    q = (w * (mean - (w * mean).sum(axis=0) / total) ** 2).sum(axis=0)
    denominator = float((total - (w**2).sum(axis=0) / total)[contrasts > 0].sum())
    numerator = float((q - contrasts)[contrasts > 0].sum())
    found = max(numerator / denominator, 0.0) if denominator > 0.0 else 0.0
    return float((NU_TAU * TAU0**2 + contrasts.sum() * found) / (NU_TAU + contrasts.sum()))


def priors(groups: Groups, tau_sq: float, prior_sd: float = PRIOR_SD) -> list[Prior]:
    """What the other groups say of each group: the class without it, and how much groups differ.

    With `K_h = (I + tau^2 Lambda_h)^-1` a group's weight is `K_h Lambda_h = (V_h + tau^2 I)^-1`,
    also where it has no data::

        P = sum_{h != g} K_h Lambda_h + I / prior_sd^2
        delta_g ~ N(P^-1 sum_{h != g} K_h b_h, P^-1 + tau^2 I)

    Example:
        >>> n, level = np.full((1, 2), 500.0), np.array([[0.0, -0.5]])
        >>> one = np.stack([n, n * level, n * (level**2 + 0.09)], axis=1)
        >>> groups = groups_of(np.concatenate([one, 0 * one]), [0, 1], 0)
        >>> [round(float(prior.mean[1]), 2) for prior in priors(groups, 0.0)]
        [0.0, -0.5]
    """
    arms = groups.score.shape[1]
    eye = np.eye(arms)
    shrink = np.linalg.inv(eye + tau_sq * groups.precision)
    weight = shrink @ groups.precision
    pull = (shrink @ groups.score[:, :, None])[:, :, 0]
    others = weight.sum(axis=0) - weight
    others = (others + others.transpose(0, 2, 1)) / 2.0 + eye / prior_sd**2
    covariance = np.linalg.inv(others)
    mean = (covariance @ (pull.sum(axis=0) - pull)[:, :, None])[:, :, 0]
    covariance = covariance + tau_sq * eye
    covariance[:, groups.baseline] = covariance[:, :, groups.baseline] = 0.0
    mean[:, groups.baseline] = 0.0
    return [Prior(*both) for both in zip(mean, covariance, strict=True)]


def differences(one: Groups, other: Groups | None, level: float) -> list[list[Difference | None]]:
    """How each group of one differs from the group of the same index in another, arm by arm.

    The interval is that of `verdict.gain_of`, for a difference of two effects: its variance is the
    sum of theirs, its noise that of the four sides, its degrees of freedom Welch's.

    Args:
        one: Groups.
        other: As many groups, of other requests; None compares with the baseline alone, which gives
            each group's own effects.
        level: Confidence of each interval, at all looks together.

    Returns:
        By group and arm; None for the baseline and where data do not bound the difference.
    """
    base, shape = one.baseline, one.noise.shape
    mean, unit, spread, slack, plain = (np.zeros(shape) for _ in range(5))
    variances = []
    for sign, side in ((1.0, one), (-1.0, other)):
        if side is None:
            continue
        effect, covariance = _own(side)
        mean = mean + sign * effect
        variances.append(np.diagonal(covariance, axis1=1, axis2=2))
        plain = plain + np.diagonal(_inverse(side.alone, base), axis1=1, axis2=2)
        unit = unit + 2.0 * side.shared.variance * TUNED_N / TUNED_BLOCKS
        for column in (slice(None), slice(base, base + 1)):
            noise, n = side.noise[:, column], np.maximum(side.n[:, column], 1e-3)
            unit, spread = unit + noise, spread + noise / n
            slack = slack + (noise / n) ** 2 / side.nu[:, column]
    df, variance = spread**2 / slack, sum(variances, np.zeros(shape))
    if one.shared.variance:
        df = with_shared(df, np.maximum(variance, _LEAST_VARIANCE), plain, one.shared)
    known = (np.max(variances, axis=0) < _MOST_VARIANCE) & (np.min(variances, axis=0) > 0.0)
    known[:, base] = False
    found: list[list[Difference | None]] = [[None] * shape[1] for _ in range(shape[0])]
    for g, a in np.argwhere(known).tolist():
        reach = anytime_reach(float(variance[g, a]), float(df[g, a]), float(unit[g, a]), level)
        if reach is not None:
            value = float(mean[g, a])
            found[g][a] = Difference(value, value - reach, value + reach)
    return found


def rest_of(groups: Groups) -> Groups:
    """For each group all others together, taken as one.

    Noise is the mean of theirs by observations.
    """
    n = groups.n.sum(axis=0) - groups.n
    total = (groups.n * groups.noise).sum(axis=0) - groups.n * groups.noise
    common = groups.noise.mean(axis=0)
    return Groups(
        groups.precision.sum(axis=0) - groups.precision,
        groups.score.sum(axis=0) - groups.score,
        np.where(n >= _LEAST_N, total / np.maximum(n, 1e-3), common),
        groups.nu.sum(axis=0) - groups.nu + NU0,
        n,
        groups.baseline,
        groups.alone.sum(axis=0) - groups.alone,
        groups.shared,
    )


def joined(groups: Groups, members: Sequence[Sequence[int]]) -> Groups:
    """Some groups taken together, set by set; a set may be empty."""
    pick = np.zeros((len(members), len(groups.n)))
    for row, indices in enumerate(members):
        pick[row, list(indices)] = 1.0
    n = pick @ groups.n
    noise = (pick @ (groups.n * groups.noise)) / np.maximum(n, 1e-3)
    noise = np.where(n >= _LEAST_N, noise, groups.noise.mean(axis=0))
    return Groups(
        np.tensordot(pick, groups.precision, axes=1),
        pick @ groups.score,
        noise,
        pick @ (groups.nu - NU0) + NU0,
        n,
        groups.baseline,
        np.tensordot(pick, groups.alone, axes=1),
        groups.shared,
    )


def together(one: Groups, other: Groups) -> Groups:
    """The groups of both, one after another; both have the same arms."""
    return Groups(
        np.concatenate([one.precision, other.precision]),
        np.concatenate([one.score, other.score]),
        np.concatenate([one.noise, other.noise]),
        np.concatenate([one.nu, other.nu]),
        np.concatenate([one.n, other.n]),
        one.baseline,
        np.concatenate([one.alone, other.alone]),
        max(one.shared, other.shared, key=lambda shared: shared.variance),
    )


def effects_of(groups: Groups, most_variance: float = _MOST_VARIANCE) -> list[ArmEffects]:
    """Effects of each group by its own data, as `effects.arm_effects` gives them for one.

    Args:
        groups: Groups.
        most_variance: An arm whose effect is known less well counts as not identified.

    Example:
        >>> n, level = np.full((1, 2), 50.0), np.array([[0.0, -0.5]])
        >>> one = np.stack([n, n * level, n * (level**2 + 0.09)], axis=1)
        >>> sums = np.concatenate([one, one * [1.0, 0.0]])
        >>> [met, not_met] = effects_of(groups_of(sums, [0, 1], 0))
        >>> met.mean.round(3), met.identified, not_met.identified
        (array([ 0. , -0.5]), array([ True,  True]), array([ True, False]))
    """
    mean, covariance = _own(groups)
    base, arms = groups.baseline, np.arange(groups.n.shape[1])
    identified = covariance[:, arms, arms] <= most_variance
    both = identified[:, :, None] & identified[:, None, :]
    covariance = np.where(both, covariance, 0.0)
    covariance[:, arms, arms] += np.where(identified, 0.0, np.inf)
    v = groups.noise / np.maximum(groups.n, 1e-3)
    v_base, nu_base = v[:, base, None], groups.nu[:, base, None]
    df = (v + v_base) ** 2 / (v**2 / groups.nu + v_base**2 / nu_base)
    if groups.shared.variance:
        plain = np.diagonal(_inverse(groups.alone, base), axis1=1, axis2=2)
        known = np.where(identified, np.diagonal(covariance, axis1=1, axis2=2), 1.0)
        df = with_shared(df, np.maximum(known, _LEAST_VARIANCE), plain, groups.shared)
    mean = np.where(identified, mean, 0.0)
    own = np.where(both, _inverse(groups.alone, base), 0.0)
    return [
        ArmEffects(
            mean[g],
            covariance[g],
            df[g],
            groups.noise[g],
            identified[g],
            base,
            groups.shared,
            own[g],
        )
        for g in range(len(mean))
    ]


def _own(groups: Groups) -> tuple[FloatArray, FloatArray]:
    """Effects of each group by its own data; an arm they do not bound has a huge variance."""
    covariance = _inverse(groups.precision, groups.baseline)
    mean: FloatArray = (covariance @ groups.score[:, :, None])[:, :, 0]
    return mean, covariance


def _inverse(precision: FloatArray, baseline: int) -> FloatArray:
    covariance = np.linalg.inv(precision + _FLAT * np.eye(precision.shape[1])).astype(np.float64)
    covariance[:, baseline] = covariance[:, :, baseline] = 0.0
    return covariance
