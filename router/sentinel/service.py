"""Quarantines in one process: it reads the book, adds what was measured, and keeps pools out.

Every process does the same from the same sums, and whoever writes the next version of the book has
made the change. While the store is away a process leaves a pool by what it has seen itself; it goes
back only with what the book says later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote

import orjson

from policies.types import ArmId, ClassId
from router.breath import breathe
from router.errors import StoreError
from router.estimates.layout import SLOTS_PER_BLOCK, slot_at
from router.estimates.reader import Past
from router.sentinel.evidence import (
    Change,
    Watched,
    cells_in,
    finding,
    fold_steps,
    folded,
    grown,
    judged,
    parts_of,
    quarantined,
)
from router.sentinel.model import Book, CellName, Evidence, Quarantine, as_document, of_document
from router.stores.base import DocumentStore

_TRIES = 10
_NOBODY: frozenset[ArmId] = frozenset()

_log = logging.getLogger("specroute.quality")


def book_key(prefix: str, model: str) -> str:
    """Where a route's document is kept; its log is the audit."""
    return f"{{{prefix}:quality}}:v1:book:{quote(model, safe='')}"


def audit_entry(change: Change, at: float, who: str) -> bytes:
    """A line of the audit."""
    arm_id, class_id = change.cell
    return orjson.dumps(
        {
            "at": at,
            "who": who,
            "what": change.what,
            "pool": arm_id,
            "class": class_id,
            "why": change.why,
        }
    )


@dataclass(slots=True)
class _Route:
    book: Book = field(default_factory=Book)
    version: int = 0
    """Of the document that it was read from, or written to."""
    left: dict[CellName, Quarantine] = field(default_factory=dict)
    """Cells that this process has left by itself."""
    barred: Mapping[ClassId, frozenset[ArmId]] = field(default_factory=dict)
    """What requests are kept out of; replaced whole."""

    def renew(self) -> None:
        barred = quarantined(self.book)
        for arm_id, class_id in self.left:
            barred[class_id] = barred.get(class_id, _NOBODY) | {arm_id}
        self.barred = barred


class Quality:
    """All quarantines, as far as one process is concerned."""

    def __init__(self, store: DocumentStore, prefix: str, wall: Callable[[], float]) -> None:
        self._store = store
        self._prefix = prefix
        self._wall = wall
        self._routes: dict[str, _Route] = {}

    def barred(self, model: str) -> Callable[[ClassId], Collection[ArmId]]:
        """Tells which pools of a route must not serve a class now."""
        route = self._route(model)
        return lambda class_id: route.barred.get(class_id, _NOBODY)

    def book(self, model: str) -> Book:
        """What is known of a route, as it was read last, and what was left here alone."""
        route = self._route(model)
        return replace(route.book, quarantines={**route.book.quarantines, **route.left})

    def release(self, model: str) -> None:
        """Keeps no pool of a route out any more: its configuration says so."""
        self._route(model).barred = {}

    def gauges(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What is shown to Prometheus: name, labels, value."""
        for model, route in self._routes.items():
            for class_id, arms in route.barred.items():
                for arm_id in sorted(arms):
                    labels = {"model": model, "pool": arm_id, "class": class_id}
                    yield "specroute_quarantined", labels, 1.0

    async def look(self, model: str, watched: Watched, past: Past) -> None:
        """Adds what is new, and makes the changes that are due.

        Args:
            model: The route.
            watched: What of it is judged.
            past: Its sums.

        Raises:
            StoreError: The store did not answer; by what is known here pools are left all the same.
        """
        route = self._route(model)
        try:
            await self._look(model, route, watched, past)
        except StoreError:
            self._alone(model, route, watched, past)
            raise
        # What was left here has been judged by everybody's sums once its block is in the book.
        book = route.book
        route.left = {
            cell: held
            for cell, held in route.left.items()
            if max(book.folded, book.since.get(cell, -1)) < _block_at(held.at)
        }
        route.renew()

    async def _look(self, model: str, route: _Route, watched: Watched, past: Past) -> None:
        key = book_key(self._prefix, model)
        for _ in range(_TRIES):
            now = self._wall()
            document = await self._store.get(key)
            version = document.version if document else 0
            if version != route.version:
                # A store that was emptied lets nobody back in; an order does.
                route.book = (
                    of_document(document.data)
                    if document
                    else Book(quarantines=route.book.quarantines)
                )
                route.version = version
            before = route.book
            book = before
            steps = fold_steps(before, past.blocks, past.complete, watched.baseline, now)
            for step in steps:
                book = step or book
                await breathe()
            book, changes = judged(book, watched, now, _block_at(now))
            if replace(book, folded=before.folded) == before:
                route.book = book  # nothing that others would not find as well
                return
            entries = [audit_entry(change, now, "sentinel") for change in changes]
            if await self._store.put(key, as_document(book), expected=version, entries=entries):
                route.book, route.version = book, version + 1
                for change in changes:
                    _said(model, change)
                return
        raise StoreError("quarantines are being changed by too many at once")

    def _alone(self, model: str, route: _Route, watched: Watched, past: Past) -> None:
        """Judges by what is known here: the book as it was, and all that it does not hold yet."""
        now = self._wall()
        book = folded(route.book, past.blocks, past.complete, watched.baseline, now)
        newer = [block for block in past.blocks if block > book.folded]
        found: dict[CellName, Evidence] = dict(book.evidence)
        for block in sorted(newer):
            cells = past.blocks[block]
            parts = parts_of(cells)
            for cell in cells_in(cells, watched.baseline):
                known = found.get(cell, Evidence())
                found[cell] = grown(known, cells, parts, cell, watched.baseline)
        for cell, known in found.items():
            why = finding(known, watched.threshold)
            if why is not None and cell not in route.left:
                route.left[cell] = Quarantine(now, None, why)
                _said(model, Change(cell, "left here", why))
        route.renew()

    def _route(self, model: str) -> _Route:
        return self._routes.setdefault(model, _Route())


def _block_at(wall: float) -> int:
    return slot_at(wall) // SLOTS_PER_BLOCK


def _said(model: str, change: Change) -> None:
    arm_id, class_id = change.cell
    _log.warning(
        "quality of answers",
        extra={
            "model": model,
            "pool": arm_id,
            "class_id": class_id,
            "what": change.what,
            "why": change.why,
        },
    )
