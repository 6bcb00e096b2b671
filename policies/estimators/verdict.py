"""From effects and tails to words: gain, loss, no difference, not enough data. It fits no model.

Every bound is about an arm against the baseline measured at the same time. Verdicts are looked at
again and again, so the interval behind them holds at all looks together, not at one chosen before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from policies.estimators.distributions import student_t_quantile
from policies.estimators.ended import SURE_Z
from policies.estimators.tails import TailRatio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.estimators.effects import ArmEffects

TAIL_LIMIT = 1.10
"""Largest ratio of an arm's tail to the baseline's that counts as harmless. Judgement: a tenth."""

MARGIN = 0.05
"""Gains within it, both ways, are no difference that a user would notice. Judgement."""

MIN_N = 5
"""Fewer observations on either side allow no verdict. Judgement: below it noise is the prior's."""

FAILURE_MARGIN = 0.02
"""Share of requests that an arm may fail beyond the baseline. Judgement: two in a hundred are seen
by users, and what their answers would have taken is in no duration."""

UNMET_MARGIN = 0.5
"""The same of an arm that the baseline did not meet: only what fails nearly always is then sure to
be the arm's, for the baseline's requests are of other times."""

TUNED_N = 60.0
"""Observations of each side at which `gain_of` is narrowest against the interval for one look.
Judgement: a class's first verdict falls about there. It moves the width, never the level."""

TUNED_BLOCKS = 4.0
"""Blocks at which it is, where answers of one block share something. Judgement: some minutes."""

_MOST_REACH = 5.0
_MOST_LOG = 700.0


class Verdict(StrEnum):
    """What is known about an arm for a class."""

    GAIN = "gain"
    LOSS = "loss"
    NO_DIFFERENCE = "no difference"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True, slots=True)
class Gain:
    """Share of the baseline's time that the arm saves, 1 - cost(arm) / cost(baseline).

    Attributes:
        value: Estimate; negative when the arm is slower.
        low: Lower bound of the interval.
        high: Upper bound of the interval.
    """

    value: float
    low: float
    high: float


def gain_of(effects: ArmEffects, arm: int, level: float = 0.95) -> Gain | None:
    """Gain of an arm, `1 - exp(delta)`, with an interval that holds at all looks together.

    A confidence sequence: with probability `level` no look, however often and whenever it is taken,
    shows an interval without the truth. It inverts the sequential t-test of Lindon et al. (2022,
    arXiv 2210.08589) for one coefficient of a linear model, which for a mean is that of Wang and
    Ramdas (2024, arXiv 2310.03722) and for known variance the normal mixture of Howard et al.
    (2021, arXiv 1810.08240). A true effect d is mixed over `d + N(0, tau^2)`, and d is refused
    where the mixture is `1 / alpha` times as likely as d itself::

        r       = V / (V + tau^2)            V the variance of the estimate
        t^2     = df (K - 1) / (1 - K r)     K = (alpha^2 r)^(-1 / (df + 1))
        reach   = t sqrt(V)
        tau^2   = (sigma_arm^2 + sigma_base^2) (L + ln(1 + L)) / TUNED_N     L = 2 ln(1 / alpha)

    Where answers of one arm in one block share something of variance omega^2, V holds it, and
    `2 omega^2 TUNED_N / TUNED_BLOCKS` stands beside the two variances of the last line.

    `tau^2` follows the tuning rule of Howard et al. for `TUNED_N` observations of each side; a
    fixed multiple of the noise is what makes the test invariant to scale. The t-mixture pays for
    the estimated variance: where `K r >= 1` there is no bound at all yet.

    The theory is for normal residuals of equal variance and shares that do not depend on the
    results. Variances of one's own (shrunk, with Welch's df) and shares that a policy moves are
    approximations, checked by simulation (`bench/verify_statistics.py`).

    The promise spans one growing set of blocks. Once the window slides and old blocks leave, each
    of its positions is a set of its own: a given look is then still wrong far more rarely than
    `1 - level`, but over many windows some look will be.

    Args:
        effects: Estimated with a flat prior, so that the interval covers at its level.
        arm: Index of the arm.
        level: Confidence in (0, 1) that all looks together keep.

    Returns:
        The gain, or None for the baseline itself, for an arm that is not identified, and where the
        data do not bound the effect even within a factor of 150.

    Example:
        >>> import numpy as np
        >>> from policies.estimators.effects import ArmEffects
        >>> effects = ArmEffects(np.array([0.0, -0.5]), np.diag([0.0, 0.006]),
        ...                      np.array([30.0, 58.0]), np.array([0.09, 0.09]),
        ...                      np.array([True, True]), 0)
        >>> gain = gain_of(effects, 1)
        >>> round(gain.value, 3), round(gain.low, 3), round(gain.high, 3)
        (0.393, 0.222, 0.527)
    """
    if arm == effects.baseline or not effects.identified[arm]:
        return None
    variance, df = float(effects.covariance[arm, arm]), float(effects.df[arm])
    unit = float(effects.noise[arm] + effects.noise[effects.baseline])
    unit += 2.0 * effects.shared.variance * TUNED_N / TUNED_BLOCKS
    reach = anytime_reach(variance, df, unit, level)
    return None if reach is None else _gain(float(effects.mean[arm]), reach)


