"""Verdicts: intervals, tails and the order of rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.checks import example_arms, example_view
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.histogram import bucket
from policies.estimators.verdict import Gain, TailRatio, Verdict, gain_of, tail_ratio, verdict
from policies.types import ArmView, ClassId


def effects_of(mean: float, sd: float, df: float, *, identified: bool = True) -> ArmEffects:
    """Effects of a baseline and one arm."""
    return ArmEffects(
        np.array([0.0, mean]),
        np.diag([0.0, sd**2]),
        np.array([df, df]),
        np.array([True, identified]),
        0,
    )


def test_a_gain_is_the_share_of_time_saved_with_its_t_interval() -> None:
    """Delta -0.5 +- 2.2281 * 0.1 at 10 degrees of freedom, through 1 - exp."""
    gain = gain_of(effects_of(-0.5, 0.1, 10.0), 1)
    assert gain is not None
    assert gain.value == pytest.approx(1 - math.exp(-0.5))
    assert gain.low == pytest.approx(1 - math.exp(-0.5 + 0.22281), abs=1e-5)
    assert gain.high == pytest.approx(1 - math.exp(-0.5 - 0.22281), abs=1e-5)


def test_a_slower_arm_has_a_negative_gain() -> None:
    """A loss is a gain below 0, not its absolute value."""
    gain = gain_of(effects_of(0.5, 0.01, 100.0), 1)
    assert gain is not None
    assert gain.low < gain.value < gain.high < 0


def test_a_wild_interval_stays_finite() -> None:
    """An arm known by almost nothing has a useless but finite interval."""
    gain = gain_of(effects_of(0.0, 1e4, 4.0), 1)
    assert gain is not None
    assert math.isfinite(gain.low)


def test_no_gain_for_the_baseline_or_an_unidentified_arm() -> None:
    """None, never 0."""
    assert gain_of(effects_of(-0.5, 0.1, 10.0), 0) is None
    assert gain_of(effects_of(-0.5, 0.1, 10.0, identified=False), 1) is None
    assert gain_of(arm_effects(ArmView.empty(ClassId("chat"), example_arms(2))), 1) is None


def test_the_gain_of_a_view() -> None:
    """From sums to a verdict in one go."""
    effects = arm_effects(example_view(example_arms(3), [0.0, -0.5, 0.4]))
    gains = [gain_of(effects, arm) for arm in (1, 2)]
    words = [verdict(gain, n_arm=80, n_baseline=80) for gain in gains]
    assert words == [Verdict.GAIN, Verdict.LOSS]


def test_a_tail_ratio_has_the_sides_its_data_allow() -> None:
    """p99: the lower side needs the baseline's upper bound (368), the upper side the arm's."""
    many, few = {bucket(0.1): 400}, {bucket(0.2): 50}
    slow = tail_ratio(few, many)
    assert slow is not None
    assert slow.low is not None
    assert 1.8 < slow.low < slow.value == pytest.approx(2.0, rel=0.05)
    assert slow.high is None
    fast = tail_ratio(many, few)
    assert fast is not None
    assert fast.low is None
    assert fast.high is not None
    assert tail_ratio({}, many) is None
    assert tail_ratio(many, {}) is None


def test_the_tail_interval_covers_at_least_at_its_level() -> None:
    """400 pairs of log-normal samples, true ratio 1.3: at least 95 % less two errors (2.2 %).

    Conservative by construction (order statistics, bucket edges), so only one side is asserted.
    """
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        pair = []
        for scale in (1.3, 1.0):
            values = [bucket(x) for x in (scale * rng.lognormal(-3, 0.4, 600)).tolist()]
            index, count = np.unique(values, return_counts=True)
            pair.append(dict(zip(index.tolist(), count.tolist(), strict=True)))
        ratio = tail_ratio(pair[0], pair[1], 0.95)
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        hits += ratio.low <= 1.3 <= ratio.high
    assert hits / 400 >= 0.95 - 0.022


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
    """Closed vocabulary of product.md, section 5."""
    assert [str(word) for word in Verdict] == ["gain", "loss", "no difference", "not enough data"]
