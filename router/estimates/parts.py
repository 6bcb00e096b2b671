"""Sums of a class by stratum and part, and how parts are put together to groups of strata.

Pure. A part is a segment, perhaps with a copy band (`router.estimates.layout`); a group is what has
strata of its own. Load bands count the same requests again, so they are never among the parts of a
class; laid out alone they are parts like others. Rows are arrays, because a class may have sixty
blocks of a hundred parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from policies.estimators.cells import CellSums
from policies.estimators.increments import FIXED_POINT, SENT, STEP_FIELDS
from policies.estimators.mixes import alike
from policies.estimators.tau import Tau, standardised
from policies.types import Arm, ArmId, FloatArray, Status
from router.types import POOLED, SegmentId

IntArray = NDArray[np.int64]

MIN_N = 20
"""Observations below which a part is not told apart. Judgement: a verdict needs some 24 a side."""

MIN_PER_STRATUM = 2.0
"""Fewer observations to a stratum than this mostly meet no other arm in it, and say nothing."""


LOAD = "~"
"""Begins the name of a part that is a load band: `~0` to `~4` (`docs/decisions/0009`)."""

_STEPS, _TOKENS = (tuple(fields[place] for fields in STEP_FIELDS.values()) for place in (0, 2))
"""Fields of steps and of their tokens, however steps were learned."""


def is_load(part: SegmentId) -> bool:
    """Whether a part is a load band.

    Example:
        >>> is_load(SegmentId("~3")), is_load(SegmentId("3fa2+"))
        (True, False)
    """
    return part.startswith(LOAD)


@dataclass(frozen=True, slots=True)
class Strata:
    """Sums of one class in one block, disjoint: what is in no part is in `POOLED`.

    Attributes:
        sums: n, sum and sum of squares of log cost, shape (rows, 3, arms).
        kind: Code of each row's kind of log cost, shape (rows,).
        lean: Code of where the policy leaned, shape (rows,); 0 where it did not look.
        part: Code of each row's part, shape (rows,).
        ended: Requests that ended well, that failed, and whose answers were abandoned, shape
            (parts, 3, arms).
        steps: Steps and their tokens, however learned, of the same parts, shape (parts, 2, arms).
        ended_part: Codes of these parts, shape (parts,).
        names: These parts.
    """

    sums: FloatArray
    kind: NDArray[np.uint32]
    lean: NDArray[np.uint32]
    part: IntArray
    ended: NDArray[np.int32]
    steps: NDArray[np.int32]
    ended_part: IntArray
    names: tuple[SegmentId, ...]


def strata_of(arms: Sequence[Arm], cells: Mapping[SegmentId, Mapping[ArmId, CellSums]]) -> Strata:
    """Lays the cells of a class out; `cells[POOLED]` is the whole of it, parts included.

    Where parts hold more than the whole, which no writer of ours adds, the rest is empty.
    """
    columns = {arm.arm_id: index for index, arm in enumerate(arms)}
    parts = sorted({POOLED, *cells})
    order = sorted(
        {
            (part, kind)
            for part, by_arm in cells.items()
            for arm_id, cell in by_arm.items()
            if arm_id in columns
            for kind in cell.finest_cost
        }
    )
    row_of = {key: row for row, key in enumerate(order)}
    costs: list[tuple[int, ...]] = []
    counts: list[tuple[int, ...]] = []
    for at, part in enumerate(parts):
        for arm_id, cell in cells.get(part, {}).items():
            column = columns.get(arm_id)
            if column is None:
                continue
            plain = cell.plain.get
            # Those that could have gone nowhere else say nothing of the arm.
            ended_so = cell.count(Status.OK), cell.count(Status.FAILED), plain("abandoned", 0)
            sent = (plain(name, 0) for name in SENT)
            served, failed, abandoned = (
                max(all_ - some, 0) for all_, some in zip(ended_so, sent, strict=True)
            )
            steps, tokens = (sum(plain(name, 0) for name in of) for of in (_STEPS, _TOKENS))
            counts.append((at, column, served, failed, abandoned, steps, tokens))
            for kind, cost in cell.finest_cost.items():
                costs.append((row_of[part, kind], column, cost.n, cost.s, cost.q))
    ended = _laid(counts, (len(parts), 5, len(arms)))
    sums = _laid(costs, (len(order), 3, len(arms)))
    _take_out_parts(sums, row_of)
    ended[0] -= ended[1:].sum(axis=0)
    np.clip(ended, 0.0, 2.0**31 - 1.0, out=ended)
    counted = ended.astype(np.int32)
    there = sums[:, 0].any(axis=1)
    return Strata(
        sums=sums[there] * _UNITS,
        kind=np.array([_codes(kind)[0] for _, kind in order], dtype=np.uint32)[there],
        lean=np.array([_codes(kind)[1] for _, kind in order], dtype=np.uint32)[there],
        part=np.array([_code(part) for part, _ in order], dtype=np.int64)[there],
        ended=counted[:, :3],
        steps=counted[:, 3:],
        ended_part=np.array([_code(part) for part in parts], dtype=np.int64),
        names=tuple(parts),
    )


@lru_cache(maxsize=1024)
def _codes(kind: str) -> tuple[int, int]:
    """Of a kind, and of the lean that stands behind it (`policies.proposal.lean_of`)."""
    of, mark, lean = kind.partition("x")
    return crc32(of.encode()), crc32(lean.encode()) if mark else 0


def _laid(entries: Sequence[tuple[int, ...]], shape: tuple[int, int, int]) -> FloatArray:
    """Puts (row, column, figures) in their places."""
    made: FloatArray = np.zeros(shape)
    if entries:
        flat = np.array(entries, dtype=np.float64)
        made[flat[:, 0].astype(int), :, flat[:, 1].astype(int)] = flat[:, 2:]
    return made


def _take_out_parts(sums: FloatArray, row_of: Mapping[tuple[SegmentId, str], int]) -> None:
    """Leaves under `POOLED` what is in no part."""
    for (part, kind), row in row_of.items():
        if part and (POOLED, kind) in row_of:
            sums[row_of[POOLED, kind]] -= sums[row]
    for (part, _), row in row_of.items():
        if not part:
            sums[row][:, ~_possible(sums[row])] = 0.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """The strata of a class over several blocks.

    Attributes:
        sums: As in `Strata`.
        block: Which block a row is of, counted from 0, shape (rows,).
        kind: As in `Strata`.
        lean: As in `Strata`.
        part: Index into `names`, shape (rows,).
        ended: As in `Strata`.
        steps: As in `Strata`.
        ended_block: Which block an entry of `ended` is of.
        ended_part: Index into `names`.
        names: Parts.
    """

    sums: FloatArray
    block: IntArray
    kind: IntArray
    lean: IntArray
    part: IntArray
    ended: FloatArray
    steps: FloatArray
    ended_block: IntArray
    ended_part: IntArray
    names: tuple[SegmentId, ...]

    def telling(self, group: Callable[[SegmentId], SegmentId]) -> dict[SegmentId, int]:
        """Groups of parts with data enough to be told apart, and their observations."""
        keys, index = _grouped(self.names, group)
        if not len(self.part):
            return {}
        at = index[self.part]
        n = np.bincount(at, self.sums[:, 0].sum(axis=1), len(keys))
        order = np.lexsort((self.kind, self.block, at))
        first = _changes(at[order], self.block[order], self.kind[order])
        strata = np.maximum(np.bincount(at[order][first], minlength=len(keys)), 1)
        enough = (n >= MIN_N) & (n >= MIN_PER_STRATUM * strata)
        return {key: int(n[i]) for i, key in enumerate(keys) if enough[i] and key}

    def grouped(
        self,
        keys: Sequence[SegmentId],
        group: Callable[[SegmentId], SegmentId],
        *,
        by_moment: bool = False,
    ) -> Grouped:
        """Puts parts together.

        Args:
            keys: Of the groups.
            group: Answers one of them for each part.
            by_moment: Whether each lean of the policy has strata of its own, for figures that
                people are shown; policies weigh all of a block together.
        """
        position = {key: i for i, key in enumerate(keys)}
        index = np.array([position[group(name)] for name in self.names] or [0], dtype=np.int64)
        at = np.concatenate([index[self.part], np.arange(len(keys))])  # no group without a row
        block = np.concatenate([self.block, np.full(len(keys), -1)])
        none = np.zeros(len(keys), dtype=np.int64)
        kind, lean = (np.concatenate([of, none]) for of in (self.kind, self.lean))
        if not by_moment:
            lean = np.zeros_like(lean)
        sums = np.concatenate([self.sums, np.zeros((len(keys), *self.sums.shape[1:]))])
        order = np.lexsort((lean, kind, block, at))
        at, block = at[order], block[order]
        first = _changes(at, block, kind[order], lean[order])
        added = np.add.reduceat(sums[order], first, axis=0)
        at, block = at[first], block[first]
        only = np.bincount(at, minlength=len(keys)) == 1
        kept = (block >= 0) | only[at]
        at = at[kept]
        return Grouped(
            added[kept],
            block[kept],
            tuple(np.searchsorted(at, np.arange(len(keys))).tolist()),
            index[self.ended_part],
            self.ended,
            self.steps,
            self.ended_block,
        )


@dataclass(frozen=True, slots=True)
class Grouped:
    """Strata of groups, one group after another.

    Attributes:
        sums: Shape (rows, 3, arms).
        block: Shape (rows,); -1 for a row without anything in it.
        starts: First row of each group.
        ended_group: Group of each entry of `ended`.
        ended: Shape (entries, 3, arms).
        steps: Steps and their tokens, shape (entries, 2, arms).
        ended_block: Block of each entry.
    """

    sums: FloatArray
    block: IntArray
    starts: tuple[int, ...]
    ended_group: IntArray
    ended: FloatArray
    steps: FloatArray
    ended_block: IntArray

    def weighted(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows, and requests by group, block and how they ended, each by the weight of its block.

        The second is of shape (groups, blocks, 3, arms).
        """
        known = np.append(weights, 0.0)
        return self.sums * known[self.block][:, None, None], self.by_block(
            self.ended * known[self.ended_block][:, None, None], len(weights)
        )

    def by_block(self, counts: FloatArray, blocks: int) -> FloatArray:
        """Adds entries up, shape (groups, blocks, figures, arms)."""
        groups, (_, figures, arms) = len(self.starts), counts.shape
        if not blocks:
            return np.zeros((groups, 0, figures, arms))
        at = self.ended_group * blocks + self.ended_block
        made = _added(counts, at, range(groups * blocks))
        return made.reshape(groups, blocks, figures, arms)

    def only(self, told: NDArray[np.bool_]) -> Grouped:
        """The same of some blocks, which each arm has its own of; shape (blocks, arms)."""
        known = np.concatenate([told, np.zeros((1, told.shape[1]), dtype=np.bool_)])
        return replace(
            self,
            sums=self.sums * known[self.block][:, None],
            ended=self.ended * known[self.ended_block][:, None],
            steps=self.steps * known[self.ended_block][:, None],
        )

    def mix(self, blocks: int) -> Mix:
        """What each group had of each arm."""
        both = np.concatenate([self.steps, self.ended[:, :1]], axis=1)
        figures = self.by_block(both, blocks)
        return Mix(figures[:, :, 2], figures[:, :, :2])