def anytime_reach(variance: float, df: float, unit: float, level: float = 0.95) -> float | None:
    """Half width of the confidence sequence of `gain_of` for any estimate that is a contrast.

    Args:
        variance: Of the estimate.
        df: Degrees of freedom of the noise behind it.
        unit: Variance of the contrast if each of its sides had one observation.
        level: Confidence in (0, 1) that all looks together keep.

    Returns:
        The half width, or None where it would be above 5 (a factor of 150).

    Example:
        >>> round(anytime_reach(0.006, 58.0, 0.18), 3)
        0.249
    """
    wanted = -2.0 * math.log(1.0 - level)
    tau_sq = unit * (wanted + math.log1p(wanted)) / TUNED_N
    log_r = -math.log1p(tau_sq / variance)
    log_k = (wanted - log_r) / (df + 1.0)
    if log_k + log_r >= 0.0:
        return None
    reach = math.sqrt(variance * df * math.expm1(log_k) / -math.expm1(log_k + log_r))
    return reach if reach <= _MOST_REACH else None


def fixed_sample_gain(effects: ArmEffects, arm: int, level: float = 0.95) -> Gain | None:
    """Gain of an arm with its t-interval, which holds at one look chosen before the data came.

    For checks of the model. What people look at repeatedly is `gain_of`.

    Args:
        effects: Estimated with a flat prior.
        arm: Index of the arm.
        level: Confidence in (0, 1).

    Returns:
        The gain, or None for the baseline itself and for an arm that is not identified.

    Example:
        >>> import numpy as np
        >>> from policies.estimators.effects import ArmEffects
        >>> effects = ArmEffects(np.array([0.0, -0.5]), np.diag([0.0, 0.006]),
        ...                      np.array([30.0, 58.0]), np.array([0.09, 0.09]),
        ...                      np.array([True, True]), 0)
        >>> gain = fixed_sample_gain(effects, 1)
        >>> round(gain.value, 3), round(gain.low, 3), round(gain.high, 3)
        (0.393, 0.292, 0.481)
    """
    if arm == effects.baseline or not effects.identified[arm]:
        return None
    sd = math.sqrt(float(effects.covariance[arm, arm]))
    reach = sd * student_t_quantile((1.0 + level) / 2.0, float(effects.df[arm]))
    return _gain(float(effects.mean[arm]), reach)


def _gain(delta: float, reach: float) -> Gain:
    return Gain(*(-math.expm1(min(d, _MOST_LOG)) for d in (delta, delta + reach, delta - reach)))


