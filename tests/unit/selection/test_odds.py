"""What a request's arm is drawn by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.proposal import draw, masked
from policies.types import Arm, ArmId, Proposal
from router.selection.odds import Odds

NAMES = [ArmId(name) for name in ("plain", "fast", "third")]
ARMS = tuple(Arm(name, "none", baseline=name == "plain") for name in NAMES)


def odds(*p: float, without: tuple[ArmId, ...] = ()) -> Odds:
    """The odds of a proposal."""
    return Odds.of(Proposal(np.array(p), np.zeros(len(p))), ARMS, without)


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.sets(st.sampled_from(NAMES), max_size=2),
    st.floats(0, 1, exclude_max=True),
)
def test_they_are_the_policies_arithmetic(p: list[float], without: set[ArmId], u: float) -> None:
    """To the bit: the same probabilities, and the same arm for the same random number."""
    made = odds(*p, without=tuple(without))
    expected = masked(np.array(p), np.array([name not in without for name in NAMES]), 0)
    assert list(made.probabilities.items()) == list(zip(NAMES, expected.tolist(), strict=True))
    assert made.at(u) == NAMES[draw(expected, u)]


def test_they_hold_plain_numbers() -> None:
    """What is logged and compared for each request is no array."""
    made = odds(0.25, 0.0, 0.75)
    assert {type(p) for p in (*made.probabilities.values(), *made.cumulative)} == {float}
    assert made.arms == (NAMES[0], NAMES[2])


def test_rounding_at_the_end_never_leaves_the_arms() -> None:
    """The largest random number there is draws the last arm that can be drawn."""
    made = odds(1 / 3, 2 / 3, 0.0)
    assert made.at(np.nextafter(1.0, 0.0)) == NAMES[1]
    assert made.at(1.0) == NAMES[1]


def test_no_arm_left_is_an_error() -> None:
    """The mask always leaves one; whoever breaks that hears of it."""
    with pytest.raises(ValueError, match="no arm is eligible"):
        odds(0.2, 0.3, 0.5, without=tuple(NAMES))
