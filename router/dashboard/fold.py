"""One stretch of the past as figures of each arm, by the snapshot's own estimators. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimators.cells import CellSums, add_counts, arm_view
from policies.estimators.effects import arm_effects
from policies.estimators.tau import tau_of
from policies.estimators.verdict import fixed_sample_gain
from policies.types import Arm, ArmId, ClassId, Status
from router.estimates.layout import COMMON, Cells
from router.types import POOLED


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm in one stretch; None is what was not measured.

    Attributes:
        requests: However they ended.
        failed: Those that failed.
        tokens: Completion tokens.
        tokens_per_step: Tau, by the best source that there is.
        gain: Against the baseline in the same stretch, (value, low, high) with the interval of this
            look alone; None of all classes together, which are no like work.
    """

    requests: int
    failed: int
    tokens: int
    tokens_per_step: float | None
    ttft_p50: float | None
    ttft_p95: float | None
    tpot_p50: float | None
    tpot_p95: float | None
    gain: tuple[float, float, float] | None


def fold(
    cells: Cells, arms: Sequence[Arm], class_id: ClassId | None
) -> Iterator[Mapping[ArmId, Figures] | None]:
    """Figures by arm, in pieces: None after each, and the figures at the end.

    Args:
        cells: Sums of the stretch.
        arms: Of the route; others are left out.
        class_id: Whose; None for all classes together.
    """
    sums: dict[ArmId, CellSums] = {}
    for arm in arms:
        counts: Mapping[str, int] = {}
        for (arm_id, found, part), fields in cells.items():
            wanted = found == class_id if class_id is not None else found != COMMON
            if arm_id == arm.arm_id and part == POOLED and wanted:
                counts = add_counts(counts, fields)
        sums[arm.arm_id] = CellSums.of(counts)
        yield None
    gains = _gains(class_id, arms, sums) if class_id is not None else {}
    yield {
        arm_id: Figures(
            cell.n,
            cell.count(Status.FAILED),
            cell.plain.get("tokens", 0),
            _tau(cell),
            cell.quantile("ttft", 0.5),
            cell.quantile("ttft", 0.95),
            cell.quantile("tpot", 0.5),
            cell.quantile("tpot", 0.95),
            gains.get(arm_id),
        )
        for arm_id, cell in sums.items()
    }


def _tau(cell: CellSums) -> float | None:
    source = cell.best_source
    tau = tau_of(cell.steps(source)) if source is not None else None
    return tau.value if tau else None


def _gains(
    class_id: ClassId, arms: Sequence[Arm], sums: Mapping[ArmId, CellSums]
) -> dict[ArmId, tuple[float, float, float]]:
    view = arm_view(class_id, arms, [(1.0, sums)], by_moment=True)
    effects = arm_effects(view, blocks=np.zeros(len(view.n), dtype=np.int64))
    gains: dict[ArmId, tuple[float, float, float]] = {}
    for index, arm in enumerate(arms):
        gain = None if arm.baseline else fixed_sample_gain(effects, index)
        if gain is not None:
            gains[arm.arm_id] = gain.value, gain.low, gain.high
    return gains
