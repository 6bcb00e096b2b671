"""Weights by age."""

from __future__ import annotations

import math

import pytest

from policies.estimators.window import exponential_weight, rectangular_weight


@pytest.mark.parametrize(
    ("age", "half_life", "expected"),
    [
        (0, 60, 1.0),
        (60, 60, 0.5),
        (180, 60, 0.125),
        (-5, 60, 1.0),
        (math.inf, 60, 0.0),
        (9, math.inf, 1.0),
        (math.inf, math.inf, 1.0),
    ],
)
def test_exponential_weight_halves_each_half_life(
    age: float, half_life: float, expected: float
) -> None:
    """The future counts as now; an infinite half-life never forgets."""
    assert expected == exponential_weight(age, half_life)


@pytest.mark.parametrize(("age", "expected"), [(0, 1.0), (59.9, 1.0), (60, 0.0), (-1, 1.0)])
def test_rectangular_weight_is_inside_or_outside(age: float, expected: float) -> None:
    """The window is half open."""
    assert expected == rectangular_weight(age, 60)


@pytest.mark.parametrize("length", [0.0, -1.0, math.nan])
def test_a_length_must_be_above_zero(length: float) -> None:
    """A window of no length is a mistake of the caller."""
    with pytest.raises(ValueError, match="half_life_s must be above 0"):
        exponential_weight(1.0, length)
    with pytest.raises(ValueError, match="window_s must be above 0"):
        rectangular_weight(1.0, length)


def test_an_age_that_is_no_number_is_refused() -> None:
    """NaN would spread into every sum."""
    with pytest.raises(ValueError, match="age_s"):
        exponential_weight(math.nan, 1.0)
    with pytest.raises(ValueError, match="age_s"):
        rectangular_weight(math.nan, 1.0)
