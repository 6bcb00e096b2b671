"""Sums of both sides → what a look sees. Pure: it decides nothing and reads nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.estimators import histogram
from policies.estimators.cells import CellSums, arm_view
from policies.estimators.effects import arm_effects
from policies.estimators.sequential import (
    RATIO_LEVEL,
    quantile_ratio,
    rate_difference,
    sample_ratio_e_value,
)
from policies.estimators.verdict import Gain, gain_of
from policies.types import Arm, ArmId, ArmView, ClassId, Counts, Status
from router.estimates.layout import Cells
from router.experiments.cells import sides_in
from router.experiments.model import Experiment, Guard, GuardKind, Variant
from router.experiments.rollout import Evidence, Reading

GUARD_ALPHA = 0.02
"""Chance that any guard of a healthy treatment is ever breached, over all guards and stages."""

CONTROL = Arm(ArmId(Variant.CONTROL.value), "control", baseline=True)
TREATED = Arm(ArmId(Variant.TREATMENT.value), "treatment")
SIDES = (CONTROL, TREATED)
_ALL = ClassId("*")
_MOST_E = 1e300
"""An e-value beyond all doubt is infinite, which JSON has no word for."""

_QUANTILES = {
    GuardKind.TPOT_P95: ("tpot", 0.95),
    GuardKind.TPOT_P99: ("tpot", 0.99),
    GuardKind.TTFT_P95: ("ttft", 0.95),
    GuardKind.TTFT_P99: ("ttft", 0.99),
}
_SHARES = {GuardKind.ERRORS: Status.FAILED, GuardKind.ABORTS: Status.ABORTED}

Stretch = tuple[int, int]
"""Stretch of time (an hour) and epoch: inside it both sides met the same."""

Pair = dict[ArmId, CellSums]
"""Sums by side."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known of an experiment.

    Attributes:
        strata: Sums by class, and by stretch of time.
        epoch: The present epoch.
    """

    strata: Mapping[ClassId, Mapping[Stretch, Pair]]
    epoch: int

    @property
    def now(self) -> Mapping[ArmId, Counts]:
        """Plain counts of the present epoch, over all classes and hours."""
        return self._counts(lambda epoch: epoch == self.epoch)

    @property
    def ever(self) -> Mapping[ArmId, Counts]:
        """Plain counts of all epochs."""
        return self._counts(lambda _: True)

    @property
    def together(self) -> Counts:
        """Plain counts of all epochs and both sides."""
        added: Counter[str] = Counter()
        for counts in self.ever.values():
            added.update(counts)
        return added

    def _counts(self, wanted: Callable[[int], bool]) -> Mapping[ArmId, Counts]:
        counts: dict[ArmId, Counter[str]] = {arm.arm_id: Counter() for arm in SIDES}
        for stretches in self.strata.values():
            for (_, epoch), pair in stretches.items():
                for side, cell in pair.items() if wanted(epoch) else ():
                    counts[side].update(cell.plain)
        return counts

    def histogram(self, side: ArmId, family: str, epoch: int) -> Mapping[int, int]:
        """A histogram of one epoch, over all classes and hours."""
        added: Counter[int] = Counter()
        for stretches in self.strata.values():
            for (_, of), pair in stretches.items():
                if of == epoch and side in pair:
                    added.update(pair[side].histogram(family))
        return added

    @property
    def compared_epoch(self) -> int:
        """The present epoch, or where all are treated in it the last that had a control."""
        with_control = [
            epoch
            for stretches in self.strata.values()
            for (_, epoch), pair in stretches.items()
            if CONTROL.arm_id in pair
        ]
        return self.epoch if self.epoch in with_control else max(with_control, default=self.epoch)

    def view(self, class_id: ClassId | None = None) -> ArmView:
        """Log costs by stratum, of one class or of all."""
        views = [
            arm_view(name, SIDES, [(1.0, pair) for pair in stretches.values()])
            for name, stretches in self.strata.items()
            if class_id in (None, name)
        ]
        if not views:
            return ArmView.empty(class_id or _ALL, SIDES)
        n, total, total_sq = (
            np.concatenate([view.n for view in views]),
            np.concatenate([view.total for view in views]),
            np.concatenate([view.total_sq for view in views]),
        )
        served = np.sum([view.served for view in views], axis=0)
        failed = np.sum([view.failed for view in views], axis=0)
        return ArmView(class_id or _ALL, SIDES, n, total, total_sq, served, failed)


def seen(experiment: Experiment, stretches: Iterable[tuple[int, Cells]]) -> Seen:
    """Picks an experiment's sums out of everything.

    Args:
        experiment: Which.
        stretches: Numbers of stretches of time, each with its cells.
    """
    strata: dict[ClassId, dict[Stretch, Pair]] = {}
    for number, cells in stretches:
        for side, classes in sides_in(cells).items():
            if side.name != experiment.plan.name:
                continue
            for class_id, sums in classes.items():
                pair = strata.setdefault(class_id, {}).setdefault((number, side.epoch), {})
                pair[ArmId(side.variant.value)] = CellSums.of(sums)
    return Seen(strata, experiment.standing.epoch)


def evidence_of(experiment: Experiment, known: Seen, alarm: str | None = None) -> Evidence:
    """What a look sees.

    Args:
        experiment: What was planned, and where it stands.
        known: Its sums.
        alarm: Sudden harm, where somebody found it.
    """
    now = known.now
    control, treatment = (now[arm.arm_id].get("n", 0) for arm in SIDES)
    gain = _gain(known)
    return Evidence(
        control=control,
        treatment=treatment,
        gain=None if gain is None else (gain.value, gain.low, gain.high),
        guards=tuple(_reading(experiment, known, guard) for guard in experiment.plan.guards),
        ratio_alarm=_ratio_alarm(experiment, control, treatment),
        alarm=alarm,
    )


def gains_by_class(known: Seen) -> dict[ClassId, Gain | None]:
    """Each class's own gain, from its own data."""
    return {class_id: _gain(known, class_id) for class_id in sorted(known.strata)}


