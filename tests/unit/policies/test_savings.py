"""Time saved, added up over classes and arms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.estimators.effects import arm_effects
from policies.estimators.savings import ClassTimes, saved
from policies.estimators.shared import Shared
from policies.estimators.verdict import gain_of
from policies.types import Arm, ArmId, ArmView, ClassId

ARMS = (
    Arm(ArmId("plain"), "none", baseline=True),
    Arm(ArmId("fast"), "eagle3", 3),
    Arm(ArmId("slow"), "ngram", 3),
)


def times(
    n: tuple[float, float, float],
    level: tuple[float, float, float] = (0.0, -0.5, 0.3),
    tokens: float = 100.0,
) -> ClassTimes:
    """A class whose answers take a second each on the baseline, with some noise."""
    counts, mean = np.array([n]), np.array([level])
    sums = counts * mean, counts * (mean**2 + 0.09)
    view = ArmView(ClassId("chat"), ARMS, counts, *sums, np.zeros(3), np.zeros(3))
    answers = counts[0]
    return ClassTimes(arm_effects(view), answers * np.exp(mean[0]), answers, answers * tokens)


def test_of_one_arm_the_share_is_its_gain() -> None:
    """With the same interval, so that no two pages contradict each other."""
    of = times((200.0, 300.0, 0.0))
    found, gain = saved([of]), gain_of(of.effects, 1)
    assert found is not None
    assert found.gain is not None
    assert gain is not None
    assert (found.gain.value, found.gain.low, found.gain.high) == pytest.approx(
        (gain.value, gain.low, gain.high)
    )
    assert found.seconds is not None
    assert found.seconds.value == pytest.approx(300.0 * (1.0 - np.exp(-0.5)))


def test_losses_count_against_it() -> None:
    """Two arms and two classes, each with what it saved or lost."""
    found = saved([times((500.0, 500.0, 500.0)), times((500.0, 0.0, 500.0))])
    assert found is not None
    assert found.seconds is not None
    expected = 500.0 * (1.0 - np.exp(-0.5)) - 2 * 500.0 * (np.exp(0.3) - 1.0)
    assert found.seconds.value == pytest.approx(expected, abs=0.2)
    assert found.seconds.low < expected < found.seconds.high
    assert found.answers == 1500


def test_what_has_no_control_is_in_no_figure() -> None:
    """It is counted, so that nobody takes the figure for all there was."""
    found = saved([times((0.0, 700.0, 0.0)), times((200.0, 300.0, 0.0))])
    alone = saved([times((200.0, 300.0, 0.0))])
    assert found is not None
    assert alone is not None
    assert (found.seconds, found.answers, found.not_compared) == (alone.seconds, 300, 700)
    assert saved([times((0.0, 700.0, 0.0))]) is None
    assert saved([]) is None


def test_what_answers_of_a_moment_share_does_not_average_out() -> None:
    """Ten classes of a pool have its moments in common; noise of their own they have not."""
    one = times((2000.0, 3000.0, 0.0))
    own = np.diag([0.0, 1e-6, 0.0])
    moved = replace(one.effects, own=own, covariance=own + np.diag([0.0, 0.004, 0.0]))
    moved = replace(moved, shared=Shared(0.002, 60.0))
    alone, ten = (saved([replace(one, effects=moved)] * count) for count in (1, 10))
    assert alone is not None
    assert alone.gain is not None
    assert ten is not None
    assert ten.gain is not None
    width = alone.gain.high - alone.gain.low
    assert ten.gain.high - ten.gain.low == pytest.approx(width, rel=0.25)


def test_speed_is_known_where_all_answers_told_their_tokens() -> None:
    """Tokens per second of answering, more than the baseline would have made."""
    told, silent = times((200.0, 300.0, 0.0)), times((200.0, 300.0, 0.0), tokens=np.nan)
    found = saved([told])
    assert found is not None
    assert found.tokens_per_s is not None
    assert found.tokens_per_s.value == pytest.approx(100.0 * (np.exp(0.5) - 1.0))
    with_silent = saved([told, silent])
    assert with_silent is not None
    assert with_silent.tokens_per_s is None


def test_a_handful_of_answers_bounds_nothing() -> None:
    """Then there is no figure either."""
    found = saved([times((1.0, 1.0, 0.0))])
    assert found is not None
    assert (found.seconds, found.gain, found.answers) == (None, None, 1)


def test_many_small_parts_save_nothing_by_noise() -> None:
    """Each has a handful of answers, so what its baseline would have taken is often far too much."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(200):
        parts = []
        for _ in range(40):
            n = np.array([[2.0, 20.0, 0.0]])
            y = [0.4 * rng.standard_normal(int(many)) for many in n[0]]
            sums = (np.array([[of.sum() for of in y]]), np.array([[(of**2).sum() for of in y]]))
            view = ArmView(ClassId("chat"), ARMS, n, *sums, np.zeros(3), np.zeros(3))
            took = np.array([np.exp(of).sum() for of in y])
            parts.append(ClassTimes(arm_effects(view), took, n[0], n[0]))
        told = saved(parts)
        assert told is not None
        assert told.gain is not None
        found.append(told.gain.value)
    assert np.mean(found) == pytest.approx(0.0, abs=0.01)
