"""Verdicts: intervals, tails and the order of rules."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.tails import TailRatio
from policies.estimators.verdict import (
    TUNED_N,
    Ended,
    Gain,
    Verdict,
    fails_more,
    fixed_sample_gain,
    gain_of,
    verdict,
)
from policies.types import ArmView, ClassId


def effects_of(
    mean: float, sd: float, df: float, *, noise: float = 0.09, identified: bool = True
) -> ArmEffects:
    """Effects of a baseline and one arm."""
    return ArmEffects(
        np.array([0.0, mean]),
        np.diag([0.0, sd**2]),
        np.array([df, df]),
        np.array([noise, noise]),
        np.array([True, identified]),
        0,
    )


def even(n: float, *, mean: float = 0.0, noise: float = 0.09) -> ArmEffects:
    """Effects known from n observations of each side, and their degrees of freedom."""
    return effects_of(mean, math.sqrt(2 * noise / n), 2 * n - 2, noise=noise)


def reach_of(gain: Gain | None) -> float:
    """Half the width of an interval on the log scale."""
    assert gain is not None
    return (math.log1p(-gain.low) - math.log1p(-gain.high)) / 2


def log_mixture_ratio(effects: ArmEffects, tau_sq: float, truth: float) -> float:
    """Log likelihood ratio of `N(truth, tau_sq)` against `truth`, by brute force.

    The estimate and the sum of squares are integrated over a grid of the standardised effect and of
    the noise with density 1 / sigma; tau_sq is in units of the noise.
    """
    delta, df = effects.mean[1] - truth, effects.df[1]
    c = effects.covariance[1, 1] / effects.noise[1]
    sigma = np.geomspace(0.02, 4.0, 1500)[:, None]
    x = np.linspace(-6, 6, 1501)[None, :] * math.sqrt(tau_sq)
    squares = df * effects.noise[1]
    log_sigma = -(df + 1) * np.log(sigma) - squares / (2 * sigma**2)
    prior = np.exp(-(x**2) / (2 * tau_sq)) / math.sqrt(2 * math.pi * tau_sq) * (x[0, 1] - x[0, 0])
    alternative = np.exp(log_sigma - (delta - sigma * x) ** 2 / (2 * sigma**2 * c)) * prior
    null = np.exp(log_sigma - delta**2 / (2 * sigma**2 * c))
    return float(np.log(alternative.sum() / null.sum()))


@pytest.mark.parametrize("n", [12, 60])
def test_bounds_are_where_the_mixture_is_twenty_times_as_likely(n: int) -> None:
    """The definition of the interval, integrated numerically: ln 20 at either bound."""
    effects = even(n, mean=-0.2)
    gain = gain_of(effects, 1)
    assert gain is not None
    wanted = 2 * math.log(20)
    tau_sq = 2 * (wanted + math.log1p(wanted)) / TUNED_N
    for bound in (gain.low, gain.high):
        ratio = log_mixture_ratio(effects, tau_sq, math.log1p(-bound))
        assert ratio == pytest.approx(math.log(20), abs=1e-4)


def test_with_known_variance_it_is_the_normal_mixture() -> None:
    """Howard et al. 2021: reach^2 = V (1 + 1/q) (ln(1 + q) + 2 ln 20), q = tau^2 / V."""
    wanted = 2 * math.log(20)
    q = wanted + math.log1p(wanted)  # at TUNED_N
    expected = math.sqrt((1 + 1 / q) * (math.log1p(q) + wanted)) * math.sqrt(2 * 0.09 / TUNED_N)
    gain = gain_of(effects_of(-0.5, math.sqrt(2 * 0.09 / TUNED_N), 1e9), 1)
    assert gain is not None
    assert gain.value == pytest.approx(1 - math.exp(-0.5))
    assert gain.low == pytest.approx(1 - math.exp(-0.5 + expected), abs=1e-6)
    assert gain.high == pytest.approx(1 - math.exp(-0.5 - expected), abs=1e-6)


@pytest.mark.parametrize(("n", "most"), [(10, 2.4), (20, 1.9), (60, 1.65), (500, 1.7), (5000, 2)])
def test_what_holding_at_every_look_costs(n: int, most: float) -> None:
    """Width against the t-interval of the same data: between half as wide again and twice."""
    ratio = reach_of(gain_of(even(n), 1)) / reach_of(fixed_sample_gain(even(n), 1))
    assert 1.5 < ratio < most


def test_the_interval_follows_the_scale_of_the_noise() -> None:
    """Ten times the noise, ten times the reach, at any noise."""
    small, large = gain_of(even(30, noise=0.0009), 1), gain_of(even(30, noise=0.09), 1)
    assert reach_of(large) == pytest.approx(10 * reach_of(small))


@pytest.mark.parametrize("interval_of", [gain_of, fixed_sample_gain])
def test_a_higher_level_is_wider(
    interval_of: Callable[[ArmEffects, int, float], Gain | None],
) -> None:
    """Intervals of rising level contain each other."""
    reaches = [reach_of(interval_of(even(40), 1, level)) for level in (0.8, 0.95, 0.99, 0.999)]
    assert reaches == sorted(reaches)


def test_a_gain_of_one_look_has_the_t_interval() -> None:
    """Delta -0.5 +- 2.2281 * 0.1 at 10 degrees of freedom, through 1 - exp."""
    gain = fixed_sample_gain(effects_of(-0.5, 0.1, 10.0), 1)
    assert gain is not None
    assert gain.value == pytest.approx(1 - math.exp(-0.5))
    assert gain.low == pytest.approx(1 - math.exp(-0.5 + 0.22281), abs=1e-5)
    assert gain.high == pytest.approx(1 - math.exp(-0.5 - 0.22281), abs=1e-5)


def test_a_slower_arm_has_a_negative_gain() -> None:
    """A loss is a gain below 0, not its absolute value."""
    gain = gain_of(even(200, mean=0.5), 1)
    assert gain is not None
    assert gain.low < gain.value < gain.high < 0


@pytest.mark.parametrize("n", [1.5, 2, 3])
def test_a_handful_of_observations_bounds_nothing(n: float) -> None:
    """With an estimated variance there is no interval for all looks yet: None, not a huge one."""
    assert gain_of(even(n), 1) is None
    assert gain_of(effects_of(0.0, 1e4, 400.0), 1) is None


def test_a_wild_interval_of_one_look_stays_finite() -> None:
    """An arm known by almost nothing has a useless but finite t-interval."""
    gain = fixed_sample_gain(effects_of(0.0, 1e4, 4.0), 1)
    assert gain is not None
    assert math.isfinite(gain.low)


def test_no_gain_for_the_baseline_or_an_unidentified_arm() -> None:
    """None, never 0."""
    empty = arm_effects(ArmView.empty(ClassId("chat"), example_arms(2)))
    for interval_of in (gain_of, fixed_sample_gain):
        assert interval_of(effects_of(-0.5, 0.1, 10.0), 0) is None
        assert interval_of(effects_of(-0.5, 0.1, 10.0, identified=False), 1) is None
        assert interval_of(empty, 1) is None


def test_the_gain_of_a_view() -> None:
    """From sums to a verdict in one go."""
    effects = arm_effects(example_view(example_arms(3), [0.0, -0.5, 0.4]))
    gains = [gain_of(effects, arm) for arm in (1, 2)]
    words = [verdict(gain, n_arm=80, n_baseline=80) for gain in gains]
    assert words == [Verdict.GAIN, Verdict.LOSS]


FAST, SLOW = Gain(0.3, 0.2, 0.4), Gain(-0.3, -0.4, -0.2)
SAME, WIDE = Gain(0.0, -0.04, 0.04), Gain(0.1, -0.1, 0.3)
BROKEN, HARMLESS, UNSURE = (
    TailRatio(1.5, 1.2, 1.9),
    TailRatio(1.0, 0.9, 1.05),
    TailRatio(1.5, 1.05, None),
)


@pytest.mark.parametrize(
    ("gain", "tails", "expected"),
    [
        (FAST, [], Verdict.GAIN),
        (FAST, [None], Verdict.GAIN),
        (FAST, [HARMLESS, UNSURE], Verdict.GAIN),
        (FAST, [TailRatio(1.5, None, None)], Verdict.GAIN),
        (FAST, [HARMLESS, BROKEN], Verdict.LOSS),
        (SLOW, [HARMLESS], Verdict.LOSS),
        (SAME, [HARMLESS], Verdict.NO_DIFFERENCE),
        (SAME, [BROKEN], Verdict.LOSS),
        (WIDE, [], Verdict.NOT_ENOUGH_DATA),
        (Gain(0.02, 0.01, 0.03), [], Verdict.GAIN),
        (Gain(-0.02, -0.03, -0.01), [], Verdict.LOSS),
        (None, [HARMLESS], Verdict.NOT_ENOUGH_DATA),
    ],
)
def test_rules_in_their_order(
    gain: Gain | None, tails: list[TailRatio | None], expected: Verdict
) -> None:
    """Loss before gain before no difference; an unknown tail does not stand in the way."""
    assert expected is verdict(gain, n_arm=50, n_baseline=50, tails=tails)


@pytest.mark.parametrize(("n_arm", "n_baseline"), [(4, 50), (50, 4), (4.9, 4.9), (math.nan, 50)])
def test_a_handful_of_observations_is_not_enough(n_arm: float, n_baseline: float) -> None:
    """Neither side may be judged from fewer than five."""
    assert verdict(FAST, n_arm=n_arm, n_baseline=n_baseline) is Verdict.NOT_ENOUGH_DATA


def test_limits_are_parameters() -> None:
    """The operator's limits decide, the defaults are only defaults."""
    assert verdict(FAST, n_arm=50, n_baseline=50, tails=[BROKEN], limit=1.3) is Verdict.GAIN
    assert verdict(WIDE, n_arm=50, n_baseline=50, margin=0.3) is Verdict.NO_DIFFERENCE


