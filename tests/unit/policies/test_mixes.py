"""Whether two arms answered the same mix."""

from __future__ import annotations

import numpy as np
import pytest

from policies.estimators.mixes import MIX_LIMIT, alike, mix_distance


@pytest.mark.parametrize("parts", [2, 5, 40])
@pytest.mark.parametrize("n", [(2, 30), (20, 20)])
def test_chance_alone_is_seldom_a_difference(parts: int, n: tuple[int, int]) -> None:
    """However many parts there are, and however few answers a block has."""
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(parts))
    found = [
        mix_distance(*(rng.multinomial(rng.poisson(many, 30), shares).astype(float) for many in n))
        for _ in range(400)
    ]
    assert np.mean(np.array(found) > MIX_LIMIT) < 0.1


def test_of_many_answers_it_is_the_distance() -> None:
    """Half the sum of how far shares differ."""
    arm, baseline = np.array([[8e6, 1e6, 1e6]]), np.array([[5e6, 3e6, 2e6]])
    assert mix_distance(arm, baseline) == pytest.approx(0.3, abs=1e-3)
    assert mix_distance(baseline, arm) == pytest.approx(0.3, abs=1e-3)


def test_mixes_are_those_of_the_same_time() -> None:
    """A busy hour of one application makes no mix unlike: shares are the same in each block."""
    answers = np.array([[[9e4, 9e3], [1e4, 1e3]], [[1e3, 1e4], [9e3, 9e4]]])
    assert alike(answers, 0).all()
    assert not alike(answers.sum(axis=0, keepdims=True), 0)[1]


def test_who_never_met_the_baseline_has_no_mix_to_compare() -> None:
    """Nor has it a tail ratio."""
    answers = np.array([[[5.0, 0.0], [5.0, 0.0]], [[0.0, 9.0], [0.0, 0.0]]])
    assert mix_distance(answers[:, :, 1], answers[:, :, 0]) == 0.0
    assert alike(np.zeros((0, 3, 2)), 0).all()
    assert alike(np.zeros((2, 0, 2)), 0).all()
