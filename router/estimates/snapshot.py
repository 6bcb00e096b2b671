"""What is known at one moment: the one source of policies, dashboard, status and metrics.

Pure: sums in, values out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.estimators.cells import CellSums
from policies.estimators.effects import ArmEffects
from policies.estimators.ended import of_the_same_time
from policies.estimators.increments import STEP_FIELDS
from policies.estimators.pooling import (
    Difference,
    between_variance,
    groups_of,
    priors,
)
from policies.estimators.verdict import (
    MARGIN,
)
from policies.estimators.window import exponential_weight
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Prior, Source, Status
from router.estimates.apart import Apart
from router.estimates.blocks import Block, Sums, parse, summed
from router.estimates.costs import ArmCosts, Costs
from router.estimates.drifts import CellSeries, Detector, Drifts, costs_of, never, series_of
from router.estimates.durations import Durations
from router.estimates.events import CLASS_SPLITS, DRIFT, EVERY, SEGMENT_DIFFERS, Event, Events
from router.estimates.judged import ALPHA, Judge, Judged
from router.estimates.layout import BLOCK_S, segment_of
from router.estimates.parts import Grouped, gathered
from router.estimates.reader import Past
from router.estimates.segments import Found, PartSnapshot, bounded, find, grouping, largest
from router.estimates.summary import (
    CellSummary,
    Counted,
    Structure,
    abandoned_share,
    acceptance_of,
    latencies,
    repeats_of,
    whole_answers,
)
from router.estimates.window import NOTHING, Window
from router.types import POOLED, SegmentId

_RECENT_BLOCKS = 2
"""Traffic shares are those of the last two to four minutes."""

_POOLED_FAILURES = 50.0
"""Requests of the rest of the class that count for a part when failures are judged. Judgement: an
arm fails for all segments more often than for one."""

_MOST_SENT = 0.02
"""Share of requests that could have gone nowhere else. Judgement: p95 hardly moves by them."""

_NO_COUNTS: Counted = {}


@dataclass(frozen=True, slots=True)
class ClassSnapshot:
    """One class: what the policy sees of it, and what people see.

    Attributes:
        class_id: The class.
        view: Discounted by age; the rest of the class where parts of it are told apart.
        cells: By arm.
        parts: Those that are told apart.
        bands: `copying` and `free`: answers that mostly repeat the request, and the others.
        split: Whether the bands are told apart.
        series: By arm, what a detector of drift looks at.
    """

    class_id: ClassId
    view: ArmView
    cells: Mapping[ArmId, CellSummary]
    parts: Mapping[SegmentId, PartSnapshot] = field(default_factory=dict)
    bands: Mapping[str, PartSnapshot] = field(default_factory=dict)
    split: bool = False
    series: Mapping[ArmId, CellSeries] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One route at one moment."""

    version: int
    built_wall: float
    arms: tuple[Arm, ...]
    classes: Mapping[ClassId, ClassSnapshot]
    events: tuple[Event, ...] = ()
    """The newest last; each for as long as what it is about is told apart."""
    costs: Mapping[ArmId, ArmCosts] = field(default_factory=dict)
    """Models of the time of steps and prefill, by arm."""

    def views(self) -> Iterator[tuple[ClassId, SegmentId, ArmView]]:
        """All that a policy is asked about; `POOLED` is the class, or the rest of it."""
        for class_id, known in self.classes.items():
            yield class_id, POOLED, known.view
            for part, of in known.parts.items():
                if of.view is not None:
                    yield class_id, part, of.view


