"""What is known of an experiment: sums of both sides, added up as far as looks need it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from policies.estimators.cells import CellSums, arm_view
from policies.estimators.times import sums_of_time
from policies.types import Arm, ArmId, ArmView, ClassId, Counts, FloatArray
from router.estimates.layout import Cells
from router.experiments.cells import sides_in
from router.experiments.model import Experiment, Metric, Variant

CONTROL = Arm(ArmId(Variant.CONTROL.value), "control", baseline=True)
TREATED = Arm(ArmId(Variant.TREATMENT.value), "treatment")
SIDES = (CONTROL, TREATED)
_ALL = ClassId("*")

FAMILIES = ("tpot", "ttft")
"""Histograms that guards look at."""

Stretch = tuple[int, int]
"""Stretch of time (an hour) and epoch: inside it both sides met the same."""

Pair = dict[ArmId, CellSums]
"""Sums by side."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that is known of an experiment, or of some stretches of it.

    Attributes:
        epoch: The present epoch.
        plain: Plain counts, over all classes and hours, by epoch and side.
        latency: Histograms, over all classes and hours, by epoch, side and family.
        rows: Sums of logs (number, sum, sum of squares) by class and metric, each of shape
            (strata, 3, sides).
        classes: All that there were.
    """

    epoch: int
    plain: Mapping[tuple[int, ArmId], Counts] = field(default_factory=dict)
    latency: Mapping[tuple[int, ArmId, str], Mapping[int, int]] = field(default_factory=dict)
    rows: Mapping[tuple[ClassId, Metric], tuple[FloatArray, ...]] = field(default_factory=dict)
    classes: frozenset[ClassId] = frozenset()

    @classmethod
    def of(
        cls,
        strata: Mapping[ClassId, Mapping[Stretch, Pair]],
        epoch: int,
        metrics: Collection[Metric] = tuple(Metric),
    ) -> Seen:
        """Adds up sums by class and by stretch of time, with the logs of these metrics."""
        plain: dict[tuple[int, ArmId], Counter[str]] = {}
        latency: dict[tuple[int, ArmId, str], Counter[int]] = {}
        rows = {}
        for class_id, stretches in strata.items():
            for (_, of), pair in stretches.items():
                for side, cell in pair.items():
                    plain.setdefault((of, side), Counter()).update(cell.plain)
                    for family in FAMILIES:
                        found = latency.setdefault((of, side, family), Counter())
                        found.update(cell.histogram(family))
            for metric in metrics:
                made = _rows(list(stretches.values()), metric)
                if len(made):
                    rows[class_id, metric] = (made,)
        return cls(epoch, plain, latency, rows, frozenset(strata))

    @classmethod
    def together_with(cls, parts: Iterable[Seen], epoch: int) -> Seen:
        """Adds parts that have no stretch in common."""
        plain: dict[tuple[int, ArmId], Counter[str]] = {}
        latency: dict[tuple[int, ArmId, str], Counter[int]] = {}
        rows: dict[tuple[ClassId, Metric], list[FloatArray]] = {}
        classes: set[ClassId] = set()
        for part in parts:
            for key, counts in part.plain.items():
                plain.setdefault(key, Counter()).update(counts)
            for name, buckets in part.latency.items():
                latency.setdefault(name, Counter()).update(buckets)
            for of, made in part.rows.items():
                rows.setdefault(of, []).extend(made)
            classes |= part.classes
        joined = {of: (np.concatenate(made),) for of, made in rows.items()}
        return cls(epoch, plain, latency, joined, frozenset(classes))

    @property
    def now(self) -> Mapping[ArmId, Counts]:
        """Plain counts of the present epoch."""
        return self._counts(lambda epoch: epoch == self.epoch)

    @property
    def ever(self) -> Mapping[ArmId, Counts]:
        """Plain counts of all epochs."""
        return self._counts(lambda _: True)

    @property
    def together(self) -> Counts:
        """Plain counts of all epochs and both sides."""
        added: Counter[str] = Counter()
        for counts in self.plain.values():
            added.update(counts)
        return added

    def _counts(self, wanted: Callable[[int], bool]) -> Mapping[ArmId, Counts]:
        counts: dict[ArmId, Counter[str]] = {arm.arm_id: Counter() for arm in SIDES}
        for (epoch, side), plain in self.plain.items():
            if wanted(epoch):
                counts[side].update(plain)
        return counts

    def histogram(self, side: ArmId, family: str) -> Mapping[int, int]:
        """A histogram of the present epoch."""
        return self.latency.get((self.epoch, side, family), {})

    def view(self, class_id: ClassId | None = None, metric: Metric = Metric.COST) -> ArmView:
        """Logs of a metric by stratum, of one class or of all."""
        found = [
            part
            for (name, of), parts in self.rows.items()
            if of is metric and class_id in (None, name)
            for part in parts
        ]
        if not found:
            return ArmView.empty(class_id or _ALL, SIDES)
        sums, nobody = np.concatenate(found), np.zeros(len(SIDES))
        return ArmView(class_id or _ALL, SIDES, sums[:, 0], sums[:, 1], sums[:, 2], nobody, nobody)


def _rows(pairs: Iterable[Pair], metric: Metric) -> FloatArray:
    """Sums of logs of one class, shape (strata, 3, sides)."""
    view = arm_view(_ALL, SIDES, [(1.0, _measured(pair, metric)) for pair in pairs])
    return np.stack([view.n, view.total, view.total_sq], axis=1)


def _measured(pair: Pair, metric: Metric) -> Pair:
    """Sums whose log costs are those of the metric."""
    if metric is Metric.COST:
        return pair
    return {
        side: replace(cell, log_cost=sums_of_time(cell, metric.value))
        for side, cell in pair.items()
    }


def seen(
    experiment: Experiment,
    stretches: Iterable[tuple[int, Cells]],
    metrics: Collection[Metric] = tuple(Metric),
) -> Seen:
    """Picks an experiment's sums out of everything.

    Args:
        experiment: Which.
        stretches: Numbers of stretches of time, each with its cells.
        metrics: What somebody will ask for.
    """
    strata: dict[ClassId, dict[Stretch, Pair]] = {}
    for number, cells in stretches:
        for side, classes in sides_in(cells).items():
            if side.name != experiment.plan.name:
                continue
            for class_id, sums in classes.items():
                pair = strata.setdefault(class_id, {}).setdefault((number, side.epoch), {})
                pair[ArmId(side.variant.value)] = CellSums.of(sums)
    return Seen.of(strata, experiment.standing.epoch, metrics)