@dataclass(frozen=True, slots=True)
class Mix:
    """What each group of a class had of each arm.

    Attributes:
        served: Requests that ended well, shape (groups, blocks, arms).
        steps: Steps and their tokens, shape (groups, blocks, 2, arms).
    """

    served: FloatArray
    steps: FloatArray

    def taus(self, arm: int) -> tuple[Tau, Tau] | None:
        """Tau of an arm's answers, and the same weighed by the traffic of the class."""
        steps, tokens = self.steps[:, :, 0, arm], self.steps[:, :, 1, arm]
        served = self.served.sum(axis=1)
        known = self.steps[:, :, 1].sum(axis=1)
        telling = known.sum(axis=0) > 0.0
        # Requests to arms whose engines tell no steps are taken to be as long as the others.
        told = np.maximum(served[:, telling].sum(axis=1), 1.0)
        traffic = known.sum(axis=1) * np.maximum(served.sum(axis=1) / told, 1.0)
        own = standardised(tokens, steps, known[:, arm])
        of_class = standardised(tokens, steps, traffic)
        return None if own is None or of_class is None else (own, of_class)

    def alike(self, baseline: int) -> NDArray[np.bool_]:
        """Which arms answered the same mix of groups as the baseline, shape (arms,)."""
        return alike(self.served.swapaxes(0, 1), baseline)


