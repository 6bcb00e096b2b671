"""What is known at one moment: the one source of policies, dashboard, status and metrics.

Pure: sums in, values out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policies.estimators.cells import CellSums, add
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.histogram import total
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
from policies.estimators.verdict import (
    MARGIN,
    Gain,
    TailRatio,
    Verdict,
    gain_of,
    tail_ratio,
    verdict,
)
from policies.estimators.window import exponential_weight
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Prior, Source, Status
from router.estimates.layout import BLOCK_S, COPYING, Cells, segment_of
from router.estimates.parts import Gathered, Grouped, Strata, gathered, strata_of
from router.estimates.reader import Past
from router.types import POOLED, SegmentId

MAX_SEGMENTS = 64
"""Segments of a route that are told apart; the others are the rest of their class."""

MAX_PAIRS = 128
"""Pairs of class and segment of a route that are told apart; the largest."""

MAX_EVENTS = 50

TAIL_QUANTILE = 0.95
_RECENT_BLOCKS = 2
"""Traffic shares are those of the last two to four minutes."""

_SEGMENT_HALF_LIFE_S = 600.0
"""Of the traffic by which segments are chosen. Judgement: an application that stopped makes room
within an hour."""

_CELLS_PER_STEP = 100

_ALPHA = 0.05
_POOLED_FAILURES = 50.0
"""Requests of the rest of the class that count for a part when failures are judged. Judgement: an
arm fails for all segments more often than for one."""

_LATENCIES = ("ttft", "tpot", "e2e", "e2ew")


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A latency over the window, in seconds."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One class on one arm over the window; None is what was not measured."""

    arm_id: ArmId
    ended: Mapping[Status, int]
    share: float | None
    """Of the class's requests in the last minutes."""
    tokens: int
    acceptance_length: float | None
    """Tokens per step, tau."""
    acceptance_rate: float | None
    """Probability that a drafted token is accepted, alpha."""
    acceptance_form: str | None
    """`histogram`: measured position by position; `equal_alpha`: solved from tau and k."""
    draft_acceptance_rate: float | None
    measured: int
    """Requests behind the acceptance figures."""
    sources: Mapping[Source, int]
    latency: Mapping[str, Quantiles]
    gain: Gain | None
    tail: TailRatio | None
    """p95 of TPOT against the baseline's."""
    verdict: Verdict | None
    """None for the baseline, which everything is compared with."""


@dataclass(frozen=True, slots=True)
class PartSnapshot:
    """A part of a class that is told apart: a segment, or a copy band, or a segment's band.

    Attributes:
        n: Log costs it has.
        gains: By arm, from its own data alone; None is not known.
        differs: How the effect of an arm differs from that in the rest of the class, by arm.
        view: What the policy sees of it; None for a band that is measured but not split off.
    """

    n: int
    gains: Mapping[ArmId, Gain | None]
    differs: Mapping[ArmId, Difference]
    view: ArmView | None


