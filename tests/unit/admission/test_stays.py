"""How long requests stay, of late; and advice within bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission.stays import LONGEST_S, SHORTEST_S, Stays, advised


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [(-3.0, 1), (0.0, 1), (0.2, 1), (1.0, 1), (1.01, 2), (59.5, 60), (1e9, 60)],
)
def test_advice_is_whole_seconds_never_early_and_bounded(seconds: float, whole: int) -> None:
    """Rounded up, from one second to a minute."""
    assert advised(seconds) == whole


def test_advice_for_never_is_the_longest() -> None:
    """Also when nothing finite can be said."""
    assert (SHORTEST_S, LONGEST_S) == (1, 60)
    assert advised(math.inf) == LONGEST_S


def test_the_first_stays_are_averaged_and_then_the_old_ones_fade() -> None:
    """What is assumed before any has ended does not linger."""
    stays = Stays(0.0, 5.0)
    assert stays.mean_s(0.0) == 5.0
    for stay in (1.0, 2.0, 3.0):
        stays.saw(stay, 1.0)
    assert stays.mean_s(1.0) == pytest.approx(2.0)
    for _ in range(400):
        stays.saw(10.0, 1.0)
    assert stays.mean_s(1.0) == pytest.approx(10.0, rel=0.01)


def test_silence_counts_as_a_long_stay() -> None:
    """While none ends, they stay at least for that long."""
    stays = Stays(0.0)
    stays.saw(0.5, 1.0)
    assert [stays.mean_s(now) for now in (1.0, 1.4, 31.0)] == [0.5, 0.5, 30.0]


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), max_size=30))
def test_a_mean_is_always_a_number_above_zero(events: list[tuple[float, float]]) -> None:
    """So that it may be divided by."""
    stays = Stays(0.0)
    for now, stay in sorted(events):
        stays.saw(stay, now)
        assert 0 < stays.mean_s(now) < math.inf
