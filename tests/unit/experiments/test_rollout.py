"""The life of an experiment: what moves it, and what cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from policies.types import ArmId
from router.experiments.model import (
    Experiment,
    ExperimentName,
    Guard,
    GuardKind,
    Plan,
    Stage,
    Standing,
    Status,
    Treatment,
)
from router.experiments.rollout import (
    Event,
    Evidence,
    Looked,
    Paused,
    Ramped,
    Reading,
    Resumed,
    Started,
    Stopped,
    TransitionError,
    moved,
)

STAGES = (Stage(0.05, 100.0, 50), Stage(0.5, 100.0, 50), Stage(1.0, 100.0, 50))
ERRORS = Guard(GuardKind.ERRORS, 0.01)
PLAN = Plan(ExperimentName("try"), "m", "why", Treatment(off=True), stages=STAGES, guards=(ERRORS,))


def at(status: Status, stage: int = 0) -> Experiment:
    """The experiment somewhere in its life; its stage began at 1000."""
    begun = None if status is Status.DRAFT else 1000.0
    return Experiment(PLAN, Standing(status, stage, begun, began=begun))


def look(at_s: float = 1100.0, **more: Any) -> Looked:
    """A look at evidence that is good in all respects, but for what is given."""
    given: dict[str, Any] = {"control": 50, "treatment": 50, "gain": (0.2, 0.1, 0.3), "guards": ()}
    return Looked(at_s, Evidence(**{**given, **more}))


def test_the_whole_way() -> None:
    """Start, three stages, done; each move leaves one line of audit that says who and why."""
    experiment, lines = moved(at(Status.DRAFT), Started(1000.0, "ops"))
    assert (experiment.standing.status, experiment.share) == (Status.RUNNING, 0.05)
    for share, when in ((0.5, 1100.0), (1.0, 1200.0)):
        experiment, more = moved(experiment, look(when))
        lines = (*lines, *more)
        assert experiment.share == share
    experiment, more = moved(experiment, look(1300.0, control=0))
    lines = (*lines, *more)
    assert (experiment.standing.status, experiment.share) == (Status.DONE, 1.0)
    assert [(line.who, line.what) for line in lines] == [
        ("ops", "started"),
        ("ramp", "ramped"),
        ("ramp", "ramped"),
        ("ramp", "done"),
    ]
    assert all(one.after == other.before for one, other in pairwise(lines))


@pytest.mark.parametrize(
    "short",
    [look(1099.0), look(control=49), look(treatment=49)],
    ids=["time", "control", "treatment"],
)
def test_a_stage_needs_its_time_and_its_requests(short: Looked) -> None:
    """Anything short of that changes nothing."""
    before = at(Status.RUNNING)
    assert moved(before, short) == (before, ())


@pytest.mark.parametrize("status", [Status.RUNNING, Status.DONE])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"guards": (Reading(ERRORS, 0.2, 0.05, 0.4),)}, "error_rate is above 0.01"),
        ({"gain": (-0.1, -0.2, -0.01)}, "slower"),
    ],
)
def test_harm_ends_it(status: Status, bad: dict[str, Any], words: str) -> None:
    """In any stage, before its time is over, and also when all stages are complete."""
    after, (line,) = moved(at(status, 1), look(1001.0, **bad))
    assert (after.standing.status, after.share) == (Status.ROLLED_BACK, 0.0)
    assert words in line.why
    assert line.evidence is not None
    assert line.who == "guard"


@pytest.mark.parametrize(
    "fine",
    [
        {"guards": (Reading(ERRORS, 0.2, 0.01, 0.4),)},
        {"guards": (Reading(ERRORS, None, None, None),)},
        {"gain": (-0.1, -0.2, 0.0)},
        {"gain": None},
    ],
)
def test_what_is_not_sure_ends_nothing(fine: dict[str, Any]) -> None:
    """A bound at the limit, or no bound, is no breach."""
    after, _ = moved(at(Status.RUNNING), look(1001.0, **fine))
    assert after.standing.status is Status.RUNNING


def test_a_split_that_is_off_pauses() -> None:
    """Nothing can be said then, neither good nor bad; harm comes first."""
    after, (line,) = moved(at(Status.RUNNING), look(ratio_alarm=True))
    assert (after.standing.status, line.what) == (Status.PAUSED, "paused")
    worse = look(ratio_alarm=True, gain=(-0.5, -0.6, -0.4))
    assert moved(at(Status.RUNNING), worse)[0].standing.status is Status.ROLLED_BACK


def test_a_pause_keeps_the_stage_and_its_time_begins_anew() -> None:
    """What was before the pause may have been another world, and another epoch."""
    paused, _ = moved(at(Status.RUNNING, 1), Paused(1050.0, "ops", "release"))
    assert (paused.share, paused.standing.why) == (0.0, "release")
    resumed, _ = moved(paused, Resumed(2000.0, "ops"))
    assert resumed.standing == Standing(Status.RUNNING, 1, 2000.0, "resumed", 1, 1000.0)


def test_people_may_ramp_up_and_down() -> None:
    """To a stage that there is."""
    up, _ = moved(at(Status.RUNNING), Ramped(1010.0, "ops", 2))
    assert up.share == 1.0
    down, _ = moved(up, Ramped(1020.0, "ops", 0))
    assert down.share == 0.05
    with pytest.raises(TransitionError, match="no stage 3; stages are 0 to 2"):
        moved(up, Ramped(1030.0, "ops", 3))


ORDERS: tuple[Event, ...] = (
    Started(1.0, "ops"),
    Paused(1.0, "ops"),
    Resumed(1.0, "ops"),
    Ramped(1.0, "ops", 1),
    Stopped(1.0, "ops"),
)
POSSIBLE = {
    (Status.DRAFT, Started),
    (Status.DRAFT, Stopped),
    (Status.RUNNING, Paused),
    (Status.RUNNING, Ramped),
    (Status.RUNNING, Stopped),
    (Status.DONE, Paused),
    (Status.DONE, Ramped),
    (Status.DONE, Stopped),
    (Status.PAUSED, Resumed),
    (Status.PAUSED, Stopped),
}


@pytest.mark.parametrize(("status", "order"), list(product(Status, ORDERS)))
def test_every_order_in_every_state(status: Status, order: Event) -> None:
    """It is carried out, or refused with what would be possible; nothing in between."""
    if (status, type(order)) in POSSIBLE:
        after, (line,) = moved(at(status), order)
        assert after.standing != at(status).standing
        assert (line.before, line.after) == (at(status).standing, after.standing)
    else:
        with pytest.raises(TransitionError, match="possible: "):
            moved(at(status), order)


@pytest.mark.parametrize("status", [Status.DRAFT, Status.PAUSED, Status.ROLLED_BACK])
def test_looking_moves_nothing_that_does_not_run(status: Status) -> None:
    """However bad it looks."""
    before = at(status)
    assert moved(before, look(gain=(-0.5, -0.6, -0.4))) == (before, ())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"stages": ()}, "one at least"),
        ({"stages": (Stage(0.5), Stage(0.1))}, "must not fall"),
        ({"control": Treatment(off=True)}, "the same"),
        ({"layer_range": (0.5, 0.5)}, "within"),
        ({"guards": (ERRORS, ERRORS)}, "one of each kind"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    """When it is written, not when it runs."""
    with pytest.raises(ValueError, match=words):
        replace(PLAN, **wrong)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Treatment, "one of arm, policy, off and default"),
        (lambda: Treatment(arm=ArmId("a"), off=True), "one of arm"),
        (lambda: Treatment(off=True, parameters=(("floor", 0.1),)), "belong to a policy"),
        (lambda: Guard(GuardKind.TPOT_P95, 0.9), "ratio of at least 1"),
        (lambda: Guard(GuardKind.ERRORS, 1.5), "share within"),
        (lambda: Stage(0.0), "share must be within"),
        (lambda: Stage(0.5, dwell_s=math.inf), "must be finite"),
        (lambda: Stage(0.5, dwell_s=math.nan), "must be finite"),
    ],
)
def test_parts_of_a_plan_that_cannot_be_are_refused(make: Any, words: str) -> None:
    """With what would be right."""
    with pytest.raises(ValueError, match=words):
        make()
