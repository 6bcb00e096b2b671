"""What is known at one moment: the one source of policies, dashboard, status and metrics.

Pure: sums in, values out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.estimators.effects import ArmEffects, arm_effects, shared_of
from policies.estimators.ended import ABANDONED_MARGIN, LEAST_MET, excess, of_the_same_time
from policies.estimators.increments import STEP_FIELDS
from policies.estimators.pooling import (
    Difference,
    Groups,
    between_variance,
    differences,
    groups_of,
    joined,
    priors,
    rest_of,
)
from policies.estimators.shared import NOTHING_SHARED, Shared
from policies.estimators.verdict import (
    FAILURE_MARGIN,
    MARGIN,
    UNMET_MARGIN,
    Ended,
    Gain,
    fails_more,
    fixed_sample_gain,
    gain_of,
    verdict,
)
from policies.estimators.window import exponential_weight
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Prior, Source, Status
from router.estimates.blocks import Block, Sums, parse, summed
from router.estimates.costs import ArmCosts, Costs
from router.estimates.drifts import CellSeries, Detector, Drifts, costs_of, never, series_of
from router.estimates.durations import Durations
from router.estimates.events import CLASS_SPLITS, DRIFT, EVERY, SEGMENT_DIFFERS, Event, Events
from router.estimates.layout import BLOCK_S, COPYING, segment_of
from router.estimates.parts import LOAD, Grouped, gathered
from router.estimates.reader import Past
from router.estimates.segments import Found, PartSnapshot, bounded, find, grouping, largest
from router.estimates.summary import (
    CellSummary,
    Comparison,
    Counted,
    Structure,
    abandoned_share,
    acceptance_of,
    latencies,
    repeats_of,
    tails,
    whole_answers,
)
from router.types import POOLED, SegmentId

_RECENT_BLOCKS = 2
"""Traffic shares are those of the last two to four minutes."""

_ALPHA = 0.05
_POOLED_FAILURES = 50.0
"""Requests of the rest of the class that count for a part when failures are judged. Judgement: an
arm fails for all segments more often than for one."""

_MOST_SENT = 0.02
"""Share of requests that could have gone nowhere else. Judgement: p95 hardly moves by them."""

_NO_COUNTS: Counted = {}
_NOTHING = CellSums()


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


@dataclass(frozen=True, slots=True)
class _Window:
    """All blocks of the window, and what was added up over them."""

    blocks: Mapping[int, Block]
    weights: FloatArray
    """Of blocks, by age."""
    totals: Sums
    recent: Sums
    counted: Counted
    wall: float

    @property
    def numbers(self) -> list[int]:
        """Of the blocks."""
        return list(self.blocks)

    def first(self, key: tuple[ArmId, ClassId], told: NDArray[np.bool_]) -> float | None:
        """When the first block began that tells of a cell, shape (blocks,)."""
        for tells, (number, block) in zip(told.tolist(), self.blocks.items(), strict=True):
            if tells and key in block.cells:
                return number * BLOCK_S
        return None

    def cell(self, key: tuple[ArmId, ClassId], told: NDArray[np.bool_]) -> CellSums:
        """One cell over the blocks that tell of it, shape (blocks,)."""
        if told.all():
            return self.totals.get(key, _NOTHING)
        blocks = zip(told.tolist(), self.blocks.values(), strict=True)
        there = [{key: of.cells[key]} for tells, of in blocks if tells and key in of.cells]
        return summed(there).get(key, _NOTHING)


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
        self._tail_limit = tail_limit
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

    def _window(self, past: Past, wall: float, counted: Counted) -> Generator[None, None, _Window]:
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
        return _Window(blocks, weights, totals, recent, counted, wall)

    def _found(self, window: _Window) -> Generator[None, None, dict[ClassId, Found]]:
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
        self, class_id: ClassId, found: Found, window: _Window, bands: Mapping[str, PartSnapshot]
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
        effects = shown = self._effects(class_id, grouped)
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
            shown = self._effects(class_id, moments)
            yield
        by_load = self._by_load(class_id, window, told)
        worse = self._worse(class_id, grouped, window, told)
        judged = _Judged(told, shown, grouped.sums[:, 0].sum(axis=0), by_load, worse)
        yield
        cells = yield from self._cells(class_id, grouped, window, judged)
        parts = self._parts(keys, grouped, views, moments, shown.shared) if len(keys) > 1 else {}
        return ClassSnapshot(class_id, views[0], cells, parts, bands, split, series)

    def _effects(self, class_id: ClassId, grouped: Grouped) -> ArmEffects:
        n, total, total_sq = (grouped.sums[:, figure] for figure in range(3))
        nothing = np.zeros(len(self._arms))
        view = ArmView(class_id, self._arms, n, total, total_sq, nothing, nothing)
        return arm_effects(view, blocks=grouped.block)

    def _cells(
        self, class_id: ClassId, grouped: Grouped, window: _Window, judged: _Judged
    ) -> Generator[None, None, dict[ArmId, CellSummary]]:
        requests = sum(window.recent.get((a.arm_id, class_id), _NOTHING).n for a in self._arms)
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
                sent = _sent(cell) or _sent(window.totals.get(plain, _NOTHING))
                compared = self._compare(
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
                share=window.recent.get(key, _NOTHING).n / requests if requests else None,
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

    def _compare(
        self, index: int, durations: Durations, judged: _Judged, *, alike: bool, sent: bool
    ) -> Comparison:
        effects = judged.effects
        gain = gain_of(effects, index)
        against = tails(durations, index, self._baseline)
        found = verdict(
            gain,
            n_arm=float(judged.n[index]),
            n_baseline=float(judged.n[effects.baseline]),
            tails=tuple(against.values()) if alike and not sent else (),
            failing=judged.worse.failing[index],
            abandoned=judged.worse.abandoned[index],
            limit=self._tail_limit,
        )
        once = fixed_sample_gain(effects, index)
        # Sums by load are not told apart by part.
        by_load = {band: of[index] if alike else None for band, of in judged.by_load.items()}
        more = judged.worse.abandoned[index]
        return Comparison(gain, once, by_load, against, alike and not sent, found, more)

    def _worse(
        self, class_id: ClassId, grouped: Grouped, window: _Window, told: NDArray[np.bool_]
    ) -> _Worse:
        """Which arms end worse than the baseline does at the same time, in the same parts."""
        ended = grouped.by_block(grouped.ended, len(told)).reshape(-1, 3, len(self._arms))
        served, failed, abandoned = ended.swapaxes(0, 1)
        fails = excess(failed, served + failed, self._baseline)
        failing = fails.above(FAILURE_MARGIN)
        # What the baseline did at other times bears on an arm that it did not meet.
        plain = _ended(window.totals.get((self._arms[self._baseline].arm_id, class_id), _NOTHING))
        for index in np.flatnonzero(fails.met < LEAST_MET).tolist():
            cell = window.cell((self._arms[index].arm_id, class_id), told[:, index])
            failing[index] = fails_more(_ended(cell), plain, UNMET_MARGIN)
        left = excess(abandoned, served + failed + abandoned, self._baseline)
        return _Worse(failing.tolist(), left.above(ABANDONED_MARGIN).tolist())

    def _series(
        self, class_id: ClassId, grouped: Grouped, window: _Window, effects: ArmEffects
    ) -> dict[ArmId, CellSeries]:
        made = {}
        for index, arm in enumerate(self._arms):
            cell = window.totals.get((arm.arm_id, class_id), _NOTHING)
            made[arm.arm_id] = CellSeries(
                series_of(window.blocks, class_id, arm, cell.best_source),
                costs_of(grouped, window.numbers, effects, index),
            )
        return made

    def _since(self, class_id: ClassId, arm: Arm, window: _Window) -> float | None:
        first = self._drifts.first(class_id, arm.arm_id)
        return first * BLOCK_S if first > min(window.blocks, default=0) else None

    def _by_load(
        self, class_id: ClassId, window: _Window, told: NDArray[np.bool_]
    ) -> dict[int, list[Gain | None]]:
        """Gains of the arms in each load band that was met, from its own data alone."""
        strata = gathered(
            [block.loads.get(class_id) for block in window.blocks.values()], self._arms
        )
        keys = [POOLED, *sorted(name for name in strata.names if _band(name) is not None)]
        if len(keys) == 1:
            return {}
        grouped = strata.grouped(
            keys, lambda part: part if part in keys else POOLED, by_moment=True
        ).only(told)
        # What answers of a block share is asked of each band: their effects are not the same.
        return {
            band: self._gains(grouped, group)
            for group, key in enumerate(keys)
            if (band := _band(key)) is not None
        }

    def _gains(self, grouped: Grouped, group: int) -> list[Gain | None]:
        rows = slice(grouped.starts[group], (*grouped.starts, len(grouped.sums))[group + 1])
        sums, blocks = grouped.sums[rows], grouped.block[rows]
        shared = shared_of(sums, self._baseline, blocks)
        groups = groups_of(sums, [0], self._baseline, blocks=blocks, shared=shared)
        [effects] = differences(groups, None, 1.0 - _ALPHA)
        return [effect.as_gain() if effect else None for effect in effects]

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

    def _groups(self, grouped: Grouped, shared: Shared = NOTHING_SHARED) -> Groups:
        """Args: `shared` is for gains; between groups served at the same time it cancels."""
        return groups_of(
            grouped.sums, grouped.starts, self._baseline, blocks=grouped.block, shared=shared
        )

    def _joined(self, grouped: Grouped, sides: Sequence[Sequence[int]], shared: Shared) -> Groups:
        """Groups put together by side: what a block's answers share, all of a side do."""
        ends = (*grouped.starts[1:], len(grouped.sums))
        spans = [
            [np.arange(grouped.starts[group], ends[group]) for group in side] for side in sides
        ]
        if not all(spans):
            return joined(self._groups(grouped, shared), sides)
        rows = [np.concatenate(side) for side in spans]
        starts = np.cumsum([0, *map(len, rows[:-1])]).tolist()
        order = np.concatenate(rows)
        return groups_of(
            grouped.sums[order],
            starts,
            self._baseline,
            blocks=grouped.block[order],
            shared=shared,
        )

    def _parts(
        self,
        keys: Sequence[SegmentId],
        grouped: Grouped,
        views: Sequence[ArmView],
        moments: Grouped,
        shared: Shared,
    ) -> dict[SegmentId, PartSnapshot]:
        groups = self._groups(grouped)
        apart = differences(groups, rest_of(groups), self._segment_level)
        own = self._summaries(self._groups(moments, shared), apart, views)
        return {key: part for key, part in zip(keys, own, strict=True) if key}

    def _summaries(
        self,
        groups: Groups,
        apart: Sequence[Sequence[Difference | None]],
        views: Sequence[ArmView | None],
    ) -> list[PartSnapshot]:
        named = [arm.arm_id for arm in self._arms]
        own = differences(groups, None, 1.0 - _ALPHA)
        return [
            PartSnapshot(
                n=int(groups.n[group].sum()),
                gains={
                    arm_id: effect.as_gain() if effect else None
                    for arm_id, effect in zip(named, own[group], strict=True)
                },
                differs={
                    arm_id: difference
                    for arm_id, difference in zip(named, apart[group], strict=True)
                    if difference is not None
                },
                view=view,
            )
            for group, view in enumerate(views)
        ]

    def _bands(
        self, class_id: ClassId, found: Found, classes: int, wall: float
    ) -> dict[str, PartSnapshot]:
        """Measures answers that copy apart from the others, and settles whether that matters."""
        if not found.copying:
            self._split.discard(class_id)
            return {}
        keys = [POOLED, *found.keys(split=True)]
        group = grouping(keys, split=True)
        grouped = found.gathered.grouped(keys, group)
        moments = found.gathered.grouped(keys, group, by_moment=True)
        groups = self._groups(grouped)
        sides = [
            [i for i, key in enumerate(keys) if key.endswith(COPYING) is copying]
            for copying in (True, False)
        ]
        level = 1.0 - _ALPHA / (classes * max(len(self._arms) - 1, 1))
        shared = shared_of(moments.sums, self._baseline, moments.block)
        both = self._joined(moments, sides, shared)
        apart = differences(joined(groups, sides[:1]), joined(groups, sides[1:]), level)[0]
        bands = dict(
            zip(
                ("copying", "free"),
                self._summaries(both, [apart, [None] * len(apart)], [None, None]),
                strict=True,
            )
        )
        known = {
            arm.arm_id: difference
            for arm, difference in zip(self._arms, apart, strict=True)
            if difference is not None
        }
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
        return 1.0 - _ALPHA / (self._most_pairs * max(len(self._arms) - 1, 1))

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


