"""The interval of the time saved holds it, at every look of a day, in worlds of several classes.

A day is 12 hours with a level each that comes and goes, 3 classes and 3 arms with effects of their
own, and 40 requests a class and hour in the mean, split as a policy might. The interval has to hold
what the same answers would have taken on the baseline, at all 12 looks together.
"""

from __future__ import annotations

import numpy as np

from policies.checks import example_arms
from policies.estimators.effects import arm_effects
from policies.estimators.savings import ClassTimes, saved
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(3)
BASE = next(index for index, arm in enumerate(ARMS) if arm.baseline)
WORLDS, HOURS, CLASSES, REQUESTS, NOISE_SD = 300, 12, 3, 40, 0.35


def looks(rng: np.random.Generator) -> list[bool | None]:
    """Whether the interval of each look of a day holds; None where there was none."""
    effects = rng.normal(-0.2, 0.3, (CLASSES, len(ARMS)))
    effects[:, BASE] = 0.0
    shares = rng.dirichlet(np.full(len(ARMS), 2.0), CLASSES)
    sums = np.zeros((CLASSES, HOURS, 4, len(ARMS)))
    found: list[bool | None] = []
    for hour in range(HOURS):
        for c in range(CLASSES):
            n = rng.multinomial(rng.poisson(REQUESTS), shares[c])
            level = np.sin(hour / 4.0) + 0.3 * c
            for a, many in enumerate(n):
                y = level + effects[c, a] + NOISE_SD * rng.standard_normal(many)
                sums[c, hour, :, a] = many, y.sum(), (y**2).sum(), np.exp(y).sum()
        found.append(held(sums[:, : hour + 1], effects))
    return found


def held(sums: FloatArray, effects: FloatArray) -> bool | None:
    """One look."""
    classes, truth = [], 0.0
    for c, of in enumerate(sums):
        n, total, total_sq, time_s = (of[:, figure] for figure in range(4))
        nothing = np.zeros(len(ARMS))
        view = ArmView(ClassId(f"c{c}"), ARMS, n, total, total_sq, nothing, nothing)
        spent = time_s.sum(axis=0)
        classes.append(ClassTimes(arm_effects(view), spent, n.sum(axis=0), n.sum(axis=0)))
        truth += float((spent * np.expm1(-effects[c])).sum())
    told = saved(classes)
    if told is None or told.seconds is None or told.not_compared:
        return None
    return told.seconds.low <= truth <= told.seconds.high


def test_the_interval_holds_at_all_looks_together() -> None:
    """At least 95 in 100 days; three standard errors of 300 days are 3.8 points."""
    rng = np.random.default_rng(11)
    days = [looks(rng) for _ in range(WORLDS)]
    known = [[of for of in day if of is not None] for day in days]
    assert sum(map(len, known)) > 0.9 * WORLDS * HOURS
    assert np.mean([all(day) for day in known]) >= 0.95 - 0.038
