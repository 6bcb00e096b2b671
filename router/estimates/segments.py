"""Which parts of a class are told apart, and into which group a part goes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.estimators.pooling import Difference
from policies.estimators.verdict import Gain
from policies.estimators.window import exponential_weight
from policies.types import ArmId, ArmView, ClassId
from router.estimates.layout import COPYING, segment_of
from router.estimates.parts import Gathered
from router.types import POOLED, SegmentId

MAX_SEGMENTS = 64
"""Segments of a route that are told apart; the others are the rest of their class."""

MAX_PAIRS = 128
"""Pairs of class and segment of a route that are told apart; the largest."""

_SEGMENT_HALF_LIFE_S = 600.0
"""Of the traffic by which segments are chosen. Judgement: an application that stopped makes room
within an hour."""


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
class Found:
    """The strata of a class, and which of its parts have data enough to be told apart.

    Attributes:
        gathered: The strata.
        segments: With the observations they have.
        parts: The same for segments by copy band.
        copying: Whether there are answers of both bands.
    """

    gathered: Gathered
    segments: Mapping[SegmentId, int]
    parts: Mapping[SegmentId, int]
    copying: bool

    def keys(self, *, split: bool) -> tuple[SegmentId, ...]:
        """Groups beside the rest."""
        return (SegmentId(COPYING), *self.parts) if split else tuple(self.segments)


def find(strata: Gathered, largest: frozenset[SegmentId]) -> Found:
    """Looks for parts with data enough among the largest segments."""
    segments = {key: n for key, n in strata.telling(segment_of).items() if key in largest}
    if not any(name.endswith(COPYING) for name in strata.names):
        return Found(strata, segments, segments, copying=False)
    parts = {
        key: n for key, n in strata.telling(lambda part: part).items() if segment_of(key) in largest
    }
    bands = strata.telling(lambda part: SegmentId("+" if part.endswith(COPYING) else "-"))
    return Found(strata, segments, parts, copying=len(bands) > 1)


def bounded(found: Mapping[ClassId, Found]) -> dict[ClassId, Found]:
    """Leaves the largest pairs of class and segment, and of class, segment and band."""

    def largest_pairs(
        pairs: Mapping[ClassId, Mapping[SegmentId, int]],
    ) -> set[tuple[ClassId, SegmentId]]:
        ranked = sorted(
            (-n, class_id, key) for class_id in pairs for key, n in pairs[class_id].items()
        )
        return {(class_id, key) for _, class_id, key in ranked[:MAX_PAIRS]}

    segments = largest_pairs({class_id: of.segments for class_id, of in found.items()})
    parts = largest_pairs({class_id: of.parts for class_id, of in found.items()})
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


def grouping(keys: Sequence[SegmentId], *, split: bool) -> Callable[[SegmentId], SegmentId]:
    """Which group a part belongs to."""
    there = set(keys)

    def group(part: SegmentId) -> SegmentId:
        key = part if split else segment_of(part)
        if key in there:
            return key
        return SegmentId(COPYING) if split and part.endswith(COPYING) else POOLED

    return group


def largest(blocks: Iterable[tuple[float, Mapping[SegmentId, int]]]) -> frozenset[SegmentId]:
    """The largest segments of blocks, given by their age and the requests of their segments."""
    recent: Counter[SegmentId] = Counter()
    for age, sizes in blocks:
        weight = exponential_weight(age, _SEGMENT_HALF_LIFE_S)
        for segment, n in sizes.items():
            recent[segment] += weight * n  # type: ignore[assignment]
    return frozenset(sorted(recent, key=lambda s: (-recent[s], s))[:MAX_SEGMENTS])