@dataclass(frozen=True, slots=True)
class _Judged:
    """A class's effects against the concurrent baseline, and the observations behind them."""

    told: NDArray[np.bool_]
    """Whether a block tells of an arm as it is now, shape (blocks, arms)."""
    effects: ArmEffects
    n: FloatArray
    by_load: Mapping[int, Sequence[Gain | None]]
    worse: _Worse


@dataclass(frozen=True, slots=True)
class _Worse:
    """By arm, whether its requests surely end worse than the baseline's.

    Attributes:
        failing: They fail more often.
        abandoned: Their answers are abandoned more often.
    """

    failing: Sequence[bool]
    abandoned: Sequence[bool]


def _stands(event: Event, classes: Mapping[ClassId, ClassSnapshot], oldest: int) -> bool:
    if event.kind == DRIFT:
        there = event.class_id == EVERY or event.class_id in classes
        return there and event.change is not None and event.change.wall > oldest * BLOCK_S
    known = classes.get(event.class_id)
    if known is None:
        return False
    return event.part in known.parts if event.part else known.split


def _ended(cell: CellSums) -> Ended:
    return Ended(cell.count(Status.OK), cell.count(Status.FAILED))


def _sent(cell: CellSums) -> bool:
    """Whether so many of its requests could have gone nowhere else that its tails are theirs."""
    return cell.plain.get("sent", 0) > _MOST_SENT * cell.count(Status.OK)


def _one_source(cell: CellSums) -> bool:
    """Whether all steps were learned in one way: parts do not tell them apart."""
    return sum(cell.steps(source).n > 0 for source in STEP_FIELDS) == 1


def _band(part: SegmentId) -> int | None:
    band = part.removeprefix(LOAD)
    return int(band) if part.startswith(LOAD) and band.isdecimal() and band.isascii() else None


def _beyond(difference: Difference) -> bool:
    return difference.low > MARGIN or difference.high < -MARGIN


def _within(difference: Difference) -> bool:
    return difference.low >= -MARGIN and difference.high <= MARGIN
