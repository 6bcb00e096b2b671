"""What was found and people should know, for as long as it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policies.estimators.pooling import Difference
from policies.types import ArmId, ClassId
from router.types import SegmentId

MAX_EVENTS = 50

SEGMENT_DIFFERS = "segment_differs"
CLASS_SPLITS = "class_splits"
DRIFT = "drift"

EVERY = ClassId("*")
"""In place of a class: all of them together."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a figure of a cell changed.

    Attributes:
        figure: `tau`, or `cost`: log cost less the baseline's at the same time.
        wall: Since when.
        before: Its mean before that.
        after: Its mean from then on.
    """

    figure: str
    wall: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was found and that people should know.

    Attributes:
        wall: When it was found (again, after a restart).
        kind: `segment_differs`, `class_splits` or `drift`.
        class_id: Where; `EVERY` for a drift of all classes of an arm.
        part: The segment, perhaps with its band; `POOLED` when it is about the class.
        arm_id: The arm by which it shows.
        difference: Of the arm's effect on log cost: the segment less the rest of the class, or
            answers that copy less those that do not; None for a drift.
        level: Confidence of the interval, at all looks together; None for a drift.
        change: What drifted; None for the other kinds.
    """

    wall: float
    kind: str
    class_id: ClassId
    part: SegmentId
    arm_id: ArmId
    difference: Difference | None = None
    level: float | None = None
    change: Change | None = None

    @property
    def about(self) -> tuple[str, ClassId, SegmentId, ArmId, str]:
        """What it is about: there is one event of each."""
        figure = self.change.figure if self.change else ""
        return self.kind, self.class_id, self.part, self.arm_id, figure


class Events:
    """The events of a route, the oldest first."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ClassId, SegmentId, ArmId, str], Event] = {}

    def note(self, event: Event) -> None:
        """Takes an event; what is known already keeps the time it was found first.

        A drift that began later than the one that is known is a new one.
        """
        known = self._known.get(event.about)
        if known is None or _later(event, known):
            self._known.pop(event.about, None)
            self._known[event.about] = event

    def keep(self, stands: Callable[[Event], bool]) -> None:
        """Forgets what does not stand any more."""
        self._known = {about: event for about, event in self._known.items() if stands(event)}

    def newest(self) -> tuple[Event, ...]:
        """The newest last."""
        return tuple(self._known.values())[-MAX_EVENTS:]


def _later(event: Event, known: Event) -> bool:
    return event.change is not None and (
        known.change is None or event.change.wall > known.change.wall
    )