class SnapshotBuilder:
    """Builds snapshots of one route; remembers what cannot change between two of them."""

    def __init__(
        self,
        arms: tuple[Arm, ...],
        *,
        half_life_s: float,
        tail_limit: float,
        detect: Detector = never,
    ) -> None:
        self._arms = arms
        self._half_life_s = half_life_s
        self._judge = Judge(arms, tail_limit)
        self._apart = Apart(arms)
        self._baseline = next(index for index, arm in enumerate(arms) if arm.baseline)
        self._parsed: dict[int, Block] = {}
        self._past: Sums = {}
        self._version = 0
        self._most_pairs = 1
        self._split: set[ClassId] = set()
        self._events = Events()
        self._drifts = Drifts(arms, detect)
        self._costs = Costs(arms)

    def build(self, past: Past, wall: float, counted: Counted = _NO_COUNTS) -> Snapshot:
        """Turns sums into what is known.

        Args:
            past: The sums.
            wall: The moment.
            counted: Tokens per step from counters of servers, used where no request tells them.
        """
        *_, snapshot = self.steps(past, wall, counted)
        if snapshot is None:
            raise AssertionError("the last step is the snapshot")
        return snapshot

    def steps(
        self, past: Past, wall: float, counted: Counted = _NO_COUNTS
    ) -> Iterator[Snapshot | None]:
        """The same in pieces, several for each class, so that requests get their turn in between.

        Yields None after each piece and the snapshot at the end.
        """
        window = yield from self._window(past, wall, counted)
        found = yield from self._found(window)
        classes: dict[ClassId, ClassSnapshot] = {}
        for class_id, of in found.items():
            bands = self._bands(class_id, of, len(found), wall)
            yield None
            classes[class_id] = yield from self._class(class_id, of, window, bands)
            self._note(classes[class_id], wall)
            yield None
        complete = max(self._parsed, default=0)
        for event in self._drifts.look_together(classes, complete=complete, wall=wall):
            self._events.note(event)
        yield None
        costs = yield from self._costs.look(list(window.blocks.values()), window.weights, wall)
        oldest = min(window.blocks, default=0)
        self._drifts.forget(complete)
        self._events.keep(lambda event: _stands(event, classes, oldest))
        self._version += 1
        yield Snapshot(self._version, wall, self._arms, classes, self._events.newest(), costs)

    def _window(self, past: Past, wall: float, counted: Counted) -> Generator[None, None, Window]:
        blocks: dict[int, Block] = {}
        for index in sorted(past.blocks):
            block = self._parsed.get(index)
            if block is None:
                block = yield from parse(self._arms, past.blocks[index])
            blocks[index] = block
        complete = {index: block for index, block in blocks.items() if index in past.complete}
        if complete.keys() != self._parsed.keys():
            sums: Sums = {}
            for block in complete.values():
                sums = summed([sums, block.cells])
                yield
            self._parsed, self._past = complete, sums
        growing = [block.cells for index, block in blocks.items() if index not in past.complete]
        totals = summed([self._past, *growing])
        yield
        newest = past.newest_block - _RECENT_BLOCKS
        recent = summed(block.cells for index, block in blocks.items() if index > newest)
        yield
        ages = [wall - (index + 1) * BLOCK_S for index in blocks]
        weights = np.array([exponential_weight(age, self._half_life_s) for age in ages])
        return Window(blocks, weights, totals, recent, counted, wall)

    def _found(self, window: Window) -> Generator[None, None, dict[ClassId, Found]]:
        sizes = (
            (window.wall - (index + 1) * BLOCK_S, block.sizes)
            for index, block in window.blocks.items()
        )
        those = largest(sizes)
        yield
        found: dict[ClassId, Found] = {}
        for class_id in sorted({class_id for _, class_id in window.totals}):
            strata = [block.strata.get(class_id) for block in window.blocks.values()]
            found[class_id] = find(gathered(strata, self._arms), those)
            yield
        found = bounded(found)
        yield
        self._most_pairs = max(self._most_pairs, sum(len(of.segments) for of in found.values()))
        return found

    def _class(
        self, class_id: ClassId, found: Found, window: Window, bands: Mapping[str, PartSnapshot]
    ) -> Generator[None, None, ClassSnapshot]:
        split = class_id in self._split
        keys = [POOLED, *found.keys(split=split)]
        group = grouping(keys, split=split)
        grouped = found.gathered.grouped(keys, group)
        yield
        first = moments = grouped
        if found.gathered.lean.any():
            moments = found.gathered.grouped(keys, group, by_moment=True)
            yield
        effects = shown = self._judge.effects(class_id, grouped)
        yield
        series = self._series(class_id, grouped, window, effects)
        complete = max(self._parsed, default=0)
        for event in self._drifts.look(class_id, series, complete=complete, wall=window.wall):
            self._events.note(event)
        yield
        told = self._drifts.told(class_id, window.numbers)
        if not told.all():
            # Whoever looks wants to know what a cell is like now, and so does the policy.
            grouped, moments = grouped.only(told), moments.only(told)
            yield
        views = self._views(class_id, grouped, window.weights)
        yield
        if moments is not first:
            shown = self._judge.effects(class_id, moments)
            yield
        judged = yield from self._judge.judged(class_id, grouped, shown, window, told)
        yield
        cells = yield from self._cells(class_id, grouped, window, judged)
        parts: Mapping[SegmentId, PartSnapshot] = {}
        if len(keys) > 1:
            parts = self._apart.parts(
                keys, grouped, views, moments, shown.shared, level=self._segment_level
            )
        return ClassSnapshot(class_id, views[0], cells, parts, bands, split, series)

    def _cells(
        self, class_id: ClassId, grouped: Grouped, window: Window, judged: Judged
    ) -> Generator[None, None, dict[ArmId, CellSummary]]:
        requests = sum(window.recent.get((a.arm_id, class_id), NOTHING).n for a in self._arms)
        durations = Durations.of(
            [block.durations.get(class_id) for block in window.blocks.values()], len(self._arms)
        ).only(judged.told)
        mix = grouped.mix(len(window.blocks)) if len(grouped.starts) > 1 else None
        alike = mix.alike(self._baseline) if mix else np.ones(len(self._arms), dtype=np.bool_)
        yield
        cells = {}
        plain = (self._arms[self._baseline].arm_id, class_id)
        for index, arm in enumerate(self._arms):
            key = (arm.arm_id, class_id)
            cell = window.cell(key, judged.told[:, index])
            compared = None
            if not arm.baseline:
                sent = _sent(cell) or _sent(window.totals.get(plain, NOTHING))
                compared = self._judge.compare(
                    index, durations, judged, alike=bool(alike[index]), sent=sent
                )
            yield
            waited = latencies(durations, index)
            yield
            cells[arm.arm_id] = CellSummary(
                arm_id=arm.arm_id,
                ended={status: cell.count(status) for status in Status},
                abandoned=abandoned_share(cell),
                held=cell.plain.get("held", 0),
                share=window.recent.get(key, NOTHING).n / requests if requests else None,
                tokens=cell.plain.get("tokens"),
                since=self._since(class_id, arm, window),
                measured_since=window.first(key, judged.told[:, index]),
                acceptance=acceptance_of(
                    arm,
                    cell,
                    by_parts=mix.taus(index) if mix and _one_source(cell) else None,
                    counted=window.counted.get(key),
                ),
                sources={
                    source: cell.plain[f"source.{source}"]
                    for source in Source
                    if f"source.{source}" in cell.plain
                },
                latency=waited,
                whole=whole_answers(durations, index),
                comparison=compared,
                structure=Structure.of(cell),
                repeats=repeats_of(cell),
            )
            yield
        return cells

    def _series(
        self, class_id: ClassId, grouped: Grouped, window: Window, effects: ArmEffects
    ) -> dict[ArmId, CellSeries]:
        made = {}
        for index, arm in enumerate(self._arms):
            cell = window.totals.get((arm.arm_id, class_id), NOTHING)
            made[arm.arm_id] = CellSeries(
                series_of(window.blocks, class_id, arm, cell.best_source),
                costs_of(grouped, window.numbers, effects, index),
            )
        return made

    def _since(self, class_id: ClassId, arm: Arm, window: Window) -> float | None:
        first = self._drifts.first(class_id, arm.arm_id)
        return first * BLOCK_S if first > min(window.blocks, default=0) else None

    def _views(self, class_id: ClassId, grouped: Grouped, weights: FloatArray) -> list[ArmView]:
        """What the policy sees of each group: its own strata, and what the others say of it."""
        sums, ended = grouped.weighted(weights)
        given: Sequence[Prior | None] = [None]
        if len(grouped.starts) > 1:
            groups = groups_of(sums, grouped.starts, self._baseline)
            given = priors(groups, between_variance(groups))
        ended = np.stack(of_the_same_time(ended, self._baseline), axis=1)
        others = ended.sum(axis=0) - ended
        seen = others.sum(axis=1, keepdims=True)
        ended = ended + others * np.minimum(1.0, _POOLED_FAILURES / np.maximum(seen, 1.0))
        rows = [*grouped.starts, len(sums)]
        views = []
        for group, prior in enumerate(given):
            mine = sums[rows[group] : rows[group + 1]]
            mine = mine[mine[:, 0].any(axis=1)]
            n, total, total_sq = (mine[:, figure] for figure in range(3))
            served, failed = ended[group]
            view = ArmView(class_id, self._arms, n, total, total_sq, served, failed, prior)
            views.append(view)
        return views

    def _bands(
        self, class_id: ClassId, found: Found, classes: int, wall: float
    ) -> dict[str, PartSnapshot]:
        """Looks at answers that copy and at the others, and settles whether that matters."""
        if not found.copying:
            self._split.discard(class_id)
            return {}
        level = 1.0 - ALPHA / (classes * max(len(self._arms) - 1, 1))
        bands, known = self._apart.bands(found, level)
        for arm_id, difference in known.items():
            if _beyond(difference):
                self._split.add(class_id)
                self._events.note(
                    Event(wall, CLASS_SPLITS, class_id, POOLED, arm_id, difference, level)
                )
        if len(known) == len(self._arms) - 1 and all(map(_within, known.values())):
            self._split.discard(class_id)
        return bands

    @property
    def _segment_level(self) -> float:
        return 1.0 - ALPHA / (self._most_pairs * max(len(self._arms) - 1, 1))

    def _note(self, known: ClassSnapshot, wall: float) -> None:
        level = self._segment_level
        for part, of in known.parts.items():
            for arm_id, difference in of.differs.items():
                if segment_of(part) and _beyond(difference):
                    self._events.note(
                        Event(
                            wall, SEGMENT_DIFFERS, known.class_id, part, arm_id, difference, level
                        )
                    )


def _stands(event: Event, classes: Mapping[ClassId, ClassSnapshot], oldest: int) -> bool:
    if event.kind == DRIFT:
        there = event.class_id == EVERY or event.class_id in classes
        return there and event.change is not None and event.change.wall > oldest * BLOCK_S
    known = classes.get(event.class_id)
    if known is None:
        return False
    return event.part in known.parts if event.part else known.split


def _sent(cell: CellSums) -> bool:
    """Whether so many of its requests could have gone nowhere else that its tails are theirs."""
    return cell.plain.get("sent", 0) > _MOST_SENT * cell.count(Status.OK)


def _one_source(cell: CellSums) -> bool:
    """Whether all steps were learned in one way: parts do not tell them apart."""
    return sum(cell.steps(source).n > 0 for source in STEP_FIELDS) == 1


def _beyond(difference: Difference) -> bool:
    return difference.low > MARGIN or difference.high < -MARGIN


def _within(difference: Difference) -> bool:
    return difference.low >= -MARGIN and difference.high <= MARGIN
