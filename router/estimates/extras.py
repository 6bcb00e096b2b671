"""What a request adds besides to its class: to a band of load, to its arm, to slots. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from policies.estimators import prefill, step_time
from policies.estimators.load import load_band, load_part
from policies.types import OK, ArmId, Counts, SpecUsage, Trial
from router.estimates.layout import COMMON, CellKey
from router.estimates.made import Made
from router.types import Outcome, SegmentId

MAX_POINTS = 16
"""Requests of a slot, arm and band of load that a process adds to the curves of step time and of
prefill. Judgement: a block of twelve slots then has two hundred, and more would tell little: what
differs between blocks does not get less by them."""


class Points:
    """Which requests are points of the curves: the first few of every slot, arm and band."""

    __slots__ = ("_slot", "_taken")

    def __init__(self) -> None:
        self._slot = 0
        self._taken: dict[tuple[ArmId, int], int] = {}

    def take(self, slot: int, arm_id: ArmId, load: int | None) -> bool:
        """Whether this one is; if so it is counted."""
        if load is None:
            return False
        if slot != self._slot:
            self._slot, self._taken = slot, {}
        key = (arm_id, load_band(load))
        taken = self._taken.get(key, 0)
        if taken >= MAX_POINTS:
            return False
        self._taken[key] = taken + 1
        return True


def more_cells(
    trial: Trial, effects: Counts, plain: Collection[ArmId], *, point: bool = True
) -> tuple[tuple[CellKey, Counts], ...]:
    """Cells of the band of load that a request met: its class's, and its arm's.

    Args:
        trial: The request.
        effects: What it adds to its class that bears on effects (`increments.effect_fields`).
        plain: Arms that never draft: each of their tokens is a step, whether an engine says so or
            not.
        point: Whether it is a point of its arm's curves.
    """
    if trial.load is None:
        return ()
    part = SegmentId(load_part(trial.load))
    cells: list[tuple[CellKey, Counts]] = [((trial.arm_id, trial.class_id, part), effects)]
    if point and trial.status is OK:
        known = trial
        if trial.spec is None and trial.tokens is not None and trial.arm_id in plain:
            known = replace(trial, spec=SpecUsage(steps=trial.tokens, drafted=0, accepted=0))
        common = step_time.increments(known) | prefill.increments(trial)
        if common:
            cells.append(((trial.arm_id, COMMON, part), common))
    return tuple(cells)


def made_by(trial: Trial, outcome: Outcome, ended: float, *, at_the_end: bool) -> Made | None:
    """When the tokens of an answer were made; None where it is not known how many.

    Args:
        trial: The request.
        outcome: What came of it.
        ended: Wall time of its end.
        at_the_end: Its engine counts tokens when a request ends, not when they are made.
    """
    if trial.status is not OK or not trial.tokens:
        return None
    if at_the_end:
        return Made(trial.tokens, ended, ended)
    begun = outcome.ttft_s
    if begun is None:
        # Of a whole answer only its end is seen; its prompt comes first, but mostly takes little.
        begun = outcome.overhead_s or 0.0
    return Made(trial.tokens, ended - max(outcome.e2e_s - begun, 0.0), ended)