def _added(counts: NDArray[Any], group: IntArray, starts: Sequence[int]) -> FloatArray:
    """Sums by group, shape (groups, figures, arms)."""
    made: FloatArray = np.zeros((len(starts), *counts.shape[1:]))
    order = np.argsort(group, kind="stable")
    there, first = np.unique(group[order], return_index=True)
    if len(there):
        made[there] = np.add.reduceat(counts[order], first, axis=0)
    return made


def gathered(blocks: Sequence[Strata | None], arms: Sequence[Arm]) -> Gathered:
    """Puts the strata of a class in several blocks one after another."""
    there = [(i, strata) for i, strata in enumerate(blocks) if strata is not None]
    names: dict[int, SegmentId] = {}
    for _, strata in there:
        names |= zip(strata.ended_part.tolist(), strata.names, strict=True)
    codes = np.array(sorted(names), dtype=np.int64)
    part = _joined([strata.part for _, strata in there])
    ended_part = _joined([strata.ended_part for _, strata in there])
    return Gathered(
        np.concatenate([_none(3, arms), *(strata.sums for _, strata in there)]),
        _joined([np.full(len(strata.part), i) for i, strata in there]),
        _joined([strata.kind.astype(np.int64) for _, strata in there]),
        _joined([strata.lean.astype(np.int64) for _, strata in there]),
        np.searchsorted(codes, part),
        np.concatenate([_none(3, arms), *(strata.ended for _, strata in there)]),
        np.concatenate([_none(2, arms), *(strata.steps for _, strata in there)]),
        _joined([np.full(len(strata.ended_part), i) for i, strata in there]),
        np.searchsorted(codes, ended_part),
        tuple(names[code] for code in codes.tolist()),
    )


