"""Costs, and who is picked."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policies.balance import BASE, WORTH_CACHING_BYTES, cost, pick, saved

COSTS = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=12)


def test_cost_is_load_by_share_and_less_for_what_is_cached() -> None:
    """In requests, beside a few that every server counts as having."""
    assert (cost(0.0, 1.0), cost(6.0, 1.0), cost(6.0, 3.0)) == (BASE, BASE + 6, BASE + 2)
    assert cost(6.0, 1.0, saved=0.5) == (BASE + 6) / 2


def test_the_cheapest_is_picked_where_it_stands_out() -> None:
    """Whatever is drawn."""
    draws = [
        pick([9.0, 4.0, 5.0, 40.0], [1.0, 1.0, 50.0, 1.0], Random(0).random) for _ in range(50)
    ]
    assert set(draws) == {1}


def test_of_equals_each_is_picked_by_its_share() -> None:
    """A heavier one more often."""
    uniform = Random(0).random
    counted = Counter(pick([4.0] * 3, [1.0, 2.0, 1.0], uniform) for _ in range(8000))
    # Five standard errors of 8000 draws are 224 at most.
    assert [abs(counted[i] - n) < 224 for i, n in enumerate((2000, 4000, 2000))] == [True] * 3


def test_of_the_near_best_the_better_of_two_is_picked() -> None:
    """So the worst of them is never, and the others are all used."""
    uniform = Random(0).random
    counted = Counter(pick([20.0, 21.0, 22.0, 23.0], [1.0] * 4, uniform) for _ in range(4000))
    assert counted[0] > counted[1] > counted[2] > 0
    assert counted[3] == 0


@given(COSTS, st.integers(0, 2**32))
def test_nobody_far_from_the_best_is_picked(costs: list[float], seed: int) -> None:
    """And the same seed picks the same."""
    shares = [Random(seed).uniform(0.01, 5) for _ in costs]
    index = pick(costs, shares, Random(seed).random)
    assert costs[index] <= min(costs) * 1.2
    assert index == pick(costs, shares, Random(seed).random)


@given(COSTS, st.sampled_from((0.0, 0.5, 1.0 - 2**-53)))
def test_any_draw_picks_somebody(costs: list[float], drawn: float) -> None:
    """The ends of the interval too."""
    assert pick(costs, [0.1] * len(costs), lambda: drawn) in range(len(costs))


def test_a_cached_beginning_saves_by_its_share_and_less_of_a_short_prompt() -> None:
    """A short one is read again sooner than it waits for others."""
    long, short = 4 * WORTH_CACHING_BYTES, WORTH_CACHING_BYTES // 4
    assert (saved(1.0, long), saved(0.5, long), saved(1.0, short)) == (0.5, 0.25, 0.125)
    assert saved(1.0, long, affinity=0.0) == 0.0
