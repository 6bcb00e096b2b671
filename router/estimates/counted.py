"""Keeps what engines counted, slot by slot, and finds from it the tokens per step of each class.

Every process reads the counters for itself and keeps them to itself; which classes ran in a slot
comes from all processes, through the store. No I/O here and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from policies.estimators.attribution import CountedTau, Row, attribute, position_rates
from policies.estimators.window import exponential_weight
from policies.types import Arm, ArmId, ClassId
from router.engines.counters import Moves, ReplicaCounters
from router.estimates.layout import OPEN_SLOTS, SLOT_S, slot_at

KEPT_SLOTS = 360
"""An hour."""

HALF_LIFE_S = 1800.0
"""Age at which a slot counts half. Judgement: ten classes take some half hour to be told apart."""

LONGEST_GAP_S = 10.0
"""Between two readings; over a longer one it is unknown in which slots the tokens were made."""

_LONGEST_DRAFT = 16
"""Where neither the configuration nor the counters tell one."""

Made = Mapping[int, Mapping[tuple[ArmId, ClassId], int]]
"""Tokens that requests made, by slot, arm and class."""

MOST_ASKED = 60
"""Slots of made tokens that are asked for at a time."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the servers of an arm counted together in some time; None where one does not tell."""

    tokens: float
    steps: float | None
    accepted: float | None
    drafted: float | None
    drafts: float | None
    prompt_tokens: float | None
    accepted_at: tuple[float, ...] = ()
    """By position of the draft."""

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per step, tau."""
        good = self.steps is not None and 0.0 < self.steps <= self.tokens
        return self.tokens / self.steps if good and self.steps else None

    @property
    def drafting_ratio(self) -> float | None:
        """Share of the steps that had a draft."""
        if self.drafts is None or not self.steps or self.drafts > self.steps:
            return None
        return self.drafts / self.steps

    @property
    def position_rates(self) -> tuple[float | None, ...]:
        """Conditional acceptance by position."""
        return () if self.drafts is None else position_rates(self.drafts, self.accepted_at)


_Totals = tuple[float, ...]
"""The figures of `Counts` in their order, then those by position; NaN where one is not told."""

_STEPS = 1
"""Where the steps are among them."""

_GONE: _Totals = ()
"""Of a server that was not there: nothing runs on it."""


@dataclass(slots=True)
class _Replica:
    """One server: its last reading, and its totals where slots meet."""

    since: int
    until: int | None = None
    """First and last slot in which it was a server of the arm."""
    run: int = 0
    """Changes when what was counted before cannot be set against what comes."""
    read_s: float = -math.inf
    started: float | None = None
    totals: _Totals = _GONE
    at: dict[int, tuple[int, _Totals]] = field(default_factory=dict)
    """Run and totals at the beginning of a slot."""

    def take(self, totals: _Totals, started: float | None, wall: float) -> None:
        gap = wall - self.read_s
        if not 0.0 < gap <= LONGEST_GAP_S or not self._goes_on(totals, started):
            self.run += 1
        else:
            for slot in range(slot_at(self.read_s) + 1, slot_at(wall) + 1):
                share = (slot * SLOT_S - self.read_s) / gap
                self.at[slot] = self.run, _between(self.totals, totals, share)
        self.read_s, self.totals, self.started = wall, totals, started

    def counted(self, slot: int) -> _Totals | None:
        """What it counted in a slot; None where that is not known."""
        first, last = self.at.get(slot), self.at.get(slot + 1)
        if first is None or last is None or first[0] != last[0]:
            return None
        return tuple(b - a for a, b in zip_longest(first[1], last[1], fillvalue=0.0))

    def _goes_on(self, totals: _Totals, started: float | None) -> bool:
        if (totals == _GONE) != (self.totals == _GONE) or started != self.started:
            return False
        # A counter that went back began anew; one that is new or lost cannot be compared. Steps may
        # be a difference of two, which an answer that was cut lets go back a little.
        return all(
            after >= before or index == _STEPS or (math.isnan(after) and math.isnan(before))
            for index, (before, after) in enumerate(zip_longest(self.totals, totals, fillvalue=0.0))
        )


class Counted:
    """What the engines of one route have counted within the last hour.

    Args:
        arms: The route's arms.
        half_life_s: Age at which a slot counts half.
    """

    def __init__(self, arms: Sequence[Arm], *, half_life_s: float = HALF_LIFE_S) -> None:
        self._arms = {arm.arm_id: arm for arm in arms}
        self._half_life_s = half_life_s
        self._replicas: dict[ArmId, dict[str, _Replica]] = {arm.arm_id: {} for arm in arms}
        self._moves: dict[ArmId, Moves] = {}
        self._slots: dict[ArmId, dict[int, Counts]] = {arm.arm_id: {} for arm in arms}
        self._next: dict[ArmId, int] = {}
        """First slot that is not closed."""
        self._made: dict[int, Mapping[tuple[ArmId, ClassId], int]] = {}
        self._found: dict[ArmId, Mapping[ClassId, CountedTau]] = {}
        self._stamps: dict[ArmId, tuple[int, int]] = {}
        """Newest slot and number of slots that was found from."""

    # --- What is read -------------------------------------------------------------------------

    def take(self, arm_id: ArmId, url: str, counters: ReplicaCounters | None, wall: float) -> None:
        """Takes a reading of a server.

        Args:
            arm_id: Whose server it is.
            url: Which one.
            counters: None if it did not tell any. Then, and until it has been read twice, no slot
                of the arm can be used.
            wall: When it was read.
        """
        replica = self._replica(arm_id, url, wall)
        if counters is not None:
            self._moves[arm_id] = counters.moves
            replica.take(_totals(counters), counters.started, wall)

    def gone(self, arm_id: ArmId, url: str, wall: float) -> None:
        """Takes that no server is at the address: whatever is counted elsewhere is all there is."""
        self._replica(arm_id, url, wall).take(_GONE, None, wall)

    def keep(self, known: Mapping[ArmId, Collection[str]], wall: float) -> None:
        """Takes which servers there are that are read; others have no say after this slot."""
        for arm_id, replicas in self._replicas.items():
            there = known.get(arm_id, ())
            for url in there:
                self._replica(arm_id, url, wall)
            for url, replica in replicas.items():
                if url in there:
                    replica.until = None
                elif replica.until is None:
                    replica.until = slot_at(wall)
            self._close(arm_id, wall)  # what has been added up is let go of

    def _replica(self, arm_id: ArmId, url: str, wall: float) -> _Replica:
        slot = slot_at(wall)
        replica = self._replicas[arm_id].setdefault(url, _Replica(slot))
        replica.since = min(replica.since, slot)  # time may have been set back
        return replica

    def missing(self, settled: int, wall: float) -> list[int]:
        """Slots in which something was counted and whose made tokens are not known here.

        Args:
            settled: The last slot whose made tokens do not change any more.
            wall: The time now.
        """
        counted = {slot for arm_id in self._arms for slot in self.slots(arm_id, wall)}
        self._made = {slot: made for slot, made in self._made.items() if slot in counted}
        return sorted(slot for slot in counted - self._made.keys() if slot <= settled)[:MOST_ASKED]

    def learn(self, made: Made) -> None:
        """Takes which classes made how many tokens in slots that do not change any more."""
        self._made.update(made)

    # --- What is known ------------------------------------------------------------------------

    def moves(self, arm_id: ArmId) -> Moves | None:
        """When the counters of an arm's servers move; None before any was read."""
        return self._moves.get(arm_id)

    def slots(self, arm_id: ArmId, wall: float) -> Mapping[int, Counts]:
        """What was counted in each slot of the last hour in which all its servers were read."""
        self._close(arm_id, wall)
        return self._slots[arm_id]

    def total(self, arm_id: ArmId, wall: float) -> Counts | None:
        """All of these slots together; None if there is none."""
        slots = self.slots(arm_id, wall)
        return _counts(_added([_figures(counts) for counts in slots.values()])) if slots else None

    def estimates(self, wall: float) -> Mapping[tuple[ArmId, ClassId], CountedTau]:
        """Tokens per step by arm and class, where arms draft and their engines count steps.

        A call fits at most one arm anew, that whose fit is the oldest, so that it never takes long.
        """
        usable = {
            arm_id: self._usable(arm_id, wall)
            for arm_id, arm in self._arms.items()
            if arm.method != "none"
        }
        stamps = {arm_id: (slots[-1], len(slots)) for arm_id, slots in usable.items() if slots}
        stale = [
            arm_id for arm_id, stamp in stamps.items() if self._stamps.get(arm_id, ()) != stamp
        ]
        if stale:
            oldest = min(stale, key=lambda arm_id: self._stamps.get(arm_id, ()))
            self._stamps[oldest] = stamps[oldest]
            self._found[oldest] = self._fitted(oldest, usable[oldest])
        return {
            (arm_id, class_id): tau
            for arm_id in stamps
            for class_id, tau in self._found.get(arm_id, {}).items()
        }

    def _usable(self, arm_id: ArmId, wall: float) -> list[int]:
        counted = self.slots(arm_id, wall)
        return sorted(slot for slot in counted.keys() & self._made.keys() if counted[slot].steps)

    def _fitted(self, arm_id: ArmId, usable: Sequence[int]) -> Mapping[ClassId, CountedTau]:
        counted = self._slots[arm_id]
        rows = [self._row(arm_id, slot, counted[slot], usable[-1]) for slot in usable]
        classes = sorted({class_id for row in rows for class_id in row.made})
        return attribute(rows, classes, self._longest(arm_id, counted))

    def _row(self, arm_id: ArmId, slot: int, counts: Counts, newest: int) -> Row:
        made = {
            class_id: float(tokens)
            for (arm, class_id), tokens in self._made[slot].items()
            if arm == arm_id
        }
        weight = exponential_weight(float((newest - slot) * SLOT_S), self._half_life_s)
        return Row(slot, counts.tokens, counts.steps or 0.0, made, weight)

    def _longest(self, arm_id: ArmId, counted: Mapping[int, Counts]) -> int:
        told = self._arms[arm_id].num_speculative_tokens
        positions = max((len(counts.accepted_at) for counts in counted.values()), default=0)
        return max(told or 0, positions) or _LONGEST_DRAFT

    def _close(self, arm_id: ArmId, wall: float) -> None:
        """Adds the servers up over the slots that all of them have left behind."""
        now = slot_at(wall)
        replicas, slots = self._replicas[arm_id], self._slots[arm_id]
        if now < self._next.get(arm_id, 0) - OPEN_SLOTS:
            # Time was wrong and has been set back: what lies ahead never was.
            self._next[arm_id] = now
            for slot in [slot for slot in slots if slot >= now]:
                del slots[slot]
        # The current slot may have one more reading to come, and the one before it its last.
        closed = range(max(self._next.get(arm_id, 0), now - KEPT_SLOTS), now - 1)
        for slot in closed:
            there = [
                replica.counted(slot)
                for replica in replicas.values()
                if replica.since <= slot and (replica.until is None or slot <= replica.until)
            ]
            known = [totals for totals in there if totals is not None]
            told = [totals for totals in known if totals != _GONE]
            if told and len(known) == len(there):
                slots[slot] = _counts(_added(told))
        self._next[arm_id] = max(self._next.get(arm_id, 0), closed.stop)
        oldest = now - KEPT_SLOTS
        for slot in [slot for slot in slots if slot < oldest]:
            del slots[slot]
        for url, replica in list(replicas.items()):
            for slot in [slot for slot in replica.at if slot < closed.stop]:
                del replica.at[slot]
            if replica.until is not None and replica.until < closed.stop:
                del replicas[url]


