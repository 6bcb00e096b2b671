"""Cells as series of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from policies.estimators.series import BlockSum, cost_series, steps_series, together
from policies.estimators.tau import StepSums


def test_tau_of_all_blocks_is_the_mean_of_the_series() -> None:
    """And the spread of a block is that of its requests around it."""
    rng = np.random.default_rng(2)
    blocks = []
    for number, tau in ((4, 2.0), (5, 3.0)):
        steps = rng.integers(20, 200, 50)
        tokens = np.round(steps * tau * rng.normal(1.0, 0.1, 50)).astype(int)
        squares = [
            int((a * b).sum()) for a, b in ((tokens, tokens), (tokens, steps), (steps, steps))
        ]
        blocks.append((number, StepSums(50, int(tokens.sum()), int(steps.sum()), *squares)))
    series = steps_series(blocks)
    assert [one.block for one in series] == [4, 5]
    n, total = (sum(getattr(one, name) for one in series) for name in ("n", "total"))
    tokens_per_step = sum(s.tokens for _, s in blocks) / sum(s.steps for _, s in blocks)
    assert n / total == pytest.approx(tokens_per_step)
    assert series[0].total / series[0].n > series[1].total / series[1].n
    for one in series:
        assert one.total_sq / one.n > (one.total / one.n) ** 2


def test_blocks_far_apart_keep_their_own_tau() -> None:
    """Answers are as long as before, whatever became of their drafts."""
    good, bad = StepSums(10, 1000, 200, 100_000, 20_000, 4000), StepSums(10, 1000, 800)
    before, after = steps_series([(1, good), (2, bad)])
    assert before.n / before.total == pytest.approx(5.0)
    assert after.n / after.total == pytest.approx(1.25)


def test_a_jump_of_all_shows_in_all_together_and_a_mix_does_not() -> None:
    """Classes with levels of their own, of which one comes more often later."""
    low = [BlockSum(1, 10.0, 10.0, 10.0), BlockSum(2, 30.0, 30.0, 30.0)]
    high = [BlockSum(1, 30.0, 90.0, 270.0), BlockSum(2, 10.0, 30.0, 90.0)]
    first, second = together([low, high])
    assert first.total / first.n == pytest.approx(second.total / second.n)
    assert first.total_sq / first.n - (first.total / first.n) ** 2 == pytest.approx(0.0)
    moved = [
        [BlockSum(1, 10.0, 10.0 * of, 0.0), BlockSum(2, 10.0, 10.0 * of + 5.0, 0.0)]
        for of in (1, 3)
    ]
    first, second = together(moved)
    assert second.total / second.n - first.total / first.n == pytest.approx(0.5)
    assert together([]) == ()


def test_no_steps_are_no_series() -> None:
    """Nor are sums that cannot be true."""
    assert steps_series([(1, StepSums()), (2, StepSums(1, 5, 9))]) == ()


def test_cost_is_compared_inside_strata() -> None:
    """Whatever the level of a stratum; those that only one arm has say nothing."""
    levels = [(0.0, 9.0), (5.0, 9.0), (1.0, 9.0)]
    rows = []
    for level, _ in levels:
        n, y = np.array([20.0, 20.0]), np.array([level, level - 0.5])
        rows.append(np.stack([n, n * y, n * (y * y + 0.09)]))
    rows[2][:, 1] = 0.0
    found = cost_series(
        np.stack(rows), np.array([7, 7, 8]), np.array([0.09, 0.09]), arm=1, baseline=0
    )
    [one] = found
    assert one.block == 7
    assert one.n == pytest.approx(40.0)
    assert one.total / one.n == pytest.approx(-0.5)
    assert one.total_sq / one.n - (one.total / one.n) ** 2 == pytest.approx(0.18)


def test_rows_of_no_block_are_left_out() -> None:
    """Groups without data have one."""
    row = np.ones((1, 3, 2))
    assert cost_series(row, np.array([-1]), np.ones(2), arm=1, baseline=0) == ()
