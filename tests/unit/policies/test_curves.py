"""Curves over load: found from sums, shared by arms, sane where nothing was measured."""

from __future__ import annotations

import numpy as np
import pytest

from policies.curves import GRID, fit_curves, grid_index
from policies.knowledge import BUCKETS, Ratios
from policies.types import FloatArray

LOADS = np.array([1, 2, 3, 6, 12, 20, 28, 40, 56, 80, 120], dtype=np.float64)


def sums(values: FloatArray, n: FloatArray | float) -> Ratios:
    """Requests whose quantity is these values, with a spread of a tenth."""
    counts = np.broadcast_to(np.asarray(n, dtype=np.float64), values.shape).copy()
    return Ratios(counts, counts * LOADS, counts * values, counts * values**2 * 1.01)


def draws(given: Ratios, **more: FloatArray) -> FloatArray:
    """Draws with the first arm as the baseline."""
    found = fit_curves(
        given, 0, more.get("ratios"), 1000, np.random.default_rng(0), start=0.02,
        tokens=more.get("tokens"),
    )  # fmt: skip
    return found.values


def test_a_curve_that_was_measured_is_found() -> None:
    """With plenty of requests the curve is within a tenth of the truth at every load."""
    truth = np.stack([0.005 + 2e-5 * LOADS, 0.008 + 1e-4 * LOADS])
    values = draws(sums(truth, 400.0)).mean(axis=2)
    at = [grid_index(int(load)) for load in LOADS]
    assert np.abs(values[:, at] / truth - 1.0).max() < 0.1


def test_an_arm_that_was_not_measured_follows_the_others_and_its_prior() -> None:
    """What all arms share is learned from any; the ratio is the published one, and uncertain."""
    truth = np.stack([0.005 + 2e-5 * LOADS, np.ones(BUCKETS)])
    n = np.stack([np.full(BUCKETS, 400.0), np.zeros(BUCKETS)])
    values = draws(sums(truth, n), ratios=np.array([np.nan, 1.5]))
    ratio = values[1, 0] / values[0, 0].mean()
    assert 1.3 < ratio.mean() < 1.75
    assert ratio.std() > 0.2


def test_many_tokens_in_a_step_bend_the_curve_sooner() -> None:
    """An arm that verifies four tokens for each request is dearer under load, all else unknown."""
    values = draws(Ratios.none(2), tokens=np.array([1.0, 4.0])).mean(axis=2)
    growth = values[:, grid_index(64)] / values[:, 0]
    assert growth[1] > 1.15 * growth[0]


def test_curves_never_fall() -> None:
    """A step does not get shorter with more requests in it, whatever noise says."""
    noisy = 0.01 * np.exp(np.random.default_rng(1).normal(0.0, 0.3, (3, BUCKETS)))
    assert (np.diff(draws(sums(noisy, 3.0)), axis=1) >= 0.0).all()


@pytest.mark.parametrize("absurd", [np.nan, np.inf, -1.0, 0.0, 1e308])
def test_absurd_sums_are_as_none(absurd: float) -> None:
    """Nothing that cannot be true moves a curve or makes it anything but a number."""
    truth = np.stack([0.005 + 2e-5 * LOADS, 0.008 + 1e-4 * LOADS])
    given = sums(truth, 40.0)
    given.total[1] = absurd
    values = draws(given)
    assert np.isfinite(values).all()
    assert (values > 0.0).all()


@pytest.mark.parametrize(("load", "index"), [(0, 0), (1, 0), (2, 4), (1 << 20, len(GRID) - 1)])
def test_any_load_has_a_place_on_the_grid(load: int, index: int) -> None:
    """Loads beyond the grid take its end."""
    assert index == grid_index(load)
