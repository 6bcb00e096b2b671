"""What is known of an experiment: sums of both sides, added up as far as looks need it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from policies.cost import STREAM_KIND
from policies.estimators.cells import CellSums, arm_view
from policies.estimators.clusters import BUCKETS, Contrast
from policies.estimators.increments import FIXED_POINT
from policies.estimators.times import sums_of_time
from policies.types import Arm, ArmId, ArmView, ClassId, Counts, FloatArray
from router.estimates.layout import Cells
from router.experiments.cells import IntArray, by_bucket, sides_in
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

Buckets = Mapping[str, IntArray]
"""What each bucket has of a sum, by its name."""

_MOST_Y = 20.0


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
        clustered: Whether a unit brings many requests, so that noise is reckoned by buckets.
        contrasts: What these say of a metric, by class.
        buckets: Sums by bucket, over all classes and hours, by epoch and side.
    """

    epoch: int
    plain: Mapping[tuple[int, ArmId], Counts] = field(default_factory=dict)
    latency: Mapping[tuple[int, ArmId, str], Mapping[int, int]] = field(default_factory=dict)
    rows: Mapping[tuple[ClassId, Metric], tuple[FloatArray, ...]] = field(default_factory=dict)
    classes: frozenset[ClassId] = frozenset()
    clustered: bool = False
    contrasts: Mapping[tuple[ClassId, Metric], Contrast] = field(default_factory=dict)
    buckets: Mapping[tuple[int, ArmId], Buckets] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        strata: Mapping[ClassId, Mapping[Stretch, Pair]],
        epoch: int,
        metrics: Collection[Metric] = tuple(Metric),
        parts: Mapping[ClassId, Mapping[Stretch, Mapping[ArmId, Buckets]]] | None = None,
    ) -> Seen:
        """Adds up sums by class and by stretch of time, with the logs of these metrics.

        Args:
            strata: The sums.
            epoch: The present one.
            metrics: What somebody will ask for.
            parts: The same by bucket; None where each request is a unit.
        """
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
        clustered, classes = parts is not None, frozenset(strata)
        contrasts, buckets = _by_bucket(parts or {}, metrics)
        return cls(epoch, plain, latency, rows, classes, clustered, contrasts, buckets)

    @classmethod
    def together_with(cls, parts: Iterable[Seen], epoch: int) -> Seen:
        """Adds parts that have no stretch in common."""
        plain: dict[tuple[int, ArmId], Counter[str]] = {}
        latency: dict[tuple[int, ArmId, str], Counter[int]] = {}
        rows: dict[tuple[ClassId, Metric], list[FloatArray]] = {}
        classes: set[ClassId] = set()
        clustered = False
        contrasts: dict[tuple[ClassId, Metric], Contrast] = {}
        by_bucket_: dict[tuple[int, ArmId], dict[str, IntArray]] = {}
        for part in parts:
            clustered = clustered or part.clustered
            for of, contrast in part.contrasts.items():
                contrasts[of] = contrasts[of] + contrast if of in contrasts else contrast
            for key, told in part.buckets.items():
                _add_buckets(by_bucket_.setdefault(key, {}), told)
            for key, counts in part.plain.items():
                plain.setdefault(key, Counter()).update(counts)
            for name, buckets in part.latency.items():
                latency.setdefault(name, Counter()).update(buckets)
            for of, made in part.rows.items():
                rows.setdefault(of, []).extend(made)
            classes |= part.classes
        joined = {of: (np.concatenate(made),) for of, made in rows.items()}
        found = frozenset(classes)
        return cls(epoch, plain, latency, joined, found, clustered, contrasts, by_bucket_)

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

    def contrast(self, class_id: ClassId | None = None, metric: Metric = Metric.COST) -> Contrast:
        """What buckets say of a metric, of one class or of all."""
        added = Contrast.nothing()
        for (name, of), contrast in self.contrasts.items():
            if of is metric and class_id in (None, name):
                added = added + contrast
        return added

    def bucket(self, side: ArmId, name: str) -> FloatArray:
        """What each bucket has of a sum in the present epoch."""
        told = self.buckets.get((self.epoch, side), {}).get(name)
        return np.zeros(BUCKETS) if told is None else told.astype(np.float64)


def _by_bucket(
    parts: Mapping[ClassId, Mapping[Stretch, Mapping[ArmId, Buckets]]], metrics: Collection[Metric]
) -> tuple[dict[tuple[ClassId, Metric], Contrast], dict[tuple[int, ArmId], dict[str, IntArray]]]:
    """What buckets say of metrics, and their sums by epoch and side."""
    contrasts: dict[tuple[ClassId, Metric], Contrast] = {}
    buckets: dict[tuple[int, ArmId], dict[str, IntArray]] = {}
    for class_id, stretches in parts.items():
        for (_, epoch), sides in stretches.items():
            for side, told in sides.items():
                _add_buckets(buckets.setdefault((epoch, side), {}), told)
        for metric in metrics:
            contrasts[class_id, metric] = _contrast(stretches.values(), metric)
    return contrasts, buckets


def _add_buckets(into: dict[str, IntArray], told: Buckets) -> None:
    for name, values in told.items():
        into[name] = into[name] + values if name in into else values


def _contrast(stretches: Iterable[Mapping[ArmId, Buckets]], metric: Metric) -> Contrast:
    """Of one class; each stretch and kind is a stratum, as in `_rows`."""
    n, total = [], []
    for sides in stretches:
        for stem in sorted({name[:-2] for told in sides.values() for name in told}):
            if _is_of(stem, metric):
                told = [logs_by_bucket(sides.get(side.arm_id, {}), stem) for side in SIDES]
                n.append(np.stack([of[0] for of in told], axis=1))
                total.append(np.stack([of[1] for of in told], axis=1))
    return Contrast.of(np.stack(n), np.stack(total)) if n else Contrast.nothing()


def _is_of(stem: str, metric: Metric) -> bool:
    """Whether these are logs that a metric is made of; see `times.sums_of_time`."""
    family, _, kind = stem.partition(".")
    match metric:
        case Metric.COST:
            return family == "y"
        case Metric.E2E:
            return (family == "y" and kind != STREAM_KIND) or (family == "t" and kind[0] == "e")
        case _:
            return family == "t" and kind == metric.value


def logs_by_bucket(told: Buckets, stem: str) -> tuple[FloatArray, FloatArray]:
    """Number and sum of logs by bucket; what cannot be true counts for nothing."""
    nobody = np.zeros(BUCKETS, dtype=np.int64)
    n = told.get(f"{stem}.n", nobody).astype(np.float64)
    total = told.get(f"{stem}.s", nobody) / FIXED_POINT
    sound = (n > 0.0) & (np.abs(total) <= _MOST_Y * n)
    return np.where(sound, n, 0.0), np.where(sound, total, 0.0)


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
    parts: dict[ClassId, dict[Stretch, dict[ArmId, Buckets]]] = {}
    for number, cells in stretches:
        for side, classes in sides_in(cells).items():
            if side.name != experiment.plan.name:
                continue
            for class_id, sums in classes.items():
                pair = strata.setdefault(class_id, {}).setdefault((number, side.epoch), {})
                whole, told = by_bucket(sums)
                pair[ArmId(side.variant.value)] = CellSums.of(whole)
                of_class = parts.setdefault(class_id, {}).setdefault((number, side.epoch), {})
                of_class[ArmId(side.variant.value)] = told
    clustered = parts if experiment.plan.clustered else None
    return Seen.of(strata, experiment.standing.epoch, metrics, clustered)
