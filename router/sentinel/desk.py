"""Carries out operators' orders about quarantines: on documents alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from policies.types import ArmId, ClassId
from router.errors import StoreError
from router.estimates.layout import SLOTS_PER_BLOCK, slot_at
from router.sentinel.evidence import Change
from router.sentinel.model import Book, CellName, Evidence, as_document, of_document
from router.sentinel.service import audit_entry, book_key
from router.stores.base import SharedStore

_AUDIT_LINES = 200
_TRIES = 10


class UnknownQuarantineError(Exception):
    """Nothing is quarantined there."""


class QuarantineDesk:
    """What operators may see and order."""

    def __init__(
        self,
        store: SharedStore,
        prefix: str,
        wall: Callable[[], float],
        models: Callable[[], Sequence[str]],
    ) -> None:
        """Args: `models` tells which routes there are now."""
        self._store = store
        self._prefix = prefix
        self._wall = wall
        self._models = models

    async def listed(self) -> dict[str, Any]:
        """All quarantines, with what has been gathered and the audit, by model.

        Raises:
            StoreError: The store did not answer.
        """
        return {"models": {model: await self._shown(model) for model in self._models()}}

    async def lift(self, model: str, cell: CellName, who: str, why: str = "") -> dict[str, Any]:
        """Lets a pool serve a class again; what was found before does not count any more.

        Raises:
            UnknownQuarantineError: It is not quarantined.
            StoreError: The store did not take it.
        """
        arm_id, class_id = cell
        now, key = self._wall(), book_key(self._prefix, model)
        for _ in range(_TRIES):
            document = await self._store.get(key) if model in self._models() else None
            book = of_document(document.data) if document else Book()
            if document is None or cell not in book.quarantines:
                raise UnknownQuarantineError(
                    f"pool {arm_id!r} of {model!r} is not quarantined for class {class_id!r}"
                )
            after = book.begun_anew(cell, slot_at(now) // SLOTS_PER_BLOCK)
            entry = audit_entry(Change(cell, "lifted", why), now, who)
            data = as_document(after)
            if await self._store.put(key, data, expected=document.version, entries=[entry]):
                return await self._shown(model)
        raise StoreError("quarantines are being changed by too many at once; try again")

    async def _shown(self, model: str) -> dict[str, Any]:
        key = book_key(self._prefix, model)
        document = await self._store.get(key)
        book = of_document(document.data) if document else Book()
        return {
            "quarantines": quarantines_json(book),
            "audit": [orjson.loads(line) for line in await self._store.log(key, _AUDIT_LINES)],
        }


def quarantines_json(book: Book) -> list[dict[str, Any]]:
    """Cells that are quarantined or on probation."""
    return [
        {
            "pool": arm_id,
            "class": class_id,
            "state": "quarantined" if held.lasts else "probation",
            "since": held.at,
            "until": held.until,
            "times": held.times,
            "why": held.why,
            "counts": dict(book.evidence.get((arm_id, class_id), Evidence()).counts),
        }
        for (arm_id, class_id), held in book.quarantines.items()
    ]


def cell_name(pool: str, class_id: str) -> CellName:
    """A cell by what operators call it."""
    return ArmId(pool), ClassId(class_id)
