"""What is known of the quality of a route's answers, as one document. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from policies.estimators.excess import no_evidence
from policies.types import ArmId, ClassId

PERIOD_S = 7 * 86_400
"""Evidence is gathered for a week and then anew: long health must not hide damage that begins."""

LONGEST_S = 30 * 86_400
"""Longest quarantine that ends by itself."""

CellName = tuple[ArmId, ClassId]

COUNTED = (
    *("drawn", "drawn.bad", "control", "control.bad"),
    *("repeat.n", "repeat.odd", "repeat.control", "repeat.worse", "repeat.better"),
)
"""What of a cell is kept: its own answers, the baseline's beside them, repeats."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What has been gathered of one cell.

    Attributes:
        log_ratios: Of structure, added up over strata (`policies.estimators.excess.odds_ratios`).
        counts: By the names of `COUNTED`.
    """

    log_ratios: tuple[float, ...] = tuple(no_evidence().tolist())
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """One cell that gets no requests, or did not.

    Attributes:
        at: When it began.
        until: When it ends by itself; None for never.
        why: Which test found it, in words with figures.
        times: How often in a row.
        ended: When it ended by itself, so that it is on probation; None while it lasts.
    """

    at: float
    until: float | None
    why: str
    times: int = 1
    ended: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the cell gets no requests."""
        return self.ended is None

    @property
    def length_s(self) -> float:
        """How long it is."""
        return LONGEST_S if self.until is None else self.until - self.at


@dataclass(frozen=True, slots=True)
class Book:
    """All cells of a route.

    Attributes:
        period: Number of the week whose evidence this is.
        folded: Number of the last block that is in it.
        evidence: By cell; a cell without any is not there.
        since: Last block that does not count any more, of cells that began anew.
        quarantines: Those that last, and those on probation.
    """

    period: int = 0
    folded: int = -1
    evidence: Mapping[CellName, Evidence] = field(default_factory=dict)
    since: Mapping[CellName, int] = field(default_factory=dict)
    quarantines: Mapping[CellName, Quarantine] = field(default_factory=dict)

    def begun_anew(self, cell: CellName, block: int) -> Book:
        """The book without what a cell has shown so far, and without its quarantine."""
        return replace(
            self,
            evidence={key: of for key, of in self.evidence.items() if key != cell},
            since={**self.since, cell: block},
            quarantines={key: of for key, of in self.quarantines.items() if key != cell},
        )


def as_document(book: Book) -> bytes:
    """The book as it is kept."""
    cells = {**book.evidence, **dict.fromkeys(book.since), **dict.fromkeys(book.quarantines)}
    kept = [
        {
            "pool": arm_id,
            "class": class_id,
            "evidence": asdict(of) if (of := book.evidence.get((arm_id, class_id))) else None,
            "since": book.since.get((arm_id, class_id)),
            "quarantine": asdict(held)
            if (held := book.quarantines.get((arm_id, class_id)))
            else None,
        }
        for arm_id, class_id in cells
    ]
    return orjson.dumps({"period": book.period, "folded": book.folded, "cells": kept})


def of_document(data: bytes) -> Book:
    """The book as it was kept; cells that cannot be understood are left out.

    >>> of_document(b"x")
    Book(period=0, folded=-1, evidence={}, since={}, quarantines={})
    """
    try:
        kept = orjson.loads(data)
        period, folded, cells = int(kept["period"]), int(kept["folded"]), list(kept["cells"])
    except (ValueError, LookupError, TypeError):
        return Book()
    evidence: dict[CellName, Evidence] = {}
    since: dict[CellName, int] = {}
    quarantines: dict[CellName, Quarantine] = {}
    for entry in cells:
        try:
            name = ArmId(str(entry["pool"])), ClassId(str(entry["class"]))
            known, held, block = entry["evidence"], entry["quarantine"], entry["since"]
            if known is not None:
                evidence[name] = _evidence(known)
            if block is not None:
                since[name] = int(block)
            if held is not None:
                quarantines[name] = _quarantine(held)
        except (ValueError, LookupError, TypeError):
            continue
    return Book(period, folded, evidence, since, quarantines)


def _evidence(known: Any) -> Evidence:
    ratios = tuple(float(ratio) for ratio in known["log_ratios"])
    if len(ratios) != len(no_evidence()):
        raise ValueError("other alternatives")
    return Evidence(ratios, {str(name): int(n) for name, n in known["counts"].items()})


def _quarantine(held: Any) -> Quarantine:
    return Quarantine(
        float(held["at"]),
        None if held["until"] is None else float(held["until"]),
        str(held["why"]),
        int(held["times"]),
        None if held["ended"] is None else float(held["ended"]),
    )
