"""Verdicts that are looked at all the time: seldom false, soon there.

The small form of `bench/verify_statistics.py`, whose world and measures it uses. Seeds are fixed, so
every figure is reproducible; each tolerance says what it allows for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.verify_statistics import (
    EFFECTS,
    SAME,
    World,
    coverage,
    false_verdicts,
    first_verdict,
    learning,
)
from policies.estimators.effects import arm_effects
from policies.estimators.verdict import Verdict, fixed_sample_gain, gain_of


@pytest.mark.parametrize(
    ("world", "seeds"),
    [(SAME, 60), (replace(SAME, sd=(0.15, 0.6, 0.3)), 30), (replace(SAME, thompson=True), 25)],
    ids=["uniform", "unequal noise", "thompson"],
)
def test_where_no_arm_differs_few_are_ever_judged(world: World, seeds: int) -> None:
    """Of two arms and 200 looks, at most 5 % of arms ever show a gain or a loss.

    The arms of a seed share a baseline, so a seed counts once: two standard errors,
    2 sqrt(0.05 * 0.95 / seeds), are allowed above 5 %: 5.6, 8.0 and 8.7 points. The interval for
    one look is far outside: see below.
    """
    ever = false_verdicts(world, seeds).any(axis=2)
    assert ever.mean() <= 0.05 + 2 * (0.05 * 0.95 / seeds) ** 0.5


def test_the_interval_of_one_look_would_break_the_promise() -> None:
    """The same measure sees what it is for: over 20 % of arms, where 400 seeds gave about 40 %."""
    shown = false_verdicts(SAME, 12, fixed_sample_gain, arm_effects)
    assert shown.any(axis=2).mean() > 0.2


def test_what_answers_of_one_moment_share_is_no_finding() -> None:
    """Arms that do not differ, whose servers are some 5 % apart in each block of two minutes.

    At most 5 % of arms are ever judged, and two standard errors, 2 sqrt(0.05 * 0.95 / 60).
    """
    world = replace(SAME, shared=0.05)
    assert false_verdicts(world, 60).any(axis=2).mean() <= 0.05 + 0.056


def test_taken_as_independent_they_would_be_one() -> None:
    """The same measure: over 20 % of arms at 10 %, where 100 seeds gave 70 %."""
    shown = false_verdicts(replace(SAME, shared=0.1), 12, gain_of, arm_effects)
    assert shown.any(axis=2).mean() > 0.2


def test_the_truth_is_inside_whatever_they_share() -> None:
    """Arms that differ: 95 % are covered at all 100 looks, less two standard errors of 40 seeds."""
    held = coverage(World(((1000, EFFECTS),), shared=0.1), 40)
    assert held.always.mean() >= 0.95 - 0.069


@pytest.mark.parametrize("thompson", [False, True])
def test_the_truth_is_inside_at_every_look(*, thompson: bool) -> None:
    """Of arms that differ, at least 95 % are covered at all 30 looks, less two standard errors.

    Three arms of a seed share a baseline, so a seed counts once: 60 seeds, 5.6 points.
    """
    held = coverage(World(((300, EFFECTS),), thompson=thompson), 60)
    assert held.always.mean() >= 0.95 - 0.056
    assert (held.always <= held.last).all()


def test_a_large_effect_is_shown_soon() -> None:
    """An effect of -0.4 at noise 0.3 is a gain by 60 observations a side in 90 % of seeds or more.

    They are those of one block, of which nobody knows yet what its answers share.
    """
    first = first_verdict(World(((150, (0.0, -0.4)),)), 100)
    soon = [
        word is Verdict.GAIN and n <= 60
        for word, n in zip(first.word, first.n.tolist(), strict=True)
    ]
    assert np.mean(soon) >= 0.9


def test_no_difference_follows_the_same_sequence() -> None:
    """Less noisy arms (0.1) that do not differ are said not to within 2,400 requests.

    That takes some ten blocks, until what their answers share is known to be little; a gain or a
    loss before that may come in 5 % of seeds, 3 of 20 at two standard errors.
    """
    first = first_verdict(World(((2400, (0.0, 0.0)),), sd=0.1), 20)
    assert first.word.count(Verdict.NO_DIFFERENCE) >= 17
    assert np.median(first.n) >= 80


def test_learning_finds_the_best_arm_of_the_last_phase() -> None:
    """The measure itself: half the traffic within 300 requests of a change, most of it later."""
    world = World(((200, EFFECTS), (600, (0.0, -0.5, 0.1, -0.15))), thompson=True, half_life_s=150)
    found = learning(world, 5)
    assert np.allclose(found.shares.sum(axis=1), 1.0)
    assert found.shares[:, 1].mean() > 0.8
    assert np.median(found.took) <= 300
