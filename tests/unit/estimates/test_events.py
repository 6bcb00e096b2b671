"""Events: one for each thing found, for as long as it stands."""

from __future__ import annotations

from dataclasses import replace

from policies.estimators.pooling import Difference
from router.estimates.events import DRIFT, MAX_EVENTS, SEGMENT_DIFFERS, Change, Event, Events
from router.types import POOLED, SegmentId
from tests.support.builders import CHAT, FAST

DIFFERENCE = Difference(-0.5, -0.6, -0.4)
FOUND = Event(5.0, SEGMENT_DIFFERS, CHAT, SegmentId("a"), FAST, DIFFERENCE, 0.99)
DRIFTED = Event(9.0, DRIFT, CHAT, POOLED, FAST, change=Change("tau", 3.0, 2.5, 1.5))


def test_what_is_known_keeps_the_time_it_was_found() -> None:
    """However often it is found again."""
    events = Events()
    events.note(FOUND)
    events.note(replace(FOUND, wall=6.0))
    assert events.newest() == (FOUND,)


def test_a_later_drift_takes_the_place_of_the_one_before() -> None:
    """The same drift, found again, does not; nor does one of another figure."""
    events = Events()
    events.note(DRIFTED)
    events.note(replace(DRIFTED, wall=10.0))
    cost = replace(DRIFTED, change=Change("cost", 3.0, 0.0, 0.5))
    events.note(cost)
    assert events.newest() == (DRIFTED, cost)
    later = replace(DRIFTED, wall=20.0, change=Change("tau", 15.0, 1.5, 2.0))
    events.note(later)
    assert events.newest() == (cost, later)


def test_what_does_not_stand_is_forgotten() -> None:
    """It is new when it is found again."""
    events = Events()
    events.note(FOUND)
    events.keep(lambda event: event.kind == DRIFT)
    assert events.newest() == ()
    again = replace(FOUND, wall=7.0)
    events.note(again)
    assert events.newest() == (again,)


def test_only_the_newest_are_shown() -> None:
    """All of them are known."""
    events = Events()
    for number in range(MAX_EVENTS + 9):
        events.note(replace(FOUND, part=SegmentId(f"s{number}")))
    shown = events.newest()
    assert len(shown) == MAX_EVENTS
    assert shown[-1].part == f"s{MAX_EVENTS + 8}"
