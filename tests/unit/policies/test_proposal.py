"""Masks, floors and draws keep a PMF a PMF."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.proposal import draw, masked, with_floor

FINITE = st.lists(st.floats(0, 1), min_size=1, max_size=8)
ANYTHING = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8)


@given(ANYTHING, st.data())
def test_masked_is_always_a_pmf_on_the_eligible_arms(
    values: list[float], data: st.DataObject
) -> None:
    """Whatever comes in, what goes out sums to 1, is 0 where not eligible, and never NaN."""
    eligible = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    )
    eligible[data.draw(st.integers(0, len(values) - 1))] = True
    p = masked(np.array(values), eligible, data.draw(st.integers(0, len(values) - 1)))
    assert abs(p.sum() - 1.0) < 1e-12
    assert (p >= 0).all()
    assert not p[~eligible].any()


def test_masked_keeps_the_ratios_of_eligible_arms() -> None:
    """Masking renormalises and changes nothing else."""
    p = masked(np.array([0.5, 0.3, 0.2]), np.array([False, True, True]), 0)
    assert np.allclose(p, [0.0, 0.6, 0.4])


@pytest.mark.parametrize(
    ("fallback", "expected"), [(2, [0.0, 0.0, 1.0]), (0, [0.0, 1.0, 0.0])], ids=["eligible", "not"]
)
def test_masked_without_mass_falls_back(fallback: int, expected: list[float]) -> None:
    """No mass left: the baseline gets it if eligible, else the first eligible arm."""
    p = masked(np.array([1.0, 0.0, 0.0]), np.array([False, True, True]), fallback)
    assert expected == p.tolist()


def test_masked_refuses_when_nothing_is_eligible() -> None:
    """Choosing among nothing is the caller's refusal to make."""
    with pytest.raises(ValueError, match="no arm is eligible"):
        masked(np.array([1.0]), np.array([False]), 0)


@given(FINITE, st.floats(0, 1))
def test_floor_is_kept_exactly(values: list[float], share: float) -> None:
    """Every arm gets at least the floor, without tolerance, and the sum stays 1."""
    p = masked(np.array(values), np.ones(len(values), dtype=np.bool_), 0)
    floor = share / len(values)
    lifted = with_floor(p, floor)
    assert (lifted >= floor).all()
    assert abs(lifted.sum() - 1.0) < 1e-12


@pytest.mark.parametrize("floor", [-0.01, 0.51, float("nan")])
def test_floor_outside_its_range_is_refused(floor: float) -> None:
    """A floor that leaves a negative rest names the allowed range."""
    with pytest.raises(ValueError, match=r"floor must be within 0\.\.0\.5 for 2 arms"):
        with_floor(np.array([0.5, 0.5]), floor)


@given(FINITE, st.floats(0, 1, exclude_max=True))
def test_draw_never_answers_an_impossible_arm(values: list[float], u: float) -> None:
    """An arm with probability 0 is never drawn, whatever the rounding."""
    p = masked(np.array(values), np.ones(len(values), dtype=np.bool_), 0)
    assert p[draw(p, u)] > 0.0


def test_draw_at_the_end_answers_the_last_possible_arm() -> None:
    """U = 1, which rounding may produce, stays within the arms that are possible."""
    assert draw(np.array([0.5, 0.5, 0.0]), 1.0) == 1


def test_draw_follows_the_pmf() -> None:
    """Frequencies over an even grid of u are the probabilities, to the grid's resolution."""
    p = np.array([0.2, 0.0, 0.5, 0.3])
    drawn = [draw(p, (i + 0.5) / 1000) for i in range(1000)]
    assert np.bincount(drawn, minlength=4).tolist() == [200, 0, 500, 300]
