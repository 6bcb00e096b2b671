"""Least squares from sums over stretches of time."""

from __future__ import annotations

import numpy as np
import pytest

from policies.estimators.regression import GROUPS, MIN_GROUPS, Fit, fit, with_signs
from policies.types import FloatArray


def fitted(
    x: FloatArray,
    y: FloatArray,
    *,
    apart: FloatArray | None = None,
    non_negative: tuple[int, ...] = (),
) -> Fit:
    """A fit to rows by block, shapes (blocks, rows, p) and (blocks, rows); `apart` is tested."""
    directions = np.zeros((*y.shape, 0)) if apart is None else apart[:, :, None]
    z = np.concatenate([x, directions], axis=2)
    p = x.shape[2]
    return fit(
        np.einsum("brz,brp->bzp", z, x),
        np.einsum("brz,br->bz", z, y),
        np.full(len(y), float(y.shape[1])),
        squares=(directions**2).sum(axis=1),
        penalty=1e-9 * np.eye(p),
        non_negative=non_negative,
    )


def lines(rng: np.random.Generator, blocks: int = 24, rows: int = 50) -> FloatArray:
    """Rows of 1 and a figure in [0, 1]."""
    figure = rng.random((blocks, rows))
    return np.stack([np.ones_like(figure), figure], axis=2)


def test_an_exact_line_is_found() -> None:
    """Whatever the grouping."""
    x = lines(np.random.default_rng(0))
    found = fitted(x, x @ np.array([2.0, 3.0]))
    assert found.coefficients == pytest.approx([2.0, 3.0])
    assert found.groups == GROUPS
    at = found.at(np.array([1.0, 0.5]))
    assert (at.value, at.low, at.high) == pytest.approx((3.5, 3.5, 3.5), abs=1e-6)


def test_an_interval_needs_several_stretches_of_time() -> None:
    """However many requests there are in one."""
    rng = np.random.default_rng(1)
    x = lines(rng, blocks=MIN_GROUPS - 1, rows=5000)
    found = fitted(x, x @ np.array([2.0, 3.0]) + rng.standard_normal(x.shape[:2]))
    at = found.at(np.array([1.0, 0.5]))
    assert (at.low, at.high, found.misfit) == (None, None, None)
    assert at.value == pytest.approx(3.5, abs=0.1)


def test_what_whole_blocks_have_in_common_widens_the_interval() -> None:
    """A thousand requests that are slow together are one observation, about."""
    rng = np.random.default_rng(2)
    x = lines(rng, blocks=24, rows=1000)
    y = x @ np.array([2.0, 3.0])
    noise = 0.1 * rng.standard_normal(y.shape)
    together = 0.1 * rng.standard_normal((24, 1))
    widths = []
    for shape in (noise, noise + together):
        at = fitted(x, y + shape).at(np.array([1.0, 0.5]))
        assert at.low is not None
        assert at.high is not None
        widths.append(at.high - at.low)
    assert widths[1] > 10 * widths[0]


def test_signs_are_kept_and_the_interval_is_not_cut() -> None:
    """A slope that chance made negative is 0, and 0 is in its interval."""
    rng = np.random.default_rng(3)
    x = lines(rng)
    found = fitted(
        x, x @ np.array([2.0, -0.05]) + rng.standard_normal(x.shape[:2]), non_negative=(1,)
    )
    assert found.free[1] < 0.0
    slope = found.at(np.array([0.0, 1.0]))
    assert slope.value == 0.0
    assert slope.low is not None
    assert slope.high is not None
    assert slope.low < 0.0 <= slope.high


@pytest.mark.parametrize("seed", range(8))
def test_signed_least_squares_is_the_best_of_all_sets_of_zeros(seed: int) -> None:
    """The conditions of Karush, Kuhn and Tucker hold: no step that keeps the signs is better."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((40, 7))
    total = rows.T @ rows
    target = rows.T @ (rows @ rng.standard_normal(7) + rng.standard_normal(40))
    signed = list(range(1, 7))
    found = with_signs(total, target, np.asarray(np.linalg.solve(total, target)), signed)
    gradient = total @ found - target
    assert (found[signed] >= 0.0).all()
    assert gradient[0] == pytest.approx(0.0, abs=1e-8)
    assert (gradient[signed] >= -1e-8).all()
    assert found[signed] @ gradient[signed] == pytest.approx(0.0, abs=1e-7)


def test_a_direction_that_was_left_out_is_a_misfit() -> None:
    """And one that has no effect is none; one that the model spans cannot be tested."""
    rng = np.random.default_rng(4)
    x = lines(rng)
    noise = 0.1 * rng.standard_normal(x.shape[:2])
    square = x[:, :, 1] ** 2
    straight = fitted(x, x @ np.array([2.0, 3.0]) + noise, apart=square)
    bent = fitted(x, x @ np.array([2.0, 3.0]) + square + noise, apart=square)
    assert straight.misfit is not None
    assert bent.misfit is not None
    assert straight.misfit > 0.05
    assert bent.misfit < 1e-3
    assert fitted(x, noise, apart=2.0 * x[:, :, 1]).misfit is None


def test_a_row_unlike_those_seen_is_far() -> None:
    """The distance of an ordinary row is the number of columns, on average."""
    rng = np.random.default_rng(5)
    x = lines(rng)
    found = fitted(x, x @ np.array([2.0, 3.0]))
    rows = x.reshape(-1, 2)
    assert np.mean([found.distance(row, len(rows)) for row in rows]) == pytest.approx(2.0)
    assert found.distance(np.array([1.0, 5.0]), len(rows)) > 25.0
