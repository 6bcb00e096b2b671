"""The experiment that `verify_experiments` runs again and again, and when it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policies.types import ClassId
from router.experiments.model import (
    Experiment,
    ExperimentName,
    Plan,
    Stage,
    Standing,
    Status,
    Treatment,
    Unit,
)
from router.experiments.seen import CONTROL, TREATED

SD: Final = 0.3
LEVEL_SD: Final = 0.2
PER_SECOND: Final = 10
"""Requests; half of them are treated, which makes 50 in a slot."""

HOUR: Final = 3600
SECONDS: Final = 6 * HOUR
CHAT: Final = ClassId("chat")
GROWTH: Final = 1.1
"""From one look at all that was gathered to the next; the brake looks every second."""

SIDES: Final = (CONTROL.arm_id, TREATED.arm_id)
EXPERIMENT: Final = Experiment(
    Plan(
        ExperimentName("try"),
        "m",
        "",
        Treatment(off=True),
        unit=Unit.REQUEST,
        stages=(Stage(0.5),),
    ),
    Standing(Status.RUNNING, 0, 0.0, "", 1),
)


def looks() -> Iterator[int]:
    """Seconds after which all that was gathered is judged."""
    at = 30.0
    while at < SECONDS:
        yield int(at)
        at *= GROWTH
    yield SECONDS


@dataclass(frozen=True, slots=True)
class Row:
    """A promise, and what was measured of it."""

    promise: str
    measured: str
    demanded: str
    kept: bool
