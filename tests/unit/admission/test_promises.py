"""Who was told to come back, and comes."""

from __future__ import annotations

import pytest

from router.admission.promises import KEPT_S, MOST, RESERVED_S, Promises, Told, name_of
from router.types import TenantId

ACME = TenantId("acme")


def test_a_request_is_known_by_its_body_and_its_tenant() -> None:
    """However long it is, and whichever part of its ends differs."""
    long = b"x" * 100_000
    names = {
        name_of(ACME, long),
        name_of(ACME, long + b"x"),
        name_of(ACME, b"y" + long[1:]),
        name_of(ACME, long[1:] + b"y"),
        name_of(TenantId("other"), long),
    }
    assert len(names) == 5
    assert name_of(ACME, long) in names


def test_a_promise_holds_once_from_its_time_on_and_for_a_while() -> None:
    """Not before, and not for whoever stays away."""
    promises = Promises()
    assert promises.give("a", 10.0)
    assert promises.give("b", 5.0)
    assert not promises.redeem("a", 9.9)
    assert promises.redeem("a", 10.5)
    assert not promises.redeem("a", 10.5)
    promises.forget(5.0 + KEPT_S + 0.1)
    assert not promises.redeem("b", 5.0 + KEPT_S + 0.1)
    assert len(promises) == 0


def test_room_is_set_aside_for_who_is_likely_to_come() -> None:
    """For a moment after the time; the less the more stay away."""
    promises = Promises()
    for name in "abcd":
        promises.give(name, 10.0)
    promises.give("late", 20.0)
    assert promises.waiting(9.0) == (0.0, 5.0)
    assert promises.waiting(10.0) == (4.0, 5.0)
    assert promises.waiting(10.0 + RESERVED_S + 0.1) == (0.0, 1.0)
    for number in range(300):
        promises.give(f"n{number}", 30.0)
    promises.forget(40.0)
    promises.give("one", 50.0)
    assert promises.waiting(50.0)[0] == pytest.approx(0.0, abs=0.1)


def test_promises_are_bounded() -> None:
    """In all, and of requests that are alike."""
    promises = Promises()
    assert sum(promises.give("same", float(n)) for n in range(100)) == 8
    assert sum(promises.give(f"n{n}", 1.0) for n in range(MOST + 100)) == MOST - 8


def test_what_others_have_promised_holds_here() -> None:
    """At its time; what was given here is told once."""
    told = Told()
    told.note(7.0, "mine")
    assert list(told.given()) == [(7.0, "mine")]
    assert list(told.given()) == []
    told.learn({"theirs": [5.0]})
    assert [told.elsewhere("theirs", now) for now in (4.9, 5.0, 5.0 + KEPT_S, 9.0)] == [
        False,
        True,
        True,
        False,
    ]
    assert not told.elsewhere("mine", 7.0)
