"""Sums → evidence → quarantines. Pure: it reads nothing and knows no time but what it is given."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from policies.estimators.excess import (
    Stratum,
    e_value,
    odds_ratios,
    rate_e_value,
    sign_e_value,
)
from policies.types import ArmId, ClassId, Counts
from router.estimates.layout import COMMON, Cells
from router.estimates.parts import is_load
from router.sentinel.model import (
    LONGEST_S,
    PERIOD_S,
    Book,
    CellName,
    Evidence,
    Quarantine,
)
from router.types import POOLED, SegmentId

ALPHA = 0.01
"""Chance that any healthy cell of a route is quarantined in a week, over all cells and tests."""

TESTS = 3

BORNE_RATE = 0.002
"""Share of answers that may differ from the baseline's without a near-tie. Judgement: arithmetic in
another order has rare larger errors."""

_PAIRED = ("repeat.n", "repeat.odd", "repeat.control", "repeat.worse", "repeat.better")


@dataclass(frozen=True, slots=True)
class Watched:
    """What of a route is judged.

    Attributes:
        baseline: Its baseline, which never is.
        cells: How many can be judged.
        quarantine_s: How long a first quarantine lasts; None for until it is lifted.
    """

    baseline: ArmId
    cells: int
    quarantine_s: float | None

    @property
    def threshold(self) -> float:
        """E-value from which on a cell is quarantined."""
        return TESTS * max(self.cells, 1) / ALPHA


Parts = Mapping[ClassId, Collection[SegmentId]]
"""Parts of classes that have structured answers."""


def parts_of(cells: Cells) -> Parts:
    """Those of one stretch of time; bands of load count the same answers again and are none."""
    parts: dict[ClassId, set[SegmentId]] = {}
    for (_, class_id, part), counts in cells.items():
        if part and "drawn" in counts and not is_load(part):
            parts.setdefault(class_id, set()).add(part)
    return parts


def strata_of(cells: Cells, parts: Parts, cell: CellName, baseline: ArmId) -> Iterator[Stratum]:
    """A cell's answers beside the baseline's in one stretch of time, part by part.

    Policies send parts of a class to different pools, and parts differ: what is not told apart is
    the class without them.
    """
    rest = [0, 0, 0, 0]
    for part in sorted(parts.get(cell[1], ())):
        counts = _counts(cells, cell, baseline, part)
        rest = [total - n for total, n in zip(rest, counts, strict=True)]
        yield Stratum(*counts)
    whole = _counts(cells, cell, baseline, POOLED)
    yield Stratum(*(max(total + n, 0) for total, n in zip(rest, whole, strict=True)))


def _counts(
    cells: Cells, cell: CellName, baseline: ArmId, part: SegmentId
) -> tuple[int, int, int, int]:
    mine: Counts = cells.get((*cell, part), {})
    others: Counts = cells.get((baseline, cell[1], part), {})
    return (
        mine.get("drawn", 0),
        mine.get("drawn.bad", 0),
        others.get("drawn", 0),
        others.get("drawn.bad", 0),
    )


def grown(known: Evidence, cells: Cells, parts: Parts, cell: CellName, baseline: ArmId) -> Evidence:
    """A cell's evidence with one more stretch of time."""
    ratios = np.array(known.log_ratios)
    for stratum in strata_of(cells, parts, cell, baseline):
        if stratum.informs:
            ratios = ratios + odds_ratios(stratum)
    mine: Counts = cells.get((*cell, POOLED), {})
    drawn, bad, control, control_bad = _counts(cells, cell, baseline, POOLED)
    added = {
        "drawn": drawn,
        "drawn.bad": bad,
        "control": control if drawn else 0,
        "control.bad": control_bad if drawn else 0,
        **{name: mine.get(name, 0) for name in _PAIRED},
    }
    counts = {name: known.counts.get(name, 0) + n for name, n in added.items()}
    return Evidence(tuple(ratios.tolist()), {name: n for name, n in counts.items() if n})


def folded(
    book: Book, blocks: Mapping[int, Cells], complete: Collection[int], baseline: ArmId, wall: float
) -> Book:
    """The book with all blocks that are complete and not yet in it.

    Args:
        book: What is known.
        blocks: Sums by stretch of time.
        complete: Those of them that will not change any more.
        baseline: The route's.
        wall: Now; a new week begins with new evidence.
    """
    *_, book_after = fold_steps(book, blocks, complete, baseline, wall)
    if book_after is None:
        raise AssertionError("the last step is the book")
    return book_after


