"""Decisions as they are told, and the past of routes."""

from __future__ import annotations

from policies.types import Status
from router.dashboard.answers import decisions_json, newest
from router.observe.decision_log import DecisionLog, decision_record
from tests.support.builders import context, decision, outcome


def log_of(*walls: float) -> DecisionLog:
    """A log without a file that took a request at each of these times."""
    log = DecisionLog(None)
    for wall in walls:
        log.append(decision_record(context(), decision(), outcome(Status.OK), wall=wall))
    return log


def test_the_newest_come_first_and_no_more_than_asked() -> None:
    """Of three, the last two."""
    found = decisions_json(log_of(1.0, 2.0, 3.0).recent, None, 2)
    assert [of["time"] for of in found] == [3.0, 2.0]


def test_one_is_found_by_its_request() -> None:
    """Its id, or nothing."""
    log = log_of(1.0)
    name = log.recent[0].request_id
    assert len(decisions_json(log.recent, name, 1)) == 1
    assert decisions_json(log.recent, "other", 1) == []


def test_a_log_that_takes_anothers_place_remembers() -> None:
    """A reload that names another file forgets no decision."""
    before = log_of(1.0)
    assert len(DecisionLog(None, before).recent) == 1


def test_several_processes_are_told_as_one() -> None:
    """By time, whichever worker served."""
    one, other = [{"time": 1.0}, {"time": 0.5}], [{"time": 0.7}]
    assert [of["time"] for of in newest([one, other], 2)] == [1.0, 0.7]