@dataclass(frozen=True, slots=True)
class ClassSnapshot:
    """One class: what the policy sees of it, and what people see."""

    class_id: ClassId
    view: ArmView
    """Discounted by age; the rest of the class where parts of it are told apart."""
    cells: Mapping[ArmId, CellSummary]
    parts: Mapping[SegmentId, PartSnapshot] = field(default_factory=dict)
    bands: Mapping[str, PartSnapshot] = field(default_factory=dict)
    """`copying` and `free`: answers that mostly repeat the request, and the others."""
    split: bool = False
    """Whether the bands are told apart."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was found and that people should know.

    Attributes:
        wall: When it was found (again, after a restart).
        kind: `segment_differs` or `class_splits`.
        class_id: Where.
        part: The segment, perhaps with its band; `POOLED` when it is about the class.
        arm_id: The arm by which it shows.
        difference: Of the arm's effect on log cost: the segment less the rest of the class, or
            answers that copy less those that do not.
        level: Confidence of the interval, at all looks together.
    """

    wall: float
    kind: str
    class_id: ClassId
    part: SegmentId
    arm_id: ArmId
    difference: Difference
    level: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One route at one moment."""

    version: int
    built_wall: float
    arms: tuple[Arm, ...]
    classes: Mapping[ClassId, ClassSnapshot]
    events: tuple[Event, ...] = ()
    """The newest last; each for as long as what it is about is told apart."""

    def views(self) -> Iterator[tuple[ClassId, SegmentId, ArmView]]:
        """All that a policy is asked about; `POOLED` is the class, or the rest of it."""
        for class_id, known in self.classes.items():
            yield class_id, POOLED, known.view
            for part, of in known.parts.items():
                if of.view is not None:
                    yield class_id, part, of.view


class SnapshotBuilder:
    """Builds snapshots of one route; remembers what cannot change between two of them."""

    def __init__(self, arms: tuple[Arm, ...], *, half_life_s: float, tail_limit: float) -> None:
        self._arms = arms
        self._half_life_s = half_life_s
        self._tail_limit = tail_limit
        self._baseline = next(index for index, arm in enumerate(arms) if arm.baseline)
        self._parsed: dict[int, _Block] = {}
        self._past: _Cells = {}
        self._version = 0
        self._most_pairs = 1
        self._split: set[ClassId] = set()
        self._events: dict[tuple[ClassId, SegmentId, ArmId], Event] = {}

    def build(self, past: Past, wall: float) -> Snapshot:
        """Turns sums into what is known."""
        *_, snapshot = self.steps(past, wall)
        if snapshot is None:
            raise AssertionError("the last step is the snapshot")
        return snapshot

    def steps(self, past: Past, wall: float) -> Iterator[Snapshot | None]:
        """The same in pieces, a class each, so that requests get their turn in between.

        Yields None after each piece and the snapshot at the end.
        """
        blocks: dict[int, _Block] = {}
        for index in sorted(past.blocks):
            block = self._parsed.get(index)
            if block is None:
                block = yield from _parse(self._arms, past.blocks[index])
            blocks[index] = block
        complete = {index: block for index, block in blocks.items() if index in past.complete}
        if complete.keys() != self._parsed.keys():
            sums: _Cells = {}
            for block in complete.values():
                sums = _sum([sums, block.cells])
                yield None
            self._parsed, self._past = complete, sums
        growing = [block.cells for index, block in blocks.items() if index not in past.complete]
        totals = _sum([self._past, *growing])
        yield None
        newest = past.newest_block - _RECENT_BLOCKS
        recent = _sum(block.cells for index, block in blocks.items() if index > newest)
        ages = [wall - (index + 1) * BLOCK_S for index in blocks]
        weights = np.array([exponential_weight(age, self._half_life_s) for age in ages])
        yield None
        largest = _largest(zip(ages, blocks.values(), strict=True))
        yield None
        found: dict[ClassId, _Found] = {}
        for class_id in sorted({class_id for _, class_id in totals}):
            strata = [block.strata.get(class_id) for block in blocks.values()]
            found[class_id] = _find(gathered(strata, self._arms), largest)
            yield None
        found = _bounded(found)
        yield None
        self._most_pairs = max(self._most_pairs, sum(len(of.segments) for of in found.values()))
        classes: dict[ClassId, ClassSnapshot] = {}
        for class_id, of in found.items():
            bands = self._bands(class_id, of, len(found), wall)
            yield None
            classes[class_id] = yield from self._class(
                class_id, of, weights, bands=bands, totals=totals, recent=recent
            )
            self._note(classes[class_id], wall)
            yield None
        self._forget_events(classes)
        self._version += 1
        events = tuple(self._events.values())[-MAX_EVENTS:]
        yield Snapshot(self._version, wall, self._arms, classes, events)

    def _class(
        self,
        class_id: ClassId,
        found: _Found,
        weights: FloatArray,
        *,
        bands: Mapping[str, PartSnapshot],
        totals: _Cells,
        recent: _Cells,
    ) -> Generator[None, None, ClassSnapshot]:
        split = class_id in self._split
        keys = [POOLED, *found.keys(split=split)]
        grouped = found.gathered.grouped(keys, _grouping(keys, split=split))
        yield
        views = self._views(class_id, grouped, weights)
        yield
        n, total, total_sq = (grouped.sums[:, figure] for figure in range(3))
        nothing = np.zeros(len(self._arms))
        plain = ArmView(class_id, self._arms, n, total, total_sq, nothing, nothing)
        judged = _Judged(arm_effects(plain), n.sum(axis=0))
        requests = sum(recent.get((arm.arm_id, class_id), _NOTHING).n for arm in self._arms)
        baseline = totals.get((self._arms[self._baseline].arm_id, class_id), _NOTHING)
        cells = {}
        for index, arm in enumerate(self._arms):
            key = (arm.arm_id, class_id)
            share = recent.get(key, _NOTHING).n / requests if requests else None
            cell = totals.get(key, _NOTHING)
            comparison = None if arm.baseline else self._compare(index, cell, baseline, judged)
            cells[arm.arm_id] = _summary(arm, cell, share, comparison)
        yield
        parts = self._parts(keys, grouped, views) if len(keys) > 1 else {}
        return ClassSnapshot(class_id, views[0], cells, parts, bands, split)

    def _views(self, class_id: ClassId, grouped: Grouped, weights: FloatArray) -> list[ArmView]:
        """What the policy sees of each group: its own strata, and what the others say of it."""
        sums, ended = grouped.weighted(weights)
        given: Sequence[Prior | None] = [None]
        if len(grouped.starts) > 1:
            groups = groups_of(sums, grouped.starts, self._baseline)
            given = priors(groups, between_variance(groups))
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

    def _parts(
        self, keys: Sequence[SegmentId], grouped: Grouped, views: Sequence[ArmView]
    ) -> dict[SegmentId, PartSnapshot]:
        groups = groups_of(grouped.sums, grouped.starts, self._baseline)
        apart = differences(groups, rest_of(groups), self._segment_level)
        own = self._summaries(groups, apart, views)
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
        self, class_id: ClassId, found: _Found, classes: int, wall: float
    ) -> dict[str, PartSnapshot]:
        """Measures answers that copy apart from the others, and settles whether that matters."""
        if not found.copying:
            self._split.discard(class_id)
            return {}
        keys = [POOLED, *found.keys(split=True)]
        grouped = found.gathered.grouped(keys, _grouping(keys, split=True))
        groups = groups_of(grouped.sums, grouped.starts, self._baseline)
        sides = [
            [i for i, key in enumerate(keys) if key.endswith(COPYING) is copying]
            for copying in (True, False)
        ]
        level = 1.0 - _ALPHA / (classes * max(len(self._arms) - 1, 1))
        both = joined(groups, sides)
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
                key = (class_id, POOLED, arm_id)
                event = Event(wall, "class_splits", *key, difference, level)
                self._events.setdefault(key, event)
        if len(known) == len(self._arms) - 1 and all(map(_within, known.values())):
            self._split.discard(class_id)
        return bands

    @property
    def _segment_level(self) -> float:
        return 1.0 - _ALPHA / (self._most_pairs * max(len(self._arms) - 1, 1))

    def _note(self, known: ClassSnapshot, wall: float) -> None:
        for part, of in known.parts.items():
            for arm_id, difference in of.differs.items():
                if segment_of(part) and _beyond(difference):
                    key = (known.class_id, part, arm_id)
                    event = Event(wall, "segment_differs", *key, difference, self._segment_level)
                    self._events.setdefault(key, event)

    def _forget_events(self, classes: Mapping[ClassId, ClassSnapshot]) -> None:
        for key in list(self._events):
            class_id, part, _ = key
            known = classes.get(class_id)
            if known is None or not (part in known.parts if part else known.split):
                del self._events[key]

    def _compare(
        self, index: int, cell: CellSums, baseline: CellSums, judged: _Judged
    ) -> _Comparison:
        gain = gain_of(judged.effects, index)
        tail = tail_ratio(cell.histogram("tpot"), baseline.histogram("tpot"), TAIL_QUANTILE)
        found = verdict(
            gain,
            n_arm=float(judged.n[index]),
            n_baseline=float(judged.n[judged.effects.baseline]),
            tails=(tail,),
            limit=self._tail_limit,
        )
        return _Comparison(gain, tail, found)


def _summary(
    arm: Arm, cell: CellSums, share: float | None, comparison: _Comparison | None
) -> CellSummary:
    rate, form = _acceptance_rate(arm, cell)
    return CellSummary(
        arm_id=arm.arm_id,
        ended={status: cell.count(status) for status in Status},
        share=share,
        tokens=cell.plain.get("tokens", 0),
        acceptance_length=cell.acceptance_length,
        acceptance_rate=rate,
        acceptance_form=form,
        draft_acceptance_rate=cell.draft_acceptance_rate,
        measured=cell.plain.get("steps.n", 0),
        sources={
            source: cell.plain[f"source.{source}"]
            for source in Source
            if f"source.{source}" in cell.plain
        },
        latency={name: _quantiles(cell, name) for name in _LATENCIES},
        gain=comparison.gain if comparison else None,
        tail=comparison.tail if comparison else None,
        verdict=comparison.verdict if comparison else None,
    )


_Cells = Mapping[tuple[ArmId, ClassId], CellSums]
_NOTHING = CellSums()


@dataclass(frozen=True, slots=True)
class _Block:
    """One block, read: the whole of each class, its strata, and requests by segment."""

    cells: _Cells
    strata: Mapping[ClassId, Strata]
    sizes: Mapping[SegmentId, int]


@dataclass(frozen=True, slots=True)
class _Found:
    """The strata of a class, and which of its parts have data enough to be told apart."""

    gathered: Gathered
    segments: Mapping[SegmentId, int]
    """With the observations they have."""
    parts: Mapping[SegmentId, int]
    """The same for segments by copy band."""
    copying: bool
    """Whether there are answers of both bands."""

    def keys(self, *, split: bool) -> tuple[SegmentId, ...]:
        """Groups beside the rest."""
        return (SegmentId(COPYING), *self.parts) if split else tuple(self.segments)


def _find(strata: Gathered, largest: frozenset[SegmentId]) -> _Found:
    segments = {key: n for key, n in strata.telling(segment_of).items() if key in largest}
    if not any(name.endswith(COPYING) for name in strata.names):
        return _Found(strata, segments, segments, copying=False)
    parts = {
        key: n for key, n in strata.telling(lambda part: part).items() if segment_of(key) in largest
    }
    bands = strata.telling(lambda part: SegmentId("+" if part.endswith(COPYING) else "-"))
    return _Found(strata, segments, parts, copying=len(bands) > 1)


def _bounded(found: Mapping[ClassId, _Found]) -> dict[ClassId, _Found]:
    """Leaves the largest pairs of class and segment, and of class, segment and band."""

    def largest(pairs: Mapping[ClassId, Mapping[SegmentId, int]]) -> set[tuple[ClassId, SegmentId]]:
        ranked = sorted(
            (-n, class_id, key) for class_id in pairs for key, n in pairs[class_id].items()
        )
        return {(class_id, key) for _, class_id, key in ranked[:MAX_PAIRS]}

    segments = largest({class_id: of.segments for class_id, of in found.items()})
    parts = largest({class_id: of.parts for class_id, of in found.items()})
    return {
        class_id: replace(
            of,
            segments={
                key: n for key, n in sorted(of.segments.items()) if (class_id, key) in segments
            },
            parts={key: n for key, n in sorted(of.parts.items()) if (class_id, key) in parts},
        )
        for class_id, of in found.items()
    }


def _grouping(keys: Sequence[SegmentId], *, split: bool) -> Callable[[SegmentId], SegmentId]:
    """Which group a part belongs to."""
    there = set(keys)

    def group(part: SegmentId) -> SegmentId:
        key = part if split else segment_of(part)
        if key in there:
            return key
        return SegmentId(COPYING) if split and part.endswith(COPYING) else POOLED

    return group


def _largest(blocks: Iterable[tuple[float, _Block]]) -> frozenset[SegmentId]:
    recent: Counter[SegmentId] = Counter()
    for age, block in blocks:
        weight = exponential_weight(age, _SEGMENT_HALF_LIFE_S)
        for segment, n in block.sizes.items():
            recent[segment] += weight * n  # type: ignore[assignment]
    return frozenset(sorted(recent, key=lambda s: (-recent[s], s))[:MAX_SEGMENTS])


def _beyond(difference: Difference) -> bool:
    return difference.low > MARGIN or difference.high < -MARGIN


def _within(difference: Difference) -> bool:
    return difference.low >= -MARGIN and difference.high <= MARGIN


@dataclass(frozen=True, slots=True)
class _Judged:
    """A class's effects against the concurrent baseline, and the observations behind them."""

    effects: ArmEffects
    n: FloatArray


