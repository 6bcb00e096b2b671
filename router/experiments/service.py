"""Experiments in one process: it reads the book, looks at what was measured, and moves them.

Every process does the same, and whoever writes the next version of the book has made the move. A
process that finds harm leaves the treatment at once, whether or not the store is there; it goes
back only with what the book says later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.types import ArmId, ClassId, Counts
from router.errors import StoreError
from router.estimates.history import HOURS, History
from router.estimates.layout import Cells, merge_cells
from router.estimates.reader import Past
from router.experiments.brake import sudden_harm
from router.experiments.cells import side_of
from router.experiments.documents import (
    Book,
    as_document,
    audit_entry,
    book_key,
    look_key,
    of_document,
)
from router.experiments.evidence import Seen, evidence_of, seen
from router.experiments.looks import look_document
from router.experiments.model import Experiment, ExperimentName
from router.experiments.placing import Rules
from router.experiments.rollout import Evidence, Looked, harm, moved
from router.stores.base import DocumentStore, SharedStore
from router.types import POOLED

LOOK_S = 1.0
"""Between two looks; a slot is ten times as long."""

_RECENT_S = (10.0, 60.0)
"""Stretches that are judged by themselves: a slot, and for little traffic some more."""

_KEPT_LOOKS = 90
"""A minute and a half of them: more than the longest of these stretches."""

_HOUR_S = 3600
_STALE_S = 30.0
"""Sums of the store older than this leave the judgement to this process's own."""
_TRIES = 10

