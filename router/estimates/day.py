"""What a route's pools have saved since the day began, by UTC: its blocks folded to one figure.

A block of two minutes is what counts as the same time. Those that are over are folded once; those
of an hour that is over are kept as a few sums for each part of a class. What a process has not seen
as blocks, because it began later in the day than the window reaches back, is known to it by the
hour only, and without parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from policies.estimators.cells import CellSums
from policies.estimators.savings import ClassTimes, Saved, saved
from policies.types import Arm, ArmId, ClassId
from router.breath import breathe
from router.estimates.layout import BLOCK_S, COMMON, Cells, segment_of
from router.estimates.parts import gathered, is_load
from router.estimates.reader import Past, Reader
from router.estimates.segments import MAX_PAIRS, bounded, find
from router.estimates.spent import (
    ClassSums,
    Piece,
    added,
    class_times,
    hourly_times,
    piece_steps,
    sums_of,
)
from router.types import SegmentId

DAY_S = 86_400
_HOUR_S = 3600
_HOUR_BLOCKS = _HOUR_S // BLOCK_S

MAX_TOLD = 2 * MAX_PAIRS
"""Pairs of class and segment that are told apart in a day; later ones are the rest."""


@dataclass(frozen=True, slots=True)
class Today:
    """One route since the day began.

    Attributes:
        since: Seconds since the epoch.
        saved: None where no answer has a concurrent control.
    """

    since: float
    saved: Saved | None


Stretch = Mapping[ClassId, ClassSums]
Pairs = Mapping[ClassId, Collection[SegmentId]]


class Day:
    """Keeps the day folded.

    Args:
        arms: Of the route.
        reader: Knows the window, and reads hours.
        window_s: How far back the window reaches.
    """

    def __init__(self, arms: Sequence[Arm], reader: Reader, window_s: int) -> None:
        self._arms = tuple(arms)
        self._reader = reader
        self._window_s = window_s
        self._begins = 0.0
        """From when on blocks are known."""
        self._blocks: dict[int, Stretch] = {}
        """Those that are over, of hours that are not."""
        self._over: dict[ClassId, Piece] = {}
        """All before these blocks."""
        self._earlier: dict[ClassId, Piece] = {}
        """Blocks that count by the hour: what they tell of parts."""
        self._open_from = 0
        """The first block that is not among those."""
        self._told: dict[ClassId, set[SegmentId]] = {}
        self._lately: Pairs = {}
        """Segments told apart at the last look."""
        self._hours: dict[int, tuple[Cells, Stretch]] = {}
        self._first: int | None = None
        self._newest = 0
        """The last block that was seen."""

    async def look(self, now: float) -> Today:
        """Folds what is new, in pieces.

        Args:
            now: Seconds since the epoch.

        Raises:
            StoreError: The store did not answer.
        """
        since, past = now // DAY_S * DAY_S, self._reader.past()
        from_hour = math.ceil(self._known_from(now, past.newest_block) * BLOCK_S / _HOUR_S)
        begins = max(since, from_hour * _HOUR_S)
        hours = await self._fold_hours(since, from_hour) if since < begins else []
        if begins != self._begins:
            await self._begin(begins, past if hours else None)
        growing = await self._fold_blocks(past)
        await self._tell_apart([*self._blocks.values(), *growing.values()])
        # The block before the newest may have nothing yet, and still get what comes late.
        await self._close(min((*growing, past.newest_block - 1)))
        return Today(since, saved(await self._times(hours, list(growing.values()))))

    def _known_from(self, now: float, newest: int) -> int:
        """The first block that is known from its beginning, and all from it on."""
        whole = int((now - self._window_s) // BLOCK_S) + 1
        if self._first is None or self._newest < whole - 1:
            self._first, self._begins = whole, 0.0  # what lies between was never seen
        self._newest = newest
        return self._first

    async def _begin(self, begins: float, past: Past | None) -> None:
        """Forgets all but what is told apart now.

        Args:
            begins: From when on blocks count.
            past: Tells of those before; None where none count by the hour.
        """
        self._begins = begins
        self._open_from = math.ceil(begins / BLOCK_S)
        self._blocks = {i: of for i, of in self._blocks.items() if i >= self._open_from}
        self._over = {}
        self._told = {class_id: set(of) for class_id, of in self._lately.items()}
        blocks = {} if past is None else past.blocks
        before = [await self._fold(of) for i, of in blocks.items() if i < self._open_from]
        await self._tell_apart(before)
        self._earlier = {}
        for class_id in sorted({class_id for of in before for class_id in of}):
            self._earlier[class_id] = await self._piece(class_id, before)
            await breathe()

    async def _fold_blocks(self, past: Past) -> dict[int, Stretch]:
        """Keeps those that are over; gives those that still grow."""
        growing: dict[int, Stretch] = {}
        for index, cells in past.blocks.items():
            if index < self._open_from or index in self._blocks:
                continue
            folded = await self._fold(cells)
            if index in past.complete:
                self._blocks[index] = folded
            else:
                growing[index] = folded
        return growing

    async def _fold_hours(self, since: float, from_hour: int) -> list[Stretch]:
        """Hours of the day that are not known by blocks."""
        hours = await self._reader.history.read_hours(since, from_hour * _HOUR_S)
        folded: dict[int, tuple[Cells, Stretch]] = {}
        for number, cells in hours.items():
            kept = self._hours.get(number)
            same = kept is not None and kept[0] is cells
            folded[number] = kept if kept and same else (cells, await self._fold(cells))
        self._hours = folded
        return [of for _, of in folded.values()]

    async def _fold(self, cells: Cells) -> Stretch:
        wanted = {arm.arm_id for arm in self._arms}
        found: dict[ClassId, dict[SegmentId, dict[ArmId, CellSums]]] = {}
        for (arm_id, class_id, part), fields in cells.items():
            if arm_id in wanted and class_id != COMMON and not is_load(part):
                parts = found.setdefault(class_id, {})
                parts.setdefault(part, {})[arm_id] = CellSums.of(fields)
                await breathe()
        made: dict[ClassId, ClassSums] = {}
        for class_id, of in found.items():
            made[class_id] = sums_of(self._arms, of)
            await breathe()
        return made

    async def _tell_apart(self, stretches: Sequence[Stretch]) -> None:
        """As snapshots do, by what is not put away yet; what was once stays so until midnight."""
        found = {}
        for class_id in sorted({class_id for of in stretches for class_id in of}):
            strata = gathered([of.strata for of in _of(class_id, stretches)], self._arms)
            await breathe()
            found[class_id] = find(strata, frozenset(map(segment_of, strata.names)))
            await breathe()
        self._lately = {
            class_id: sorted({*map(segment_of, of.segments), *map(segment_of, of.parts)} - {""})
            for class_id, of in bounded(found).items()
        }
        room = MAX_TOLD - sum(map(len, self._told.values()))
        for class_id, segments in self._lately.items():
            told = self._told.setdefault(class_id, set())
            new = [segment for segment in segments if segment not in told][: max(room, 0)]
            told.update(new)
            room -= len(new)

    async def _close(self, before: int) -> None:
        """Puts hours away whose blocks are all over.

        Args:
            before: The first block that may still grow.
        """
        end = before // _HOUR_BLOCKS * _HOUR_BLOCKS
        if end <= self._open_from:
            return
        over = [self._blocks[index] for index in sorted(self._blocks) if index < end]
        for class_id in sorted({class_id for of in over for class_id in of}):
            piece = await self._piece(class_id, over)
            kept = self._over.get(class_id)
            self._over[class_id] = piece if kept is None else added(kept, piece)
            await breathe()
        self._blocks = {index: of for index, of in self._blocks.items() if index >= end}
        self._open_from = end

    async def _times(
        self, hours: Sequence[Stretch], growing: Sequence[Stretch]
    ) -> list[ClassTimes]:
        """All that there is to be compared."""
        times: list[ClassTimes] = []
        stretches = [*self._blocks.values(), *growing]
        there = {class_id for of in (*hours, *stretches) for class_id in of}
        for class_id in sorted(there | self._over.keys()):
            known = self._over.get(class_id)
            if any(class_id in of for of in stretches):
                piece = await self._piece(class_id, stretches)
                known = piece if known is None else added(known, piece)
                await breathe()
            if known is not None:
                times += class_times(known)
            by_hour = _of(class_id, hours)
            if by_hour:
                evidence = [of for of in (known, self._earlier.get(class_id)) if of is not None]
                times += hourly_times(by_hour, self._arms, evidence)
            await breathe()
        return times

    async def _piece(self, class_id: ClassId, stretches: Sequence[Stretch]) -> Piece:
        told = self._told.get(class_id, ())
        for piece in piece_steps(_of(class_id, stretches), self._arms, told):
            if piece is not None:
                return piece
            await breathe()
        raise AssertionError("the last step is the piece")


def _of(class_id: ClassId, stretches: Sequence[Stretch]) -> list[ClassSums]:
    return [of[class_id] for of in stretches if class_id in of]