@dataclass(frozen=True, slots=True)
class _Comparison:
    gain: Gain | None
    tail: TailRatio | None
    verdict: Verdict


def _parse(arms: Sequence[Arm], cells: Cells) -> Generator[None, None, _Block]:
    """Reads a block, class by class."""
    by_class: dict[ClassId, dict[SegmentId, dict[ArmId, CellSums]]] = {}
    sizes: Counter[SegmentId] = Counter()
    for count, ((arm_id, class_id, part), fields) in enumerate(cells.items(), 1):
        cell = CellSums.of(fields)
        by_class.setdefault(class_id, {}).setdefault(part, {})[arm_id] = cell
        if segment_of(part):
            sizes[segment_of(part)] += cell.n
        if count % _CELLS_PER_STEP == 0:
            yield
    whole = {
        (arm_id, class_id): cell
        for class_id, parts in by_class.items()
        for arm_id, cell in parts.get(POOLED, {}).items()
    }
    strata = {}
    for class_id, parts in by_class.items():
        strata[class_id] = strata_of(arms, parts)
        if len(parts) > 1:
            yield
    return _Block(whole, strata, sizes)


def _sum(blocks: Iterable[_Cells]) -> dict[tuple[ArmId, ClassId], CellSums]:
    sums: dict[tuple[ArmId, ClassId], CellSums] = {}
    for block in blocks:
        for key, cell in block.items():
            sums[key] = add(sums[key], cell) if key in sums else cell
    return sums


def _acceptance_rate(arm: Arm, cell: CellSums) -> tuple[float | None, str | None]:
    rate = cell.acceptance_rate
    if rate is not None:
        return rate, "histogram"
    # Without a histogram alpha is solved from tau and k, which holds where every step drafts k
    # tokens: for look-up methods, whose steps often draft nothing, it would be a number without
    # a meaning.
    k = arm.num_speculative_tokens
    if k is None or arm.method in ("none", "ngram", "suffix"):
        return None, None
    rate = cell.equal_acceptance_rate(k)
    return rate, None if rate is None else "equal_alpha"


def _quantiles(cell: CellSums, name: str) -> Quantiles:
    p50, p95, p99 = (cell.quantile(name, q) for q in (0.5, 0.95, 0.99))
    return Quantiles(total(cell.histogram(name)), p50, p95, p99)
