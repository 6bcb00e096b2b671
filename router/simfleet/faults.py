"""What goes wrong in a simulated engine, on command: at once, or by a list of times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policies.types import ClassId

_INSTANT = frozenset({"restart"})
_STATUSES = (429, 500, 502, 503, 504)


class FaultKind(StrEnum):
    """What can go wrong; in brackets what `value` means."""

    DELAY = "delay"
    """Requests are taken late (seconds)."""
    STATUS = "status"
    """Requests get an error (its status)."""
    FREEZE = "freeze"
    """Nothing is told any more, all connections stay open."""
    CUT = "cut"
    """Streams are broken off (after so many events)."""
    GARBAGE = "garbage"
    """Streams turn into bytes that are no HTTP (after so many events)."""
    RESTART = "restart"
    """Everything is dropped and forgotten, then loading (seconds)."""
    SLOW = "slow"
    """Steps take longer (how many times as long)."""
    DRIFT = "drift"
    """Drafts are accepted more or less often (how many times), for `class_id` or all."""
    NO_DRAFTER = "no_drafter"
    """Nothing is drafted any more."""
    DAMAGE_TOOLS = "damage_tools"
    """Arguments of tools are no JSON."""
    DAMAGE_TEXT = "damage_text"
    """A word in the middle of an answer is another one."""
    NO_METRICS = "no_metrics"
    """`/metrics` is not found."""


class FaultError(ValueError):
    """A command that cannot be understood; the message is for whoever sent it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One command.

    Attributes:
        kind: What goes wrong.
        value: How much; what it means is said at each kind.
        at_s: When it begins, in seconds from the command on.
        for_s: How long it lasts; None for until it is taken back.
        every: Meets one request in so many.
        class_id: Class of the requests that it meets; None for all.
        retry_after_s: Told beside a status.
    """

    kind: FaultKind
    value: float = 0.0
    at_s: float = 0.0
    for_s: float | None = None
    every: int = 1
    class_id: ClassId | None = None
    retry_after_s: int | None = None

    def meets(self, number: int, class_id: ClassId) -> bool:
        """Whether the request of that number is hit."""
        return number % self.every == 0 and self.class_id in (None, class_id)


def read_faults(given: object) -> list[Fault]:
    """Commands from JSON: one object, or a list of them.

    Raises:
        FaultError: With what is wrong.
    """
    items = given if isinstance(given, list) else [given]
    return [_read(item) for item in items]


def _read(item: Any) -> Fault:
    if not isinstance(item, dict):
        raise FaultError("a fault is an object with `kind`")
    known = set(Fault.__dataclass_fields__)
    unknown = sorted(set(item) - known)
    if unknown:
        raise FaultError(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    try:
        kind = FaultKind(str(item.get("kind")))
    except ValueError as error:
        kinds = ", ".join(FaultKind)
        raise FaultError(f"kind must be one of {kinds}") from error
    values = {name: value for name, value in item.items() if name != "kind" and value is not None}
    for name in ("value", "at_s", "for_s"):
        number = values.get(name, 0.0)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
            raise FaultError(f"{name} must be a number, at least 0")
    every = values.get("every", 1)
    if not isinstance(every, int) or every < 1:
        raise FaultError("every must be an integer, at least 1")
    if kind is FaultKind.STATUS and int(values.setdefault("value", 503)) not in _STATUSES:
        raise FaultError(f"value must be one of {', '.join(map(str, _STATUSES))}")
    if kind is FaultKind.SLOW and not values.get("value"):
        raise FaultError("slow needs a value above 0: how many times as long steps take")
    return Fault(kind, **values)


@dataclass(slots=True)
class _Placed:
    fault: Fault
    begins: float
    ends: float
    begun: bool = False


class Faults:
    """Those in force, by an engine's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._placed: list[_Placed] = []

    def add(self, faults: Sequence[Fault]) -> None:
        """Puts commands in force, each at its time."""
        now = self._now()
        for fault in faults:
            begins = now + fault.at_s
            lasts = math.inf if fault.for_s is None else fault.for_s
            self._placed.append(_Placed(fault, begins, begins + lasts))

    def clear(self) -> None:
        """Takes all commands back."""
        self._placed.clear()

    def active(self, kind: FaultKind) -> list[Fault]:
        """Those of a kind that are in force."""
        if not self._placed:
            return []
        now = self._now()
        return [
            item.fault
            for item in self._placed
            if item.fault.kind is kind and item.begins <= now < item.ends
        ]

    def hit(self, kind: FaultKind, number: int, class_id: ClassId) -> Fault | None:
        """The first in force that meets a request."""
        found = (fault for fault in self.active(kind) if fault.meets(number, class_id))
        return next(found, None)

    def left(self, kind: FaultKind) -> float:
        """Seconds until the last of a kind is over, infinite for one without an end."""
        now = self._now()
        ends = [
            item.ends
            for item in self._placed
            if item.fault.kind is kind and item.begins <= now < item.ends
        ]
        return max(ends, default=now) - now

    def begun(self) -> list[Fault]:
        """Those that happen once and whose time has come since this was last asked."""
        if not self._placed:
            return []
        now = self._now()
        found = []
        for item in self._placed:
            if item.fault.kind in _INSTANT and not item.begun and item.begins <= now:
                item.begun = True
                found.append(item.fault)
        self._placed = [item for item in self._placed if item.ends > now and not _over(item)]
        return found

    def state(self) -> list[dict[str, Any]]:
        """All of them, for people."""
        now = self._now()
        return [
            {
                "kind": item.fault.kind.value,
                "value": item.fault.value,
                "begins_in_s": round(max(item.begins - now, 0.0), 3),
                "ends_in_s": None if item.ends == math.inf else round(item.ends - now, 3),
                "every": item.fault.every,
                "class_id": item.fault.class_id,
            }
            for item in self._placed
            if item.ends > now
        ]


def _over(item: _Placed) -> bool:
    return item.fault.kind in _INSTANT and item.begun
