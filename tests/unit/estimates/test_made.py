"""When tokens were made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.estimates.layout import SLOT_S, slot_at
from router.estimates.made import Made, spread

TIMES = st.floats(1_800_000_000.0, 1_800_000_600.0)


@given(st.integers(0, 10_000_000), TIMES, st.floats(0.0, 900.0))
def test_tokens_are_whole_and_their_sum_exact(tokens: int, first_s: float, lasts_s: float) -> None:
    """In every slot from the first to the last, each once."""
    made = spread(Made(tokens, first_s, first_s + lasts_s))
    slots = [slot for slot, _ in made]
    assert slots == list(range(slot_at(first_s), slot_at(first_s + lasts_s) + 1))
    assert sum(n for _, n in made) == tokens
    assert all(n >= 0 for _, n in made)


@given(st.integers(1, 100_000), TIMES, st.floats(1.0, 300.0))
def test_tokens_come_evenly(tokens: int, first_s: float, lasts_s: float) -> None:
    """A slot has its share of the time, to a token."""
    last_s = first_s + lasts_s
    for slot, n in spread(Made(tokens, first_s, last_s)):
        shared = min(last_s, (slot + 1) * SLOT_S) - max(first_s, slot * SLOT_S)
        assert abs(n - tokens * shared / lasts_s) <= 1.001


@given(st.integers(0, 1000), TIMES, st.floats(0.0, 100.0))
def test_where_the_end_is_not_after_the_beginning_all_is_made_there(
    tokens: int, last_s: float, early_s: float
) -> None:
    """An engine that counts at the end, or a clock that was set back."""
    [*_, (slot, n)] = spread(Made(tokens, last_s + early_s, last_s))
    assert (slot, n) == (slot_at(last_s), tokens)
