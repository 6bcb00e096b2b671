"""The breaker as a state machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fleet.breaker import Breaker, BreakerLimits, BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
LIMITS = BreakerLimits()


def opened(limits: BreakerLimits = LIMITS, now: float = 0.0) -> Breaker:
    """A breaker that has just opened."""
    breaker = Breaker(limits)
    assert [breaker.failed(now) for _ in range(limits.failures)][-1]
    return breaker


def test_failures_in_a_row_open_it() -> None:
    """A success in between begins the row anew."""
    breaker = Breaker(BreakerLimits(least_requests=100))
    for _ in range(5):
        assert not breaker.failed(0.0)
        assert not breaker.failed(0.0)
        breaker.succeeded(0.0)
    assert breaker.state is CLOSED
    assert [breaker.failed(0.0) for _ in range(3)] == [False, False, True]
    assert (breaker.state, breaker.allows(0.0), breaker.open_until) == (OPEN, False, 1.0)


def test_a_share_of_failures_over_the_window_opens_it() -> None:
    """From as many requests on as make a share."""
    breaker = Breaker(LIMITS)
    for _ in range(4):
        assert not breaker.failed(0.0)
        breaker.succeeded(0.0)
    assert not breaker.failed(0.0)
    breaker.succeeded(0.0)
    assert breaker.failed(0.0)


def test_the_window_forgets() -> None:
    """What is older counts no more."""
    breaker = Breaker(LIMITS)
    for second in range(0, 300, 3):
        for _ in range(2):
            assert not breaker.failed(float(second))
        for _ in range(6):
            breaker.succeeded(float(second))
    breaker = Breaker(LIMITS)
    for _ in range(9):
        breaker.succeeded(0.0)
        breaker.succeeded(0.0)
    assert [breaker.failed(40.0) for _ in range(2)] == [False, False]
    breaker.succeeded(40.0)
    assert [breaker.failed(40.0) for _ in range(2)] == [False, False]


def test_open_time_doubles_up_to_the_cap() -> None:
    """And begins anew after a window of health."""
    limits = BreakerLimits(open_cap_s=10.0)
    breaker, now, times = opened(limits), 0.0, []
    for _ in range(6):
        times.append(breaker.open_until - now)
        now = breaker.open_until
        assert breaker.begin_probe(now) is not None
        assert breaker.failed(now)
    assert times == [1, 2, 4, 8, 10, 10]
    now = breaker.open_until
    breaker.begin_probe(now)
    assert breaker.succeeded(now)
    for later, expected in ((1.0, 10.0), (100.0, 1.0)):
        for _ in range(3):
            breaker.failed(now + later)
        assert breaker.open_until == now + later + expected
        breaker.close(now)


def test_while_open_nothing_that_comes_in_late_counts() -> None:
    """Those requests are older than what opened it."""
    breaker = opened()
    assert not breaker.succeeded(0.5)
    assert not breaker.failed(0.5)
    assert (breaker.state, breaker.open_until) == (OPEN, 1.0)


def test_half_open_lets_a_few_probes_through() -> None:
    """As many must succeed in a row; a place is given back with or without a result."""
    breaker = opened(BreakerLimits(probes=2))
    first = breaker.begin_probe(1.0)
    second = breaker.begin_probe(1.0)
    assert first == second == breaker.epoch
    assert breaker.begin_probe(1.0) is None
    assert not breaker.allows(1.0)
    assert not breaker.succeeded(1.0)
    breaker.end_probe(breaker.epoch)
    assert breaker.begin_probe(1.0) is not None
    assert breaker.succeeded(1.0)
    assert breaker.state is CLOSED


def test_a_place_of_an_earlier_time_is_not_given_back_twice() -> None:
    """A slow probe that outlives its epoch leaves the next one alone."""
    breaker = opened()
    slow = breaker.begin_probe(1.0)
    assert slow is not None
    breaker.failed(1.0)
    assert breaker.begin_probe(3.0) is not None
    breaker.end_probe(slow)
    assert breaker.begin_probe(3.0) is None


def test_it_can_be_opened_for_longer() -> None:
    """By somebody who knows more."""
    breaker = Breaker(LIMITS)
    breaker.open(10.0, 30.0)
    assert (breaker.allows(39.9), breaker.allows(40.0)) == (False, True)


@pytest.mark.parametrize("probes", [1, 3])
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(("succeed", "fail", "begin", "end", "wait")),
            st.floats(0, 100, allow_nan=False),
        ),
        max_size=60,
    )
)
def test_every_state_leads_to_closed(probes: int, events: list[tuple[str, float]]) -> None:
    """Whatever happened: a bounded time later probes pass, and their success closes it."""
    limits = BreakerLimits(probes=probes, open_cap_s=20.0)
    breaker, now, places = Breaker(limits), 0.0, []
    for event, value in events:
        before = breaker.state
        if event == "wait":
            now += value
        elif event == "succeed":
            breaker.succeeded(now)
        elif event == "fail":
            breaker.failed(now)
            assert before is not HALF_OPEN or breaker.state is OPEN
        elif event == "begin":
            epoch = breaker.begin_probe(now)
            if epoch is not None:
                places.append(epoch)
        elif places:
            breaker.end_probe(places.pop())
        live = [epoch for epoch in places if epoch == breaker.epoch]
        assert len(live) <= probes
        assert breaker.allows(now) == (
            breaker.state is CLOSED
            or (breaker.state is OPEN and now >= breaker.open_until)
            or (breaker.state is HALF_OPEN and len(live) < probes)
        )
        if breaker.state is OPEN:
            assert breaker.open_until <= now + limits.open_cap_s
            assert event != "succeed" or before is OPEN
    for epoch in places:
        breaker.end_probe(epoch)
    now += limits.open_cap_s
    for _ in range(probes):
        if breaker.state is CLOSED:
            break
        epoch = breaker.begin_probe(now)
        assert epoch is not None
        breaker.succeeded(now)
        breaker.end_probe(epoch)
    assert breaker.state is CLOSED
