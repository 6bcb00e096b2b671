"""Linear Thompson sampling finds class, arm and load in the means of cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.checks import example_arms
from policies.context_checks import example_knowledge, example_moment
from policies.linear import BAND_LOADS, LinearPolicy
from policies.types import ClassId, FloatArray

ARMS = example_arms(3)
CHAT, MATH = ClassId("chat"), ClassId("math")


def costs(effects: list[float], slopes: list[float], n: float = 200.0) -> FloatArray:
    """Cells in which arms differ by an effect and by what a doubling of load adds."""
    y = np.array(effects)[:, None] + np.array(slopes)[:, None] * np.log2(BAND_LOADS)
    return np.stack([np.full(y.shape, n), n * y, n * (y**2 + 0.04)])


def shares(by_class: dict[ClassId, FloatArray], class_id: ClassId, load: int = 1) -> FloatArray:
    """Probabilities at a load that all servers have."""
    known = replace(example_knowledge(ARMS, [0.0, 0.0, 0.0]), costs=by_class)
    plan = LinearPolicy().prepare(known, np.random.default_rng(0))
    return plan.propose(replace(example_moment(ARMS, class_id), load=(load,) * 3)).probabilities


def test_each_class_has_its_own_best_arm() -> None:
    """Interactions of class and arm are learned."""
    by_class = {CHAT: costs([0.0, -0.5, 0.0], [0.1] * 3), MATH: costs([0.0, 0.0, -0.5], [0.1] * 3)}
    assert shares(by_class, CHAT)[1] > 0.9
    assert shares(by_class, MATH)[2] > 0.9


def test_load_decides_where_arms_differ_in_it() -> None:
    """An arm that is best alone and worst in a crowd is chosen so."""
    by_class = {CHAT: costs([0.0, -0.6, 0.5], [0.02, 0.3, 0.02])}
    assert shares(by_class, CHAT, load=1)[1] > 0.9
    assert shares(by_class, CHAT, load=80)[0] > 0.9


def test_a_class_nothing_is_known_of_follows_the_arms() -> None:
    """What arms have in common over classes is expected of a new one, with doubt."""
    by_class = {name: costs([0.0, -0.5, 0.1], [0.1] * 3) for name in (CHAT, MATH)}
    p = shares(by_class, ClassId("new"))
    assert p[1] == p.max()
    assert p[1] < 0.98