def test_the_words_users_see() -> None:
    """The closed vocabulary of every display."""
    assert [str(word) for word in Verdict] == ["gain", "loss", "no difference", "not enough data"]


@pytest.mark.parametrize(
    ("arm", "baseline", "expected"),
    [
        (Ended(50, 450), Ended(500, 0), True),
        (Ended(0, 30), Ended(30, 0), True),
        (Ended(940, 60), Ended(1000, 0), True),
        (Ended(3, 2), Ended(50, 0), False),
        (Ended(990, 10), Ended(1000, 0), False),
        (Ended(50, 450), Ended(50, 450), False),
        (Ended(0, 500), Ended(), False),
        (Ended(), Ended(500, 0), False),
        (Ended(-5, 500), Ended(500, 0), False),
    ],
)
def test_an_arm_fails_more_only_where_that_is_sure(
    arm: Ended, baseline: Ended, *, expected: bool
) -> None:
    """Few requests, few failures, and a baseline that fails alike or is unknown prove nothing."""
    assert fails_more(arm, baseline) is expected


def test_an_arm_that_fails_is_a_loss_however_fast_it_is() -> None:
    """With a gain among those it served, and without any."""
    fast = Gain(0.4, 0.3, 0.5)
    assert verdict(fast, n_arm=50, n_baseline=50, failing=True) is Verdict.LOSS
    assert verdict(None, n_arm=0, n_baseline=50, failing=True) is Verdict.LOSS


@pytest.mark.parametrize(
    ("gain", "tails", "expected"),
    [
        (Gain(0.4, 0.3, 0.5), [], Verdict.NOT_ENOUGH_DATA),
        (Gain(0.01, -0.02, 0.04), [], Verdict.NOT_ENOUGH_DATA),
        (Gain(-0.4, -0.5, -0.3), [], Verdict.LOSS),
        (Gain(0.4, 0.3, 0.5), [BROKEN], Verdict.LOSS),
    ],
)
def test_what_is_left_after_slow_answers_were_abandoned_can_only_be_a_loss(
    gain: Gain, tails: list[TailRatio | None], expected: Verdict
) -> None:
    """Those that are missing would make it slower yet."""
    assert verdict(gain, n_arm=50, n_baseline=50, tails=tails, abandoned=True) is expected