@dataclass(frozen=True, slots=True)
class Ended:
    """How requests of an arm ended; those whose clients left are neither.

    Attributes:
        served: Requests that ended well.
        failed: Requests that failed.
    """

    served: int = 0
    failed: int = 0


def fails_more(arm: Ended, baseline: Ended, margin: float = FAILURE_MARGIN) -> bool:
    """Whether an arm surely fails more often than the baseline, by more than a margin, all in all.

    Of requests of different times: where there are some of the same time, `ended.excess` compares
    those. Both shares have Wilson's bounds (1927, Journal of the American Statistical Association
    22).

    Args:
        arm: How its requests ended.
        baseline: The same of the baseline's.
        margin: Share that is borne.

    Example:
        >>> fails_more(Ended(50, 450), Ended(500, 0)), fails_more(Ended(95, 5), Ended(100, 0))
        (True, False)
    """
    low, _ = _share(arm)
    _, high = _share(baseline)
    return low > high + margin


def _share(ended: Ended) -> tuple[float, float]:
    """Bounds of the share that failed."""
    n, z = ended.served + ended.failed, SURE_Z
    if ended.served < 0 or ended.failed < 0 or not n:
        return 0.0, 1.0
    p = ended.failed / n
    centre, reach = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre - reach) / (1 + z * z / n), (centre + reach) / (1 + z * z / n)


def verdict(
    gain: Gain | None,
    *,
    n_arm: float,
    n_baseline: float,
    tails: Sequence[TailRatio | None] = (),
    failing: bool = False,
    abandoned: bool = False,
    limit: float = TAIL_LIMIT,
    margin: float = MARGIN,
) -> Verdict:
    """Judge an arm against the baseline. The baseline itself has no verdict: do not ask for one.

    A gain is net: its lower bound is above 0, and no tail is known to be broken.

    Args:
        gain: Gain of the arm; None when it could not be estimated.
        n_arm: Observations of the arm.
        n_baseline: Observations of the baseline.
        tails: Tail ratios that must not be broken (TTFT, TPOT); None is unknown.
        failing: Whether the arm fails more often than can be borne (`ended.excess`): those it
            served say nothing about the others, so it is a loss however fast they were.
        abandoned: Whether the arm's answers are abandoned more often than can be borne: they took
            at least as long as somebody had waited for them, and nobody knows how much longer. So
            what was measured is too good: a loss is one all the more, and all else is not known.
        limit: A tail whose lower bound is above it is a loss, whatever the mean says.
        margin: Half width of what counts as no difference.

    Returns:
        Loss before gain before no difference; a bound that decides nothing, or fewer than `MIN_N`
        observations on a side, is not enough data.

    Example:
        >>> str(verdict(Gain(0.4, 0.3, 0.5), n_arm=50, n_baseline=50))
        'gain'
        >>> str(verdict(Gain(0.4, 0.3, 0.5), n_arm=50, n_baseline=50,
        ...             tails=[TailRatio(1.5, 1.2, None)]))
        'loss'
        >>> str(verdict(Gain(0.4, 0.3, 0.5), n_arm=50, n_baseline=50, abandoned=True))
        'not enough data'
        >>> str(verdict(Gain(0.01, -0.02, 0.04), n_arm=50, n_baseline=50))
        'no difference'
    """
    if failing:
        return Verdict.LOSS
    if gain is None or not min(n_arm, n_baseline) >= MIN_N:
        return Verdict.NOT_ENOUGH_DATA
    broken = any(tail is not None and tail.low is not None and tail.low > limit for tail in tails)
    if broken or gain.high < 0.0:
        return Verdict.LOSS
    if gain.low > 0.0 and not abandoned:
        return Verdict.GAIN
    if gain.low >= -margin and gain.high <= margin and not abandoned:
        return Verdict.NO_DIFFERENCE
    return Verdict.NOT_ENOUGH_DATA
