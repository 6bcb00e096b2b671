"""What hurts now, since when, why, and what would be better: what who is called asks. Pure.

It judges nothing anew: verdicts, intervals and changes are the snapshot's. A pool that surely loses
in a class is a concern whether it changed or never was any good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from policies.estimators.tails import TailRatio
from policies.estimators.verdict import Gain, Verdict
from policies.types import Arm, ArmId, ClassId
from router.estimates.events import EVERY, Change, Event
from router.estimates.snapshot import ClassSnapshot, Snapshot
from router.estimates.summary import CellSummary


class Harm(StrEnum):
    """What a pool does to a class."""

    LOSS = "loss"
    """It surely costs time."""
    TAIL = "tail"
    """A slowest percentile is surely worse than the baseline's."""
    FAILURES = "failures"
    """More of its requests fail than of the baseline's, which no gain makes up for."""
    GAIN_LOST = "gain_lost"
    """It saved time until it changed, and does not any more."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One pool that hurts one class.

    Attributes:
        class_id: The class.
        arm: The pool's.
        harm: How.
        gain: Time saved, as it is now.
        tail: The worst tail, by its name in `summary.TAILS`; None where it is not about one.
        since: When it changed; None where no change was seen.
        measured_since: When the first of the answers came that this rests on.
        changes: What was found to have changed then.
        tokens_per_step: Tau, as it is now.
        share: Of the class's requests in the last minutes.
        instead: The pool that surely gains most there; the baseline where none does.
        instead_gain: What it saves; None for the baseline.
    """

    class_id: ClassId
    arm: Arm
    harm: Harm
    gain: Gain | None
    tail: tuple[str, TailRatio] | None
    since: float | None
    measured_since: float | None
    changes: tuple[Change, ...]
    tokens_per_step: float | None
    share: float | None
    instead: ArmId
    instead_gain: Gain | None

    @property
    def weight(self) -> float:
        """Time lost as a share of the class's, for the order alone."""
        lost = max(-self.gain.value, 0.0) if self.gain else 0.0
        return (self.share or 0.0) * (1.0 + lost)


def concerns(snapshot: Snapshot) -> tuple[Concern, ...]:
    """All of them, first those that cost most."""
    found = [
        concern
        for known in snapshot.classes.values()
        for arm in snapshot.arms
        if (concern := _concern(snapshot, known, arm)) is not None
    ]
    return tuple(sorted(found, key=lambda of: (of.harm != Harm.LOSS, -of.weight)))


def _concern(snapshot: Snapshot, known: ClassSnapshot, arm: Arm) -> Concern | None:
    cell = known.cells[arm.arm_id]
    changes = tuple(_changes(snapshot.events, known.class_id, cell))
    harm = _harm(cell, changes)
    if harm is None:
        return None
    tail = _worst_tail(cell) if harm is Harm.TAIL else None
    instead, instead_gain = _better(snapshot, known, arm)
    return Concern(
        class_id=known.class_id,
        arm=arm,
        harm=harm,
        gain=cell.gain,
        tail=tail,
        since=cell.since,
        measured_since=cell.measured_since,
        changes=changes,
        tokens_per_step=cell.acceptance_length,
        share=cell.share,
        instead=instead,
        instead_gain=instead_gain,
    )


def _harm(cell: CellSummary, changes: tuple[Change, ...]) -> Harm | None:
    compared = cell.comparison
    if compared is None:
        return None
    if compared.verdict is Verdict.LOSS:
        if compared.gain is not None and compared.gain.high < 0.0:
            return Harm.LOSS
        return Harm.FAILURES if _worst_tail(cell) is None else Harm.TAIL
    saved_before = any(
        of.figure == "cost" and of.before < 0.0 and of.after > of.before for of in changes
    )
    return Harm.GAIN_LOST if saved_before and compared.verdict is not Verdict.GAIN else None


def _changes(events: tuple[Event, ...], class_id: ClassId, cell: CellSummary) -> Iterator[Change]:
    """Those that the cell is told of since."""
    for event in events:
        there = event.arm_id == cell.arm_id and event.class_id in (class_id, EVERY)
        if there and event.change is not None and event.change.wall == cell.since:
            yield event.change


def _worst_tail(cell: CellSummary) -> tuple[str, TailRatio] | None:
    compared = cell.comparison
    known = compared.tails if compared is not None and compared.alike else {}
    sure = [
        (ratio.low, name, ratio)
        for name, ratio in known.items()
        if ratio is not None and ratio.low is not None and ratio.low > 1.0
    ]
    if not sure:
        return None
    _, name, ratio = max(sure, key=lambda of: of[:2])
    return name, ratio


def _better(snapshot: Snapshot, known: ClassSnapshot, arm: Arm) -> tuple[ArmId, Gain | None]:
    gains = [
        (cell.gain.low, cell.arm_id, cell.gain)
        for cell in known.cells.values()
        if cell.arm_id != arm.arm_id
        and cell.gain is not None
        and cell.comparison is not None
        and cell.comparison.verdict is Verdict.GAIN
    ]
    if gains:
        _, arm_id, gain = max(gains, key=lambda of: of[:2])
        return arm_id, gain
    return next(of.arm_id for of in snapshot.arms if of.baseline), None
