"""What one process answers to the dashboard's questions: the past of its routes, its decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from policies.types import Arm, ClassId
from router.dashboard.history import Points
from router.errors import StoreError
from router.estimates.history import HOURS
from router.estimates.reader import Reader
from router.estimates.slot_clock import SlotClock
from router.observe.decision_log import DecisionRecord

LONGEST_S = HOURS * 3600.0
"""How far back is looked."""


@dataclass(frozen=True, slots=True)
class RoutePast:
    """A route whose past is asked for."""

    model: str
    arms: Sequence[Arm]
    reader: Reader


class Histories:
    """The past of all routes.

    Args:
        slots: The clock of all processes.
    """

    def __init__(self, slots: SlotClock) -> None:
        self._slots = slots
        self._points: WeakKeyDictionary[Reader, Points] = WeakKeyDictionary()

    async def answer(
        self, routes: Iterable[RoutePast], window_s: int, since: float, class_id: str | None
    ) -> dict[str, Any]:
        """Columns of every route.

        Args:
            routes: The routes.
            window_s: How far back estimates look.
            since: Seconds since the epoch.
            class_id: Whose; None for all classes together.
        """
        now = self._slots.wall()
        since = min(max(since, now - LONGEST_S), now)
        told: list[dict[str, Any]] = []
        for route in routes:
            points = self._points.get(route.reader)
            if points is None:
                points = Points(route.reader, self._slots, window_s)
                self._points[route.reader] = points
            wanted = None if class_id is None else ClassId(class_id)
            try:
                columns = await points.columns(route.arms, since, wanted)
            except StoreError as error:
                columns = {"error": f"the store does not answer: {error}"}
            told.append({"model": route.model, **columns})
        return {"time": now, "since": since, "class": class_id, "routes": told}


def decisions_json(
    recent: Sequence[DecisionRecord], request_id: str | None, limit: int
) -> list[dict[str, Any]]:
    """The newest decisions first, or the one of a request.

    Args:
        recent: The oldest first.
        request_id: The request; None for any.
        limit: How many at most.
    """
    found: list[dict[str, Any]] = []
    for record in reversed(recent):
        if len(found) >= limit:
            break
        if request_id is None or record.request_id == request_id:
            found.append(record.as_json())
    return found


def newest(answers: Iterable[Sequence[dict[str, Any]]], limit: int) -> list[dict[str, Any]]:
    """Decisions of several processes as one list, the newest first."""
    together = [decision for answer in answers for decision in answer]
    together.sort(key=lambda decision: -float(decision["time"]))
    return together[:limit]
