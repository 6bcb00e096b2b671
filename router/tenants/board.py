"""Where processes tell each other whom they have told to come back, and when.

It works beside requests, never on their way.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence

from router.admission.promises import KEPT_S, MOST, Due
from router.stores.base import Addition, Batch, CounterStore

_WINDOW_S = 10
_TTL_S = 120
_MS = 1000


class PromiseBoard:
    """Where processes tell each other what they have promised. Times are the store's."""

    def __init__(self, prefix: str, name: str | None = None) -> None:
        self._stem = f"{{{prefix}:tenants}}:v1:promised"
        self._name = name or secrets.token_hex(4)
        self._number = 0

    async def tell(self, store: CounterStore, given: Sequence[Due]) -> None:
        """Tells what this process has promised since it last did.

        Raises:
            StoreError: The store did not take it; then others do not know.
        """
        if not given:
            return
        self._number += 1
        windows: dict[int, dict[str, int]] = {}
        for due, name in given[-MOST:]:
            fields = windows.setdefault(int(due // _WINDOW_S), {})
            fields[f"{self._name}.{name}.{int(due * _MS)}"] = 1
        batch = Batch(f"{self._stem}:by:{self._name}", self._number, _TTL_S)
        await store.add(
            batch,
            [
                Addition({"": fields}, {f"{self._stem}:{window}": _TTL_S})
                for window, fields in windows.items()
            ],
        )

    async def others(self, store: CounterStore, wall: float) -> Mapping[str, list[float]]:
        """What others have promised that is due soon, by name.

        Raises:
            StoreError: The store did not answer.
        """
        window = int(wall // _WINDOW_S)
        keys = [f"{self._stem}:{of}" for of in (window - 1, window, window + 1)]
        found: dict[str, list[float]] = {}
        for fields in await store.read(keys):
            for due, name in self._read(fields):
                if due + KEPT_S >= wall and len(found) < MOST:
                    found.setdefault(name, []).append(due)
        return {name: sorted(dues) for name, dues in found.items()}

    def _read(self, fields: Mapping[str, int]) -> Iterator[Due]:
        for field in fields:
            match field.split("."):
                case [by, name, due] if by != self._name and due.isdecimal():
                    yield int(due) / _MS, name
