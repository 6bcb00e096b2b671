"""How long a store is waited for."""

from __future__ import annotations

from router.stores.patience import MOST, Patience


def test_a_store_that_takes_longer_than_its_limit_is_answered_in_the_end() -> None:
    """However much longer, up to the most: calls that nobody waits for keep it from answering."""
    takes_s, patience, calls = 5.0, Patience(1.0), 0
    while patience.limit_s < takes_s:
        patience.silent()
        calls += 1
    patience.answered(takes_s)
    assert (calls, patience.limit_s > takes_s) == (3, True)


def test_a_store_that_is_quick_again_is_waited_for_as_before() -> None:
    """So that one that dies is soon noticed."""
    patience = Patience(1.0)
    for _ in range(3):
        patience.silent()
    patience.answered(0.01)
    assert patience.limit_s == 1.0


def test_silence_has_an_end() -> None:
    """A connection may have died without a word."""
    patience = Patience(0.5)
    for _ in range(20):
        patience.silent()
    assert patience.limit_s == 0.5 * MOST
