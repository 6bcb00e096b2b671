"""Sums of one experiment, hour by hour, of which only what has changed is read anew.

An experiment may last for days and is looked at each second, so a look must not read days.
"""

from __future__ import annotations

from collections.abc import Mapping

from router.breath import breathe
from router.estimates.history import HOURS, History
from router.estimates.layout import Cells
from router.experiments.model import Experiment
from router.experiments.seen import Seen, seen

_HOUR_S = 3600
_OPEN = 2
"""The current hour and the one before may grow."""


class Gathered:
    """Of one experiment, in one process."""

    def __init__(self) -> None:
        self._hours: dict[int, Cells] = {}
        self._parts: dict[int, tuple[Cells, Seen]] = {}
        """What each hour comes to."""
        self._closed: tuple[tuple[Seen, ...], Seen] | None = None
        """Hours that do not grow any more, and what they come to together."""
        self._all: tuple[tuple[Seen, ...], Seen] | None = None
        self._passed = -1
        """Hour in which all hours were last asked for."""

    async def known(self, experiment: Experiment, history: History, now: float) -> Seen:
        """All that is known; the very same object as long as nothing new is.

        Raises:
            StoreError: The store did not answer.
        """
        since = max(experiment.standing.began or now, now - HOURS * _HOUR_S)
        await self._read(history, since, now)
        first = int(since // _HOUR_S)
        hours = {hour: cells for hour, cells in self._hours.items() if hour >= first}
        self._hours = hours
        for hour, cells in hours.items():
            part = self._parts.get(hour)
            if part is None or part[0] is not cells:
                self._parts[hour] = (cells, seen(experiment, [(hour, cells)]))
                await breathe()  # requests get their turn
        self._parts = {hour: self._parts[hour] for hour in hours}
        return await self._added(experiment.standing.epoch)

    async def _read(self, history: History, since: float, now: float) -> None:
        """Asks for the hours that may grow; once an hour for all, one at a time."""
        hour = int(now // _HOUR_S)
        found: Mapping[int, Cells] = await history.read_hours(max(since, now - _HOUR_S))
        if self._passed != hour:
            begins = now
            while begins > since:
                begins = max(begins - _HOUR_S, since)
                found = await history.read_hours(begins)
                await breathe()
            self._passed = hour
        self._hours |= found

    async def _added(self, epoch: int) -> Seen:
        newest = max(self._parts, default=0)
        parts = [part for _, (_, part) in sorted(self._parts.items())]
        closed = tuple(
            part for hour, (_, part) in sorted(self._parts.items()) if hour <= newest - _OPEN
        )
        if self._closed is None or not _same(self._closed[0], closed):
            self._closed = (closed, Seen.together_with(closed, epoch))
            await breathe()
        grows = tuple(parts[len(closed) :])
        key = (self._closed[1], *grows)
        if self._all is None or self._all[1].epoch != epoch or not _same(self._all[0], key):
            self._all = (key, Seen.together_with(key, epoch))
        return self._all[1]


def _same(some: tuple[Seen, ...], others: tuple[Seen, ...]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))
