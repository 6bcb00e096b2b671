"""What answers of a class took, by part, and what they cost against the baseline's. Pure.

Parts are those of `router.estimates.parts`. A part that is told apart has an effect of its own, as
it has shares of its own: the time that an arm's answers took is that of the parts that it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.estimators.effects import ArmEffects, shared_of
from policies.estimators.increments import FIXED_POINT, SPENT
from policies.estimators.mixes import alike
from policies.estimators.pooling import Groups, effects_of, groups_of, joined, together
from policies.estimators.savings import ClassTimes
from policies.types import Arm, ArmId, FloatArray
from router.estimates.layout import COPYING, segment_of
from router.estimates.parts import Strata, gathered, strata_of
from router.types import POOLED, SegmentId

_MOST_VARIANCE = 0.1
"""Of an effect that is compared. Judgement: an answer or two of the baseline, where noise is usual.
Below that noise decides what a part saved, and the whole has no bound for its sake."""


@dataclass(frozen=True, slots=True)
class ClassSums:
    """One class in one stretch of time.

    Attributes:
        strata: Its log costs.
        times: Of the parts that `strata` names: seconds, answers, tokens, and answers that did not
            tell theirs; shape (parts, 4, arms).
    """

    strata: Strata
    times: FloatArray


@dataclass(frozen=True, slots=True)
class Piece:
    """One class over some stretches of time; pieces of a class add up.

    Attributes:
        keys: Groups of parts with effects of their own; `POOLED` is the rest.
        groups: What is known of their effects.
        times: As in `ClassSums`, by group.
    """

    keys: tuple[SegmentId, ...]
    groups: Groups
    times: FloatArray


def sums_of(arms: Sequence[Arm], cells: Mapping[SegmentId, Mapping[ArmId, CellSums]]) -> ClassSums:
    """Lays the cells of a class out; `cells[POOLED]` is the whole of it, parts included."""
    strata = strata_of(arms, cells)
    times = np.zeros((len(strata.names), len(SPENT), len(arms)))
    for row, part in enumerate(strata.names):
        of = cells.get(part, {})
        for column, arm in enumerate(arms):
            if arm.arm_id in of:
                plain = of[arm.arm_id].plain
                times[row, :, column] = [plain.get(name, 0) for name in SPENT]
    rest = strata.names.index(POOLED)
    times[rest] = np.maximum(2.0 * times[rest] - times.sum(axis=0), 0.0)
    times[:, 0] /= FIXED_POINT
    return ClassSums(strata, times)


def piece_of(
    stretches: Sequence[ClassSums], arms: Sequence[Arm], told: Collection[SegmentId]
) -> Piece:
    """Puts a class together; segments that are told apart are groups, and each band of them."""
    *_, piece = piece_steps(stretches, arms, told)
    if piece is None:
        raise AssertionError("the last step is the piece")
    return piece


def piece_steps(
    stretches: Sequence[ClassSums], arms: Sequence[Arm], told: Collection[SegmentId]
) -> Iterator[Piece | None]:
    """The same in steps, so that requests get their turn in between.

    Yields None after each step and the piece at the end.
    """
    strata = gathered([of.strata for of in stretches], arms)
    yield None
    group = _grouping(told)
    named = {name: group(name) for name in strata.names}
    keys = tuple(sorted({POOLED, *named.values()}))
    grouped = strata.grouped(keys, group, by_moment=True)
    yield None
    place = {name: keys.index(key) for name, key in named.items()}
    times = np.zeros((len(keys), len(SPENT), len(arms)))
    for of in stretches:
        pick = np.zeros((len(keys), len(of.times)))
        pick[[place[name] for name in of.strata.names], range(len(of.times))] = 1.0
        times += np.tensordot(pick, of.times, axes=1)
    yield None
    baseline = next(index for index, arm in enumerate(arms) if arm.baseline)
    shared = shared_of(grouped.sums, baseline, grouped.block)
    yield None
    groups = groups_of(grouped.sums, grouped.starts, baseline, blocks=grouped.block, shared=shared)
    yield Piece(keys, groups, times)


def added(one: Piece, other: Piece) -> Piece:
    """Two pieces of a class as one."""
    keys = tuple(sorted({*one.keys, *other.keys}))
    members: dict[SegmentId, list[int]] = {key: [] for key in keys}
    for at, key in enumerate((*one.keys, *other.keys)):
        members[key].append(at)
    both = np.concatenate([one.times, other.times])
    times = np.stack([both[of].sum(axis=0) for of in members.values()])
    return Piece(keys, joined(together(one.groups, other.groups), list(members.values())), times)


def class_times(piece: Piece) -> list[ClassTimes]:
    """What there is to be compared, group by group."""
    found = []
    for effects, of in zip(effects_of(piece.groups, _MOST_VARIANCE), piece.times, strict=True):
        seconds, answers, tokens, silent = of
        found.append(ClassTimes(effects, seconds, answers, np.where(silent > 0.0, np.nan, tokens)))
    return found


def hourly_times(
    hours: Sequence[ClassSums], arms: Sequence[Arm], known: Sequence[Piece]
) -> list[ClassTimes]:
    """The same of what is known as a whole, by the hour, because it was not seen as blocks.

    It is compared only where parts cannot matter, going by what is known of the class otherwise: no
    segment is told apart, and arms answer the same mix of copy bands as the baseline does.

    Args:
        hours: Without parts.
        arms: Of the route.
        known: The class by blocks; none where it did not come in any, so that nobody knows.
    """
    piece = piece_of(hours, arms, ())
    times = class_times(piece)
    like = np.full(len(arms), bool(known))
    for of in known:
        told = any(map(segment_of, of.keys))
        like &= not told and alike(of.times[None, :, 1], piece.groups.baseline)
    return [replace(of, effects=_of_some(of.effects, like)) for of in times]


def _of_some(effects: ArmEffects, these: NDArray[np.bool_]) -> ArmEffects:
    return replace(effects, identified=effects.identified & these)


def _grouping(told: Collection[SegmentId]) -> Callable[[SegmentId], SegmentId]:
    """Which group a part belongs to; bands of what is not told apart are groups."""

    def group(part: SegmentId) -> SegmentId:
        if segment_of(part) in told:
            return part
        return SegmentId(COPYING) if part.endswith(COPYING) else POOLED

    return group