def _changes(*sorted_keys: IntArray) -> IntArray:
    """Where a new combination of keys begins."""
    new = np.ones(len(sorted_keys[0]), dtype=np.bool_)
    new[1:] = np.any([keys[1:] != keys[:-1] for keys in sorted_keys], axis=0)
    return np.flatnonzero(new)


_UNITS = np.array([1.0, 1.0 / FIXED_POINT, 1.0 / FIXED_POINT])[None, :, None]


_SLACK = 5e-5 * FIXED_POINT**2
"""What rounding adds to a mean of squares."""


def _possible(row: FloatArray) -> NDArray[np.bool_]:
    n, s, q = row
    possible: NDArray[np.bool_] = (
        (n > 0.0) & (q >= 0.0) & (s * s <= q * n * FIXED_POINT + _SLACK * n * n)
    )
    return possible


def _none(figures: int, arms: Sequence[Arm]) -> FloatArray:
    return np.zeros((0, figures, len(arms)))


def _joined(arrays: Iterable[NDArray[np.int64]]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


def _grouped(
    names: Sequence[SegmentId], group: Callable[[SegmentId], SegmentId]
) -> tuple[list[SegmentId], IntArray]:
    keys: dict[SegmentId, int] = {}
    index = [keys.setdefault(group(name), len(keys)) for name in names]
    return list(keys), np.array(index or [0], dtype=np.int64)


@lru_cache(maxsize=4096)
def _code(part: SegmentId) -> int:
    """A number for a part, the same everywhere; 0 is `POOLED`."""
    if not part:
        return 0
    digest = hashlib.blake2b(part.encode(errors="replace"), digest_size=7).digest()
    return int.from_bytes(digest, "big") + 1
