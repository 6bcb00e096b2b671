"""How long busy servers rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.fleet.cooling import Cooling, CoolingLimits

LIMITS = CoolingLimits()


def test_it_lasts_as_long_as_the_engine_asks_up_to_a_cap() -> None:
    """And a short while where it does not say."""
    for asked, until in ((None, 101.0), (5.0, 105.0), (3600.0, 130.0), (-5.0, 100.0)):
        cooling = Cooling(LIMITS)
        cooling.busy(100.0, asked)
        assert cooling.until == until


def test_an_answer_ends_our_guess_and_not_what_was_asked_for() -> None:
    """A server that takes requests again is not left idle for longer."""
    cooling = Cooling(LIMITS)
    cooling.busy(100.0, None)
    cooling.answered()
    assert cooling.until == 0.0
    cooling.busy(100.0, 5.0)
    cooling.answered()
    assert cooling.until == 105.0


@given(st.lists(st.tuples(st.floats(0, 50), st.none() | st.floats(0, 1e9)), min_size=1))
def test_a_deadline_never_comes_earlier(told: list[tuple[float, float | None]]) -> None:
    """Whatever is said later; and it is never further away than the cap."""
    cooling, now, before = Cooling(LIMITS), 0.0, 0.0
    for passed, asked in told:
        now += passed
        cooling.busy(now, asked)
        assert before <= cooling.until <= now + LIMITS.cap_s
        before = cooling.until
