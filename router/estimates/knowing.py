"""What policies that know the whole route are told, from the same blocks as the snapshot.

Sums of blocks that do not change any more are laid out once. Parts of classes that are told apart
are many, so only some of them are brought up to date at each look, in turn; whole classes always.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from policies.estimators.knowledge import (
    FIELDS,
    PREFILL_FIELDS,
    STEP_FIELDS,
    Expectations,
    Rows,
    band_costs,
    belief,
    changed_s,
    prefill_of,
    step_ratios,
)
from policies.estimators.load import BANDS, PARTS
from policies.estimators.mixes import alike
from policies.estimators.window import exponential_weight
from policies.guard import TAIL
from policies.knowledge import Belief, Knowledge, parent
from policies.types import Arm, ArmId, ClassId, Counts, FloatArray
from router.estimates.layout import BLOCK_S, COMMON, COPYING, Cells, segment_of
from router.estimates.reader import Past
from router.types import GREEDY, SegmentId

PARTS_A_LOOK = 16
"""Parts brought up to date at a time. Judgement: at a look a second, 128 of them take eight."""

_CELLS_PER_STEP = 64
_COSTS = FIELDS.index("y.s.n")
_BAND = {part: band for band, part in enumerate(PARTS)}

Key = tuple[ClassId, str]
"""Class and part, as policies name parts: `+` is the copy band, `+/a1` the application a1 in it."""


def policy_part(part: SegmentId) -> str:
    """A part by the name that policies know it under, so that they see what it is a part of.

    Example:
        >>> policy_part(SegmentId("a1+")), policy_part(SegmentId("a1")), policy_part(SegmentId("+"))
        ('+/a1', 'a1', '+')
        >>> policy_part(SegmentId("greedy-a1+")), policy_part(SegmentId("greedy"))
        ('+/greedy/a1', 'greedy')
    """
    greedy, dash, application = segment_of(part).partition("-")
    levels = (greedy, application) if greedy == GREEDY and dash else (segment_of(part),)
    copying = COPYING if part.endswith(COPYING) else ""
    return "/".join(level for level in (copying, *levels) if level)


def _up(name: str) -> Iterator[str]:
    """A part and what it is a part of; the whole class has sums of its own.

    Example:
        >>> list(_up("+/greedy/a1")), list(_up(""))
        (['+/greedy/a1', '+/greedy', '+'], [''])
    """
    yield name
    while name := parent(name):
        yield name


@dataclass(frozen=True, slots=True)
class _Laid:
    """One block as arrays."""

    rows: Mapping[Key, FloatArray] = field(default_factory=dict)
    """Shape (len(FIELDS), arms)."""
    steps: FloatArray | None = None
    prefill: FloatArray | None = None
    costs: Mapping[ClassId, FloatArray] = field(default_factory=dict)


class Knowing:
    """Knowledge of one route; remembers what cannot change between two looks."""

    def __init__(self, arms: tuple[Arm, ...], expected: Expectations, half_life_s: float) -> None:
        self._arms = arms
        self._expected = expected
        self._half_life_s = half_life_s
        self._place = {arm.arm_id: index for index, arm in enumerate(arms)}
        self._baseline = next(index for index, arm in enumerate(arms) if arm.baseline)
        self._laid: dict[int, _Laid] = {}
        self._beliefs: dict[Key, Belief] = {}
        self._turn = 0

    def look(
        self, past: Past, parts: Mapping[ClassId, Collection[SegmentId]], wall: float
    ) -> Generator[None, None, Knowledge]:
        """All that is known, in pieces, so that requests get their turn in between.

        Args:
            past: The sums.
            parts: Those that are told apart, by class.
            wall: The moment.
        """
        blocks: dict[int, _Laid] = {}
        for index in sorted(past.blocks):
            laid = self._laid.get(index)
            if laid is None:
                laid = yield from self._lay(past.blocks[index])
            blocks[index] = laid
        self._laid = {index: blocks[index] for index in blocks if index in past.complete}
        ages = {index: wall - (index + 1) * BLOCK_S for index in blocks}
        yield
        classes = sorted({class_id for laid in blocks.values() for class_id, _ in laid.rows})
        names = {
            class_id: sorted({n for p in parts.get(class_id, ()) for n in _up(policy_part(p))})
            for class_id in classes
        }
        since: dict[ClassId, FloatArray] = {}
        held: dict[Key, Belief] = {}
        for class_id in classes:
            rows = _rows(blocks, ages, (class_id, ""))
            if rows is None:
                continue
            since[class_id] = changed_s(rows, self._baseline)
            found = self._belief(class_id, "", rows, since[class_id])
            yield
            if TAIL in found.held_back.values() and names[class_id]:  # is it that of the arm?
                mix = yield from self._alike(blocks, ages, class_id, names[class_id])
                found = self._belief(class_id, "", rows, since[class_id], mix)
            held[class_id, ""] = found
        wanted = [(class_id, name) for class_id in since for name in names[class_id]]
        yield from self._look_at_parts(wanted, blocks, ages, since, held)
        self._beliefs = held
        return self._known(blocks, ages)

    def _look_at_parts(
        self,
        wanted: Sequence[Key],
        blocks: Mapping[int, _Laid],
        ages: Mapping[int, float],
        since: Mapping[ClassId, FloatArray],
        held: dict[Key, Belief],
    ) -> Generator[None, None, None]:
        new = [key for key in wanted if key not in self._beliefs]
        start = self._turn % max(len(wanted), 1)
        self._turn = start + PARTS_A_LOOK
        due = {*new, *islice((*wanted[start:], *wanted[:start]), PARTS_A_LOOK)}
        for key in wanted:
            if key not in due:
                held[key] = self._beliefs[key]
                continue
            rows = _rows(blocks, ages, key)
            if rows is not None:
                held[key] = self._belief(*key, rows, since[key[0]])
            yield

    def _belief(
        self,
        class_id: ClassId,
        part: str,
        rows: Rows,
        since_s: FloatArray,
        mix: NDArray[np.bool_] | None = None,
    ) -> Belief:
        known = self._beliefs.get((class_id, part))
        before = tuple(known.held_back) if known is not None else ()
        half_life_s = self._half_life_s
        return belief(
            class_id, self._arms, rows, half_life_s, since_s=since_s, before=before, alike=mix
        )

    def _alike(
        self,
        blocks: Mapping[int, _Laid],
        ages: Mapping[int, float],
        class_id: ClassId,
        names: Sequence[str],
    ) -> Generator[None, None, NDArray[np.bool_]]:
        """Which arms answered the same mix of parts as the baseline."""
        place = {name: row for row, name in enumerate(("", *names))}
        answers = np.zeros((len(place), len(self._arms)))
        for index, laid in blocks.items():
            weight = exponential_weight(ages[index], self._half_life_s)
            for name, row in place.items():
                sums = laid.rows.get((class_id, name))
                if sums is not None:
                    answers[row] += weight * sums[_COSTS]
            yield
        whole = answers.copy()
        for name in names:
            answers[place[parent(name)]] -= whole[place[name]]
        return alike(np.maximum(answers, 0.0)[None], self._baseline)

    def _known(self, blocks: Mapping[int, _Laid], ages: Mapping[int, float]) -> Knowledge:
        size = len(self._arms)
        steps = np.zeros((len(STEP_FIELDS), size))
        prefill = np.zeros((BANDS, len(PREFILL_FIELDS), size))
        costs: dict[ClassId, FloatArray] = {}
        for index, laid in blocks.items():
            weight = exponential_weight(ages[index], self._half_life_s)
            if laid.steps is not None and laid.prefill is not None:
                steps += weight * laid.steps
                prefill += weight * laid.prefill
            for class_id, row in laid.costs.items():
                costs[class_id] = costs.get(class_id, 0.0) + weight * row
        taken = step_ratios(steps)
        first = prefill_of(prefill, taken)
        return Knowledge(
            arms=self._arms,
            beliefs=self._beliefs,
            steps=taken,
            prefill=first.ratios,
            prompt_s=first.prompt_s,
            usual_s=first.usual_s,
            costs=costs,
            tau_priors=self._expected.tau,
            step_priors=self._expected.steps,
        )

    def _lay(self, cells: Cells) -> Generator[None, None, _Laid]:
        size = len(self._arms)
        rows: dict[Key, FloatArray] = {}
        costs: dict[ClassId, FloatArray] = {}
        steps = np.zeros((len(STEP_FIELDS), size))
        prefill = np.zeros((BANDS, len(PREFILL_FIELDS), size))
        for count, ((arm_id, class_id, part), sums) in enumerate(cells.items(), 1):
            a, band = self._place.get(ArmId(arm_id)), _BAND.get(part)
            if a is not None and class_id == COMMON and band is not None:
                steps[:, a] += _values(sums, STEP_FIELDS)
                prefill[band, :, a] += _values(sums, PREFILL_FIELDS)
            elif a is not None and band is not None:
                row = costs.setdefault(class_id, np.zeros((3, size, BANDS)))
                row[:, a, band] += band_costs(sums)
            elif a is not None and class_id != COMMON:
                values = _values(sums, FIELDS)
                for name in _up(policy_part(part)):
                    row = rows.setdefault((class_id, name), np.zeros((len(FIELDS), size)))
                    row[:, a] += values
            if count % _CELLS_PER_STEP == 0:
                yield
        return _Laid(rows, steps, prefill, costs)


def _rows(blocks: Mapping[int, _Laid], ages: Mapping[int, float], key: Key) -> Rows | None:
    there = [(ages[index], laid.rows[key]) for index, laid in blocks.items() if key in laid.rows]
    if not there:
        return None
    return Rows(np.array([age for age, _ in there]), np.stack([sums for _, sums in there]))


def _values(sums: Counts, names: Sequence[str]) -> FloatArray:
    get = sums.get
    return np.array([get(name, 0) for name in names], dtype=np.float64)
