"""What a request adds besides to its class: to a band of load, to its arm, to slots. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from policies.estimators import prefill, step_time
from policies.estimators.increments import effect_fields
from policies.estimators.load import load_part
from policies.types import ArmId, Counts, SpecUsage, Status, Trial
from router.estimates.layout import COMMON, CellKey
from router.estimates.made import Made
from router.types import Outcome, SegmentId


def more_cells(
    trial: Trial, sums: Counts, plain: Collection[ArmId]
) -> tuple[tuple[CellKey, Counts], ...]:
    """Cells of the band of load that a request met: its class's, and its arm's.

    Args:
        trial: The request.
        sums: What it adds to its class.
        plain: Arms that never draft: each of their tokens is a step, whether an engine says so or
            not.
    """
    if trial.load is None:
        return ()
    part = SegmentId(load_part(trial.load))
    cells: list[tuple[CellKey, Counts]] = [
        ((trial.arm_id, trial.class_id, part), effect_fields(sums))
    ]
    if trial.status is Status.OK:
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
    if trial.status is not Status.OK or not trial.tokens:
        return None
    if at_the_end:
        return Made(trial.tokens, ended, ended)
    begun = outcome.ttft_s
    if begun is None:
        # Of a whole answer only its end is seen; its prompt comes first, but mostly takes little.
        begun = outcome.overhead_s or 0.0
    return Made(trial.tokens, ended - max(outcome.e2e_s - begun, 0.0), ended)
