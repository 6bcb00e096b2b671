"""A jump in a cell's series is found, and where."""

from __future__ import annotations

import numpy as np

from policies.estimators.series import BlockSum
from router.estimates.detector import find_shift


def series(
    means: list[float], *, n: float = 60.0, sd: float = 0.3, first: int = 500
) -> list[BlockSum]:
    """Blocks of so many observations around these means."""
    rng = np.random.default_rng(3)
    made = []
    for index, mean in enumerate(means):
        seen = float(mean + sd / np.sqrt(n) * rng.standard_normal())
        made.append(BlockSum(first + index, n, n * seen, n * (seen * seen + sd * sd)))
    return made


def test_a_calm_series_has_no_jump() -> None:
    """However long it is."""
    assert find_shift(series([2.8] * 40)) is None


def test_a_jump_is_told_by_the_number_of_its_block() -> None:
    """With the means of both sides."""
    found = find_shift(series([2.8] * 30 + [2.0] * 5))
    assert found is not None
    assert abs(found.block - 530) <= 1
    assert (round(found.before, 1), round(found.after, 1)) == (2.8, 2.0)


def test_blocks_without_observations_are_passed_over() -> None:
    """Empty and absurd ones."""
    calm = series([2.8] * 25)
    assert find_shift([*calm, BlockSum(525, 0.0, 0.0, 0.0)]) is None
    assert find_shift([]) is None
