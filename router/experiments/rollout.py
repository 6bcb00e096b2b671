"""The life of an experiment as a pure machine: (experiment, event) → (experiment, commands).

==============  ===================================================================================
from            what happens
==============  ===================================================================================
draft           `Started` → running, first stage
running         `Looked`: a guard is breached, or the primary metric is surely worse → rolled back;
                the sample ratio is off → paused; the stage has had its time and its requests →
                next stage, after the last one done
running, done   `Paused` → paused · `Stopped` → rolled back · `Ramped` → that stage, up or (for
                people only) down
paused          `Resumed` → running, in the same stage, whose time begins anew · `Stopped`
rolled back     nothing: a new try is a new experiment, with units drawn anew
==============  ===================================================================================

Nothing here reads a clock, a store or a request; whoever does performs the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from router.experiments.model import Experiment, Guard, Metric, Standing, Status


class TransitionError(Exception):
    """An order that does not fit where the experiment stands; the message says what would."""


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody let it begin."""

    at: float
    who: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Somebody wants nobody to be treated for a while."""

    at: float
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Somebody lets it go on."""

    at: float
    who: str


@dataclass(frozen=True, slots=True)
class Ramped:
    """Somebody moved it to a stage, without waiting for what the stage before asked."""

    at: float
    who: str
    stage: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Somebody ended it: everybody is back on the control."""

    at: float
    who: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A guard's figure at a look, with bounds that hold at all looks together."""

    guard: Guard
    value: float | None
    low: float | None
    high: float | None

    @property
    def breached(self) -> bool:
        """Whether the limit is surely passed."""
        return self.low is not None and self.low > self.guard.limit


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of an experiment in its present stage and before.

    Attributes:
        control: Requests of the control in this stage.
        treatment: Requests of the treatment in this stage.
        gain: (value, low, high) of the primary metric; None while the data do not bound it.
        guards: One reading of each guard.
        ratio_alarm: Whether the shares are not those that were planned.
        alarm: Sudden harm, in words; None while there is none.
        primary: The metric that `gain` is about.
        compared: Whether there is a control now. Without one guards read nothing, and the gain is
            that of the stages before.
    """

    control: int
    treatment: int
    gain: tuple[float, float, float] | None
    guards: Sequence[Reading]
    ratio_alarm: bool = False
    alarm: str | None = None
    primary: Metric = Metric.COST
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """Somebody looked at what was measured."""

    at: float
    evidence: Evidence


_Order = Started | Paused | Resumed | Ramped | Stopped
Event = _Order | Looked


@dataclass(frozen=True, slots=True)
class Audit:
    """Write down that it moved: who, when, why, and the statistics that were seen."""

    at: float
    who: str
    what: str
    why: str
    before: Standing
    after: Standing
    evidence: Evidence | None = None


GUARD, RAMP = "guard", "ramp"
"""Who moves it when nobody does."""


def moved(experiment: Experiment, event: Event) -> tuple[Experiment, tuple[Audit, ...]]:
    """The experiment after an event, and what there is to do.

    Returns:
        The same experiment and no command where nothing changes.

    Raises:
        TransitionError: Somebody ordered what does not fit.
    """
    if isinstance(event, Looked):
        return _looked(experiment, event)
    after = _ordered(experiment, event)
    what = type(event).__name__.lower()
    return _with(experiment, after, _Move(event.at, event.who, what))


def _ordered(experiment: Experiment, order: _Order) -> Standing:
    standing = experiment.standing
    match order:
        case Started(at=at):
            _expect(experiment, "start", Status.DRAFT)
            return _anew(replace(standing, began=at), 0, at, "started")
        case Paused(why=why):
            _expect(experiment, "pause", Status.RUNNING, Status.DONE)
            return replace(standing, status=Status.PAUSED, why=why or "paused")
        case Resumed(at=at):
            _expect(experiment, "resume", Status.PAUSED)
            return _anew(standing, standing.stage, at, "resumed")
        case Ramped(at=at, stage=stage):
            _expect(experiment, "ramp", Status.RUNNING, Status.DONE)
            if not 0 <= stage < len(experiment.plan.stages):
                last = len(experiment.plan.stages) - 1
                raise TransitionError(f"there is no stage {stage}; stages are 0 to {last}")
            return _anew(standing, stage, at, f"moved to stage {stage}")
        case Stopped(why=why):
            _expect(experiment, "stop", Status.RUNNING, Status.DONE, Status.PAUSED, Status.DRAFT)
            return replace(standing, status=Status.ROLLED_BACK, why=why or "stopped")
        case _:
            assert_never(order)


def _anew(standing: Standing, stage: int, at: float, why: str) -> Standing:
    """A new epoch: from now on with the share of a stage."""
    return replace(
        standing,
        status=Status.RUNNING,
        stage=stage,
        since=at,
        why=why,
        epoch=standing.epoch + 1,
    )


def _looked(experiment: Experiment, event: Looked) -> tuple[Experiment, tuple[Audit, ...]]:
    standing, evidence, at = experiment.standing, event.evidence, event.at
    if standing.status not in (Status.RUNNING, Status.DONE) or standing.since is None:
        return experiment, ()
    why = harm(evidence)
    if why is not None:
        after = replace(standing, status=Status.ROLLED_BACK, why=why)
        return _with(experiment, after, _Move(at, GUARD, "rolled back", evidence))
    if evidence.ratio_alarm:
        after = replace(
            standing,
            status=Status.PAUSED,
            why="requests are not split as planned, so no figure can be trusted",
        )
        return _with(experiment, after, _Move(at, GUARD, "paused", evidence))
    if standing.status is Status.DONE or not _complete(experiment, event):
        return experiment, ()
    stages = experiment.plan.stages
    if standing.stage + 1 == len(stages):
        after = replace(standing, status=Status.DONE, why="all stages are complete")
        return _with(experiment, after, _Move(at, RAMP, "done", evidence))
    after = _anew(standing, standing.stage + 1, at, "the stage before was complete")
    return _with(experiment, after, _Move(at, RAMP, "ramped", evidence))


def harm(evidence: Evidence) -> str | None:
    """Why the treatment must be left; None if it need not be."""
    if evidence.alarm is not None:
        return evidence.alarm
    for reading in evidence.guards:
        if reading.breached:
            return (
                f"{reading.guard.kind} is above {reading.guard.limit:g}: "
                f"{reading.value:.3g}, at least {reading.low:.3g}"
            )
    if evidence.gain is not None and evidence.gain[2] < 0.0:
        value, _, high = evidence.gain
        return (
            f"the treatment is slower by {evidence.primary}: gain {value:+.1%}, at most {high:+.1%}"
        )
    return None


def _complete(experiment: Experiment, event: Looked) -> bool:
    standing, evidence = experiment.standing, event.evidence
    stage = experiment.plan.stages[standing.stage]
    # With a share of 1 there is no control any more to have any requests.
    control = evidence.control if stage.share < 1.0 else stage.min_requests
    return (
        event.at - (standing.since or event.at) >= stage.dwell_s
        and min(control, evidence.treatment) >= stage.min_requests
    )


def _expect(experiment: Experiment, order: str, *allowed: Status) -> None:
    status = experiment.standing.status
    if status not in allowed:
        can = ", ".join(sorted(_ORDERS[status])) or "nothing; write a new experiment"
        raise TransitionError(
            f"experiment {experiment.plan.name!r} is {status.replace('_', ' ')} and cannot be "
            f"{_DONE_TO[order]}; possible: {can}"
        )


_DONE_TO = {
    "start": "started",
    "pause": "paused",
    "resume": "resumed",
    "ramp": "ramped",
    "stop": "stopped",
}
_ORDERS = {
    Status.DRAFT: ("start", "stop"),
    Status.RUNNING: ("pause", "ramp", "stop"),
    Status.PAUSED: ("resume", "stop"),
    Status.DONE: ("pause", "ramp", "stop"),
    Status.ROLLED_BACK: (),
}


@dataclass(frozen=True, slots=True)
class _Move:
    at: float
    who: str
    what: str
    evidence: Evidence | None = None


def _with(
    experiment: Experiment, after: Standing, move: _Move
) -> tuple[Experiment, tuple[Audit, ...]]:
    before = experiment.standing
    audit = Audit(move.at, move.who, move.what, after.why, before, after, move.evidence)
    return replace(experiment, standing=after), (audit,)