def _totals(counters: ReplicaCounters) -> _Totals:
    told = (
        counters.tokens,
        counters.steps,
        counters.accepted,
        counters.drafted,
        counters.drafts,
        counters.prompt_tokens,
    )
    return tuple(
        math.nan if figure is None else float(figure)
        for figure in (*told, *(counters.per_position or ()))
    )


_PLAIN = 6
"""Figures of `Counts` that are not by position."""


def _figures(counts: Counts) -> _Totals:
    told = (
        counts.tokens,
        counts.steps,
        counts.accepted,
        counts.drafted,
        counts.drafts,
        counts.prompt_tokens,
    )
    plain = (math.nan if figure is None else figure for figure in told)
    return (*plain, *counts.accepted_at)


def _counts(totals: _Totals) -> Counts:
    tokens, *rest = totals[:_PLAIN]
    steps, accepted, drafted, drafts, prompt_tokens = (
        None if math.isnan(figure) else figure for figure in rest
    )
    return Counts(tokens, steps, accepted, drafted, drafts, prompt_tokens, totals[_PLAIN:])


def _between(first: _Totals, last: _Totals, share: float) -> _Totals:
    return tuple(a + (b - a) * share for a, b in zip_longest(first, last, fillvalue=0.0))


def _added(totals: Sequence[_Totals]) -> _Totals:
    return tuple(map(sum, zip_longest(*totals, fillvalue=0.0)))