def fold_steps(
    book: Book, blocks: Mapping[int, Cells], complete: Collection[int], baseline: ArmId, wall: float
) -> Iterator[Book | None]:
    """The same in pieces, one for each cell, so that requests get their turn in between.

    Yields None after each piece and the book at the end.
    """
    period = int(wall // PERIOD_S)
    if period != book.period:
        book = replace(book, period=period, evidence={})
    for block in sorted(complete):
        if block > book.folded and block in blocks:
            book = yield from _with_block(book, blocks[block], block, baseline)
    yield book


def _with_block(
    book: Book, cells: Cells, block: int, baseline: ArmId
) -> Generator[None, None, Book]:
    evidence, parts = dict(book.evidence), parts_of(cells)
    yield
    for cell in cells_in(cells, baseline):
        if block > book.since.get(cell, -1):
            found = grown(evidence.get(cell, Evidence()), cells, parts, cell, baseline)
            if found.counts:
                evidence[cell] = found
            yield
    since = {cell: last for cell, last in book.since.items() if last > block}
    return replace(book, folded=block, evidence=evidence, since=since)


def cells_in(cells: Cells, baseline: ArmId) -> list[CellName]:
    """Pools and classes that are judged; sides of experiments are no pools."""
    return sorted(
        (arm_id, class_id)
        for arm_id, class_id, part in cells
        if not part and arm_id != baseline and class_id != COMMON and not arm_id.startswith("@")
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A quarantine that began or ended; what people are told."""

    cell: CellName
    what: str
    why: str


def judged(book: Book, watched: Watched, wall: float, block: int) -> tuple[Book, list[Change]]:
    """The book after a look: who is quarantined from now on, and whose time is over.

    Args:
        book: What is known.
        watched: What is judged.
        wall: Now.
        block: Number of the present stretch of time.
    """
    changes: list[Change] = []
    for cell, held in book.quarantines.items():
        if held.lasts and held.until is not None and wall >= held.until:
            after = replace(held, ended=wall)
            kept = {**book.quarantines, cell: after}
            book = replace(book.begun_anew(cell, block), quarantines=kept)
            changes.append(Change(cell, "probation", "its time is over"))
        elif held.ended is not None and wall - held.ended >= held.length_s:
            kept = {key: of for key, of in book.quarantines.items() if key != cell}
            book = replace(book, quarantines=kept)  # it has been good for as long
    for cell, known in book.evidence.items():
        before = book.quarantines.get(cell)
        why = None if before is not None and before.lasts else finding(known, watched.threshold)
        if why is not None:
            times = 1 if before is None else before.times + 1
            held = Quarantine(wall, _until(watched.quarantine_s, times, wall), why, times)
            book = replace(book, quarantines={**book.quarantines, cell: held})
            changes.append(Change(cell, "quarantined", why))
    return book, changes


def _until(first_s: float | None, times: int, wall: float) -> float | None:
    return None if first_s is None else wall + min(first_s * 2.0 ** (times - 1), LONGEST_S)


def finding(known: Evidence, threshold: float) -> str | None:
    """Why a cell is to be quarantined, in words; None if it is not."""
    counts = known.counts

    def n(name: str) -> int:
        return counts.get(name, 0)

    if e_value(known.log_ratios) >= threshold:
        return (
            f"structure: {n('drawn.bad')} of {n('drawn')} answers invalid, the baseline's "
            f"{n('control.bad')} of {n('control')}"
        )
    worse, better = n("repeat.worse"), n("repeat.better")
    if sign_e_value(worse, better) >= threshold:
        return (
            f"repeats: {worse} of {n('repeat.n')} answers invalid or cut where the baseline's were "
            f"not, {better} the other way round"
        )
    odd, control = n("repeat.odd"), n("repeat.control")
    often = rate_e_value(odd, n("repeat.n"), BORNE_RATE)
    if min(sign_e_value(odd, control), often) >= threshold:
        return (
            f"repeats: {odd} of {n('repeat.n')} answers differ from the baseline's without a "
            f"near-tie, {control} of its own"
        )
    return None


def quarantined(book: Book) -> dict[ClassId, frozenset[ArmId]]:
    """Pools that must get no requests, by class."""
    found: dict[ClassId, frozenset[ArmId]] = {}
    for (arm_id, class_id), held in book.quarantines.items():
        if held.lasts:
            found[class_id] = found.get(class_id, frozenset()) | {arm_id}
    return found