_log = logging.getLogger("specroute.experiments")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the sums of a route are."""

    past: Callable[[], Past]
    history: History


@dataclass(frozen=True, slots=True)
class _Moment:
    """Sums of all sides at one moment, by stretch of time."""

    at: float
    stretches: Mapping[int, Cells]


class Trials:
    """All experiments, as far as one process is concerned."""

    def __init__(self, store: SharedStore, prefix: str, wall: Callable[[], float]) -> None:
        self._store = store
        self._prefix = prefix
        self._wall = wall
        self._book = Book()
        self._version = -1
        self._configured_off = False
        self._class_ids: tuple[ClassId, ...] = ()
        self._left: dict[ExperimentName, int] = {}
        """Epochs in which this process has left a treatment."""
        self._own: dict[int, Cells] = {}
        """What this process has seen of all sides, by hour."""
        self._moments: dict[tuple[str, str], deque[_Moment]] = {}
        self._missing: Counter[str] = Counter()
        self._so_far: dict[ExperimentName, deque[tuple[float, Counts]]] = {}
        """How requests of both sides had ended by then, by the sums of all processes."""
        self._noted: dict[ExperimentName, tuple[int, int]] = {}
        """Requests of both sides when a look was last written down here."""
        self._shared_at: float | None = None
        self.rules = Rules(missing=self._missing)
        """What requests are placed by; replaced whole."""

    @property
    def book(self) -> Book:
        """What is tried, as it was read last."""
        return self._book

    @property
    def missing(self) -> Mapping[str, int]:
        """Requests that named no unit of the kind that is assigned, by experiment."""
        return self._missing

    def gauges(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What is shown to Prometheus: name, labels, value."""
        rules = self.rules
        yield "specroute_speculation_off", {}, float(rules.off)
        for experiment in rules.experiments:
            name = experiment.plan.name
            left = (name, experiment.standing.epoch) in rules.left
            label: dict[str, str] = {"experiment": name}
            yield "specroute_experiment_share", label, 0.0 if left else experiment.share
            missing = float(self._missing[name])
            yield "specroute_experiment_missing_units", label, missing

    # --- What requests add --------------------------------------------------------------------

    def note(self, sides: tuple[ArmId, ...], class_id: ClassId, sums: Counts) -> None:
        """Takes what a finished request adds to its sides, for the brake of this process."""
        tried = tuple(side for side in sides if not side.startswith("@holdout/"))
        if tried:
            hour = int(self._wall() // _HOUR_S)
            cells: Cells = {(side, class_id, POOLED): dict(sums) for side in tried}
            merge_cells(self._own.setdefault(hour, {}), cells)

    # --- The book -----------------------------------------------------------------------------

    def configure(self, *, speculation: bool, class_ids: Sequence[ClassId]) -> None:
        """Takes what the configuration says from now on."""
        self._configured_off, self._class_ids = not speculation, tuple(class_ids)
        self._renew()

    async def refresh(self) -> None:
        """Reads the book if it has changed.

        Raises:
            StoreError: The store did not answer; what was read before holds.
        """
        document = await self._store.get(book_key(self._prefix))
        version = document.version if document else 0
        if version != self._version:
            # A store that was emptied does not turn speculation on again; an order does.
            self._book = of_document(document.data) if document else Book(off=self._book.off)
            self._version = version
            self._renew()

    def policies(self, model: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Policies that experiments on a route want asked, with their parameters."""
        for experiment in self.rules.experiments:
            plan = experiment.plan
            for does in (plan.treatment, plan.control):
                if plan.model == model and does.policy is not None:
                    yield does.policy, dict(does.parameters)

    def _renew(self) -> None:
        running = tuple(e for e in self._book.experiments.values() if e.assigns)
        epochs = {e.plan.name: e.standing.epoch for e in running}
        self._left = {name: of for name, of in self._left.items() if epochs.get(name) == of}
        self.rules = Rules(
            off=self._configured_off or self._book.off,
            experiments=running,
            left=frozenset(self._left.items()),
            class_ids=self._class_ids,
            missing=self._missing,
        )

    # --- Looks --------------------------------------------------------------------------------

    async def look(self, sources: Mapping[str, Source]) -> None:
        """Judges every running experiment, and makes the moves that are due.

        Args:
            sources: Where the sums of each route are, by model.
        """
        now = self._wall()
        if not self.rules.experiments:
            self._own.clear()
        running = {experiment.plan.name for experiment in self.rules.experiments}
        for key in [key for key in self._moments if key[1] not in running]:
            del self._moments[key]
        for name in self._so_far.keys() - running:
            del self._so_far[name]
        due = [
            (experiment, sources[experiment.plan.model])
            for experiment in self.rules.experiments
            if experiment.plan.model in sources
        ]
        # All are judged by what is known here before a store that hangs is waited for.
        alarms = [self._sudden(experiment, source, now) for experiment, source in due]
        for (experiment, _), alarm in zip(due, alarms, strict=True):
            if alarm is not None:
                self._leave(experiment, alarm)
        answers = True
        for (experiment, source), alarm in zip(due, alarms, strict=True):
            answers = answers and await self._look(experiment, source, now, alarm)
            if not answers:
                self._alone(experiment, now, alarm)
        for hour in [h for h in self._own if h < now // _HOUR_S - 1]:
            del self._own[hour]

    async def _look(
        self, experiment: Experiment, source: Source, now: float, alarm: str | None
    ) -> bool:
        """Judges by what all processes have stored; whether the store answers."""
        name = experiment.plan.name
        try:
            hours = await _hours(source.history, experiment.standing.began or now, now)
        except StoreError as error:
            _log.debug("no look at shared sums", extra={"error": str(error)})
            return False
        self._shared_at = now
        known = seen(experiment, hours.items())
        kept = self._so_far.setdefault(name, deque(maxlen=_KEPT_LOOKS))
        kept.append((now, known.together))
        evidence = evidence_of(experiment, known, alarm)
        why = harm(evidence)
        if why is not None:
            self._leave(experiment, why)
        try:
            await self._move(experiment, evidence, now)
            counts = (evidence.control, evidence.treatment)
            if self._noted.get(name) != counts:
                await self._note_look(experiment, known, evidence, now)
                self._noted[name] = counts
        except StoreError as error:
            _log.warning("experiment not moved; the store is away", extra={"error": str(error)})
            return False
        return True

    def _alone(self, experiment: Experiment, now: float, alarm: str | None) -> None:
        """Judges by what this process has seen itself, where the store has been away for long."""
        if self._shared_at is not None and now - self._shared_at < _STALE_S:
            return
        evidence = evidence_of(experiment, seen(experiment, self._own.items()), alarm)
        why = harm(evidence)
        if why is not None:
            self._leave(experiment, why)

    def _leave(self, experiment: Experiment, why: str) -> None:
        name, epoch = experiment.plan.name, experiment.standing.epoch
        if self._left.get(name) != epoch:
            _log.warning("treatment left", extra={"experiment": name, "why": why})
            self._left[name] = epoch
            self._renew()

    def _sudden(self, experiment: Experiment, source: Source, now: float) -> str | None:
        """Sudden harm by what all processes saw, as far as it is known, or by what this one saw."""
        past = source.past()
        shared = {
            number: _sides(cells)
            for number, cells in past.blocks.items()
            if number >= past.newest_block - 1
        }
        for of, stretches in (("shared", shared), ("own", dict(self._own))):
            why = self._judged(experiment, of, _Moment(now, _copied(stretches)))
            if why is not None:
                return why
        return None

    def _judged(self, experiment: Experiment, of: str, moment: _Moment) -> str | None:
        moments = self._moments.setdefault((of, experiment.plan.name), deque())
        moments.append(moment)
        while len(moments) > 1 and moments[1].at <= moment.at - _RECENT_S[-1]:
            moments.popleft()
        for stretch_s in _RECENT_S:
            then = next((m for m in reversed(moments) if m.at <= moment.at - stretch_s), None)
            if then is None:
                then = moments[0]
            recent = seen(experiment, [(0, _since(moment, then))])
            why = sudden_harm(recent, self._before(experiment, then))
            if why is not None:
                return why
        return None

    def _before(self, experiment: Experiment, then: _Moment) -> Counts:
        here = seen(experiment, then.stretches.items()).together
        kept = self._so_far.get(experiment.plan.name, ())
        # What is judged must not count as what is usual.
        shared = next((counts for at, counts in reversed(kept) if at <= then.at), {})
        return max(here, shared, key=lambda counts: counts.get("n", 0))

    async def _move(self, experiment: Experiment, evidence: Evidence, now: float) -> None:
        name, epoch = experiment.plan.name, experiment.standing.epoch

        def change(book: Book) -> tuple[Book, list[bytes]]:
            current = book.experiments.get(name)
            if current is None or current.standing.epoch != epoch:
                return book, []  # somebody has moved it, and this evidence is about what was before
            after, audits = moved(current, Looked(now, evidence))
            return book.with_(after), [audit_entry(name, audit) for audit in audits]

        after, _ = moved(experiment, Looked(now, evidence))
        if after != experiment and await self._changed(change):
            _log.info("experiment moved", extra={"experiment": name, "why": after.standing.why})
            await self.refresh()

    async def _changed(self, change: Callable[[Book], tuple[Book, list[bytes]]]) -> bool:
        return await change_book(self._store, self._prefix, change)

    async def _note_look(
        self, experiment: Experiment, known: Seen, evidence: Evidence, now: float
    ) -> None:
        """Writes down what was seen last, for whoever asks; of several processes any will do."""
        name = experiment.plan.name
        key = look_key(self._prefix, name)
        document = await self._store.get(key)
        data = look_document(
            document.data if document else None,
            experiment,
            known,
            evidence,
            at=now,
            missing_units=self._missing.get(name, 0),
        )
        await self._store.put(key, data, expected=document.version if document else 0)


async def _hours(history: History, since: float, now: float) -> Mapping[int, Cells]:
    """All hours since then, one at a time where they are new here, so that requests get turns."""
    hours: Mapping[int, Cells] = {}
    begins = now
    while begins > since:
        begins = max(begins - _HOUR_S, since, now - HOURS * _HOUR_S)
        hours = await history.read_hours(begins)
        await asyncio.sleep(0)
        if begins <= now - HOURS * _HOUR_S:
            break
    return hours


async def change_book(
    store: DocumentStore, prefix: str, change: Callable[[Book], tuple[Book, list[bytes]]]
) -> bool:
    """Changes the book by compare-and-set, as often as others are faster.

    Args:
        store: Where it is kept.
        prefix: First part of its key.
        change: Gives the book after, and the lines of its audit; none means that nothing changes.

    Returns:
        Whether it was changed.

    Raises:
        StoreError: The store did not take it, or others were always faster.
    """
    key = book_key(prefix)
    for _ in range(_TRIES):
        document = await store.get(key)
        book = of_document(document.data) if document else Book()
        after, entries = change(book)
        if not entries:
            return False
        version = document.version if document else 0
        if await store.put(key, as_document(after), expected=version, entries=entries):
            return True
    raise StoreError("experiments are being changed by too many at once; try again")


def _sides(cells: Cells) -> Cells:
    return {key: sums for key, sums in cells.items() if side_of(key[0]) is not None}


def _copied(stretches: Mapping[int, Cells]) -> dict[int, Cells]:
    return {
        number: {key: dict(sums) for key, sums in cells.items()}
        for number, cells in stretches.items()
        if cells
    }


def _since(moment: _Moment, then: _Moment) -> Cells:
    """What has been added since then; stretches that are gone meanwhile count for nothing."""
    added: Cells = {}
    for number, cells in moment.stretches.items():
        before = then.stretches.get(number, {})
        for key, sums in cells.items():
            known = before.get(key, {})
            grown = {name: n - known.get(name, 0) for name, n in sums.items()}
            grown = {name: n for name, n in grown.items() if n}
            if grown:
                merge_cells(added, {key: grown})
    return added


__all__ = ["LOOK_S", "Source", "Trials", "change_book"]