def _gain(known: Seen, class_id: ClassId | None = None, level: float = 0.95) -> Gain | None:
    return gain_of(arm_effects(known.view(class_id)), 1, level)


def sample_ratio(experiment: Experiment, control: int, treatment: int) -> dict[str, Any] | None:
    """Whether requests are split as planned, as JSON values; None where nothing is to be split.

    Args:
        experiment: What was planned, and where it stands.
        control: Requests of the control in this stage.
        treatment: Requests of the treatment in it.

    Returns:
        `planned` and `seen`, shares of the treatment; `e_value`, evidence against the plan, None
        where the unit is not the request, and `alarm_at`, from which on it is an alarm.
    """
    share, n = experiment.share, control + treatment
    if not 0.0 < share < 1.0:
        return None
    tested = _by_request(experiment)
    e_value = sample_ratio_e_value((control, treatment), (1.0 - share, share)) if tested else None
    return {
        "planned": share,
        "seen": treatment / n if n else None,
        "e_value": None if e_value is None else min(e_value, _MOST_E),
        "alarm_at": len(experiment.plan.stages) / (1.0 - RATIO_LEVEL),
    }


def _ratio_alarm(experiment: Experiment, control: int, treatment: int) -> bool:
    told = sample_ratio(experiment, control, treatment)
    # One test for each epoch, which together keep the level.
    return told is not None and told["e_value"] is not None and told["e_value"] >= told["alarm_at"]


def _by_request(experiment: Experiment) -> bool:
    """Whether requests are split as units are: a session brings as many as it likes."""
    return experiment.plan.unit == "request"


def _reading(experiment: Experiment, known: Seen, guard: Guard) -> Reading:
    plan = experiment.plan
    level = 1.0 - GUARD_ALPHA / (len(plan.guards) * len(plan.stages))
    if guard.kind is GuardKind.COST:
        return _cost_reading(known, guard, level)
    epoch = known.compared_epoch
    if guard.kind in _QUANTILES:
        family, q = _QUANTILES[guard.kind]
        treated = known.histogram(TREATED.arm_id, family, known.epoch)
        control = known.histogram(CONTROL.arm_id, family, epoch)
        low, high = quantile_ratio(treated, control, q, level)
        top, bottom = histogram.quantile(treated, q), histogram.quantile(control, q)
        value = None if top is None or not bottom else top / bottom
        return Reading(guard, value, low, high)
    hit = f"status.{_SHARES[guard.kind]}"
    counts = known.now if epoch == known.epoch else known.ever
    treated_of, control_of = counts[TREATED.arm_id], counts[CONTROL.arm_id]
    found = rate_difference(
        (treated_of.get(hit, 0), treated_of.get("n", 0)),
        (control_of.get(hit, 0), control_of.get("n", 0)),
        level,
    )
    if found is None:
        return Reading(guard, None, None, None)
    return Reading(guard, found.value, found.low, found.high)


def _cost_reading(known: Seen, guard: Guard, level: float) -> Reading:
    gain = _gain(known, level=level)
    if gain is None:
        return Reading(guard, None, None, None)
    # 1 - gain is the ratio of costs; its bounds change places.
    return Reading(guard, 1.0 - gain.value, 1.0 - gain.high, 1.0 - gain.low)


def log_cost_sd(view: ArmView) -> float | None:
    """Standard deviation of log cost inside strata; None without any.

    >>> log_cost_sd(ArmView.empty(ClassId("chat"), SIDES)) is None
    True
    """
    n, total, total_sq = view.n, view.total, view.total_sq
    many = n > 1.0
    if not many.any():
        return None
    residual = np.where(many, total_sq - total**2 / np.maximum(n, 1.0), 0.0).sum()
    return math.sqrt(max(float(residual), 0.0) / float((n - 1.0)[many].sum()))
