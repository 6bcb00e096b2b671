"""What the whole has saved a route: today against the baseline, this month against the holdout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policies.types import Arm
from router.errors import StoreError
from router.estimates.day import Day, Today
from router.estimates.layout import month_of
from router.estimates.reader import Reader
from router.estimates.slot_clock import SlotClock
from router.experiments.holdout import of_everybody

ACCOUNT_S = 30.0
"""Between two looks; who looks at a day does not mind it."""


@dataclass(frozen=True, slots=True)
class Account:
    """What was saved, as it was looked at last; None is what could not be read.

    Attributes:
        wall: When that was, seconds since the epoch.
        today: Against the baseline at the same time.
        month: Name of the month, by UTC.
        holdout: All tenants of it together, against requests held out by chance
            (`router.experiments.holdout.held_out_gain`).
    """

    wall: float
    today: Today | None
    month: str
    holdout: Mapping[str, Any] | None


class Accountant:
    """Keeps the account of one route.

    Args:
        arms: Of the route.
        reader: Of the route.
        slots: The clock of all processes.
        window_s: How far back estimates look.
    """

    def __init__(
        self, arms: tuple[Arm, ...], reader: Reader, slots: SlotClock, window_s: int
    ) -> None:
        self._reader = reader
        self._slots = slots
        self._day = Day(arms, reader, window_s)
        self.account: Account | None = None
        """None before the first look."""

    async def look(self) -> None:
        """Reads and reckons; what the store does not tell is not known then."""
        now, month = self._slots.wall(), month_of(self._slots.now())
        today = holdout = None
        try:
            today = await self._day.look(now)
            holdout = of_everybody(await self._reader.history.read_month(month))
        except StoreError:
            pass  # the refresh says so
        self.account = Account(now, today, month, holdout)
