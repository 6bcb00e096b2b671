"""The past as points to draw: slots, blocks or hours, by how far back is looked.

A stretch that does not change any more is folded once; nothing is read before somebody asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from policies.types import Arm, ArmId, ClassId
from router.breath import breathe
from router.dashboard.fold import Figures, fold
from router.estimates.layout import (
    BLOCK_S,
    OPEN_SLOTS,
    SLOT_S,
    SLOTS_PER_HOUR,
    Cells,
    slot_at,
)
from router.estimates.reader import Reader
from router.estimates.slot_clock import SlotClock

SLOTS_SPAN_S = 900.0 + 2 * SLOT_S
"""Looking back so far, points are slots."""

_MOST_FOLDED = 4096
"""Stretches that are kept folded; the one asked for longest ago goes first."""

_SERIES = (
    *("requests", "failed", "tokens", "tokens_per_step"),
    *("ttft_p50", "ttft_p95", "tpot_p50", "tpot_p95"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sums of a stretch of time.

    Attributes:
        start: Seconds since the epoch.
        length_s: So far, where it is not over.
        cells: The sums.
        sealed: Whether they will not change any more.
    """

    start: float
    length_s: float
    cells: Cells
    sealed: bool


class Points:
    """The past of one route, as columns.

    Args:
        reader: Of the route.
        slots: The clock of all processes.
        window_s: How far back blocks are kept.
    """

    def __init__(self, reader: Reader, slots: SlotClock, window_s: int) -> None:
        self._reader = reader
        self._slots = slots
        self._window_s = window_s
        self._read: dict[int, Cells] = {}
        """Slots that will not change any more."""
        self._folded: OrderedDict[
            tuple[int, float, ClassId | None], tuple[Cells, Mapping[ArmId, Figures]]
        ] = OrderedDict()

    async def columns(
        self, arms: Sequence[Arm], since: float, class_id: ClassId | None
    ) -> dict[str, Any]:
        """Columns for charts.

        Args:
            arms: Of the route.
            since: Seconds since the epoch.
            class_id: Whose; None for all classes together.

        Raises:
            StoreError: The store did not answer.
        """
        step_s, stretches = await self._stretches(since)
        # Before the first request there is nothing to draw, and what has just begun says little.
        stretches = list(dropwhile(lambda of: not of.cells, stretches))
        if len(stretches) > 1 and stretches[-1].length_s < step_s / 2:
            stretches.pop()
        folded = [await self._fold(step_s, of, arms, class_id) for of in stretches]
        totals = [sum(of.requests for of in by_arm.values()) for by_arm in folded]
        return {
            "step_s": step_s,
            "times": [of.start for of in stretches],
            "lengths_s": [of.length_s for of in stretches],
            "requests_per_s": [
                n / of.length_s if of.length_s > 0 else None
                for n, of in zip(totals, stretches, strict=True)
            ],
            "pools": [
                {
                    "pool": arm.arm_id,
                    "share": [
                        by_arm[arm.arm_id].requests / n if n else None
                        for by_arm, n in zip(folded, totals, strict=True)
                    ],
                    **{
                        name: [getattr(by_arm[arm.arm_id], name) for by_arm in folded]
                        for name in _SERIES
                    },
                    "gain": [by_arm[arm.arm_id].gain for by_arm in folded],
                }
                for arm in arms
            ],
        }

    async def _stretches(self, since: float) -> tuple[int, list[Stretch]]:
        """How long they are, and those that reach beyond `since`, the oldest first."""
        now = self._slots.wall()
        if now - since <= SLOTS_SPAN_S:
            return SLOT_S, await self._slot_stretches(since, now)
        if now - since <= self._window_s + BLOCK_S:
            past = self._reader.past()
            blocks = {
                index: (cells, index in past.complete) for index, cells in past.blocks.items()
            }
            return BLOCK_S, _laid(blocks, BLOCK_S, since, now)
        hours = await self._reader.history.read_hours(since)
        current = self._slots.now() // SLOTS_PER_HOUR
        told = {hour: (cells, hour < current) for hour, cells in hours.items()}
        return SLOTS_PER_HOUR * SLOT_S, _laid(told, SLOTS_PER_HOUR * SLOT_S, since, now)

    async def _slot_stretches(self, since: float, now: float) -> list[Stretch]:
        current = self._slots.now()
        wanted = range(slot_at(max(since, now - SLOTS_SPAN_S)), current + 1)
        missing = [slot for slot in wanted if slot not in self._read]
        found = await self._reader.history.read_slots(missing)
        known = {**self._read, **found}
        sealed = current - OPEN_SLOTS
        # What was asked for is kept, what is too old for any chart of slots is not.
        oldest = slot_at(now - SLOTS_SPAN_S)
        self._read = {slot: of for slot, of in known.items() if oldest <= slot <= sealed}
        slots = {slot: (known[slot], slot <= sealed) for slot in wanted}
        return _laid(slots, SLOT_S, since, now)

    async def _fold(
        self, step_s: int, stretch: Stretch, arms: Sequence[Arm], class_id: ClassId | None
    ) -> Mapping[ArmId, Figures]:
        key = step_s, stretch.start, class_id
        kept = self._folded.get(key)
        # Hours of the past may be read anew, and are then other sums.
        if kept is not None and kept[0] is stretch.cells and {a.arm_id for a in arms} == {*kept[1]}:
            self._folded.move_to_end(key)
            return kept[1]
        made: Mapping[ArmId, Figures] = {}
        for piece in fold(stretch.cells, arms, class_id):
            if piece is None:
                await breathe()
            else:
                made = piece
        if stretch.sealed:
            self._folded[key] = stretch.cells, made
            while len(self._folded) > _MOST_FOLDED:
                self._folded.popitem(last=False)
        return made


def _laid(
    stretches: Mapping[int, tuple[Cells, bool]], step_s: int, since: float, now: float
) -> list[Stretch]:
    """Every stretch from the first to the last, those of which nothing is known too."""
    if not stretches:
        return []
    nothing: Cells = {}
    return [
        Stretch(float(index * step_s), min(float(step_s), now - index * step_s), cells, sealed)
        for index in range(max(min(stretches), int(since // step_s)), max(stretches) + 1)
        for cells, sealed in [stretches.get(index, (nothing, False))]
    ]
