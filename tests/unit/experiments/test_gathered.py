"""Sums of an experiment over many hours, read once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from policies.types import ArmId, ClassId
from router.errors import StoreError
from router.estimates.layout import Cells
from router.experiments.cells import side_arm
from router.experiments.evidence import evidence_of, gains_by_class
from router.experiments.gathered import Gathered
from router.experiments.model import (
    Experiment,
    ExperimentName,
    Plan,
    Stage,
    Standing,
    Status,
    Treatment,
    Unit,
    Variant,
)
from router.experiments.seen import seen
from router.types import POOLED

TRY = ExperimentName("try")
CHAT = ClassId("chat")
FIRST = 500_000
"""Hour in which it began."""


def trial(epoch: int = 1) -> Experiment:
    """An experiment that has been running for long."""
    plan = Plan(TRY, "m", "", Treatment(off=True), stages=(Stage(0.5),), unit=Unit.REQUEST)
    standing = Standing(Status.RUNNING, 0, FIRST * 3600.0, "", epoch, FIRST * 3600.0)
    return Experiment(plan, standing)


def hour_of(number: int) -> Cells:
    """Sums of one hour, not like those of another."""
    cells: Cells = {(ArmId("plain"), CHAT, POOLED): {"n": 99}}
    for variant, y in ((Variant.CONTROL, 2_000_000), (Variant.TREATMENT, 1_900_000)):
        n = 30 + number % 7
        cells[side_arm(TRY, 1, variant), CHAT, POOLED] = {
            "n": n,
            "status.ok": n,
            "ttft.300": n,
            "y.s.n": n,
            "y.s.s": n * y,
            "y.s.q": n * (y * y // 1_000_000 + 90_000),
            "t.ttft.n": n,
            "t.ttft.s": -n * 1_000_000,
            "t.ttft.q": n * 1_090_000,
        }
    return cells


class Hours:
    """A history that keeps its hours, and counts how many were asked for."""

    def __init__(self, hours: Mapping[int, Cells]) -> None:
        self.hours = dict(hours)
        self.asked = 0
        self.away = False

    async def read_hours(self, since: float) -> Mapping[int, Cells]:
        """From then on."""
        if self.away:
            raise StoreError("away")
        wanted = {hour: cells for hour, cells in self.hours.items() if hour >= since // 3600}
        self.asked += len(wanted)
        return wanted


async def test_all_hours_are_seen_and_old_ones_read_once() -> None:
    """What is added up in parts is what is added up at once; nothing new is the same object."""
    hours = Hours({FIRST + number: hour_of(number) for number in range(50)})
    gathered, experiment = Gathered(), trial()
    now = (FIRST + 49) * 3600.0 + 1800.0
    known = await gathered.known(experiment, hours, now)  # type: ignore[arg-type]
    whole = seen(experiment, hours.hours.items())
    assert known.ever == whole.ever
    assert gains_by_class(known) == pytest.approx(gains_by_class(whole))
    assert evidence_of(experiment, known).guards == evidence_of(experiment, whole).guards
    hours.asked = 0
    assert await gathered.known(experiment, hours, now + 1.0) is known  # type: ignore[arg-type]
    assert hours.asked == 2
    hours.hours[FIRST + 49] = hour_of(50)
    grown = await gathered.known(experiment, hours, now + 2.0)  # type: ignore[arg-type]
    assert grown is not known
    assert grown.ever == seen(experiment, hours.hours.items()).ever


async def test_a_process_that_was_cut_off_may_add_to_an_old_hour() -> None:
    """It is seen with the next hour."""
    hours = Hours({FIRST + number: hour_of(number) for number in range(5)})
    gathered, experiment = Gathered(), trial()
    now = (FIRST + 4) * 3600.0 + 10.0
    await gathered.known(experiment, hours, now)  # type: ignore[arg-type]
    hours.hours[FIRST + 1] = hour_of(6)
    hours.hours[FIRST + 5] = hour_of(5)
    known = await gathered.known(experiment, hours, now + 3600.0)  # type: ignore[arg-type]
    assert known.ever == seen(experiment, hours.hours.items()).ever


async def test_a_new_epoch_is_the_present_one_and_a_store_that_is_away_is_told() -> None:
    """What was known stays for when it is back."""
    hours = Hours({FIRST: hour_of(0)})
    gathered = Gathered()
    now = FIRST * 3600.0 + 60.0
    await gathered.known(trial(), hours, now)  # type: ignore[arg-type]
    later = await gathered.known(trial(2), hours, now + 1.0)  # type: ignore[arg-type]
    assert sum(counts.get("n", 0) for counts in later.now.values()) == 0
    hours.away = True
    with pytest.raises(StoreError):
        await gathered.known(trial(2), hours, now + 2.0)  # type: ignore[arg-type]
    hours.away = False
    assert (await gathered.known(trial(2), hours, now + 3.0)) is later  # type: ignore[arg-type]
