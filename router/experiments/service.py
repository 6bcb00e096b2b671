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
from dataclasses import dataclass, replace
from typing import Any

from policies.types import ArmId, ClassId, Counts
from router.errors import StoreError
from router.estimates.history import History
from router.estimates.layout import Cells, merge_cells
from router.estimates.reader import Past
from router.experiments.book import change_book
from router.experiments.brake import sudden_harm
from router.experiments.cells import side_cells, tried_in
from router.experiments.documents import (
    Book,
    as_document,
    audit_entry,
    book_key,
    look_key,
    of_document,
)
from router.experiments.evidence import evidence_of
from router.experiments.gathered import Gathered
from router.experiments.looks import look_document
from router.experiments.model import Experiment, ExperimentName, Metric
from router.experiments.placing import Rules
from router.experiments.recent import Moment, copied, sides_of, since
from router.experiments.rollout import Evidence, Looked, harm, moved
from router.experiments.seen import Seen, seen
from router.stores.base import Document, SharedStore
from router.stores.last_known import LastKnown

LOOK_S = 1.0
"""Between two looks; a slot is ten times as long."""

_RECENT_S = (10.0, 60.0)
"""Stretches that are judged by themselves: a slot, and for little traffic some more."""

_KEPT_LOOKS = 90
"""A minute and a half of them: more than the longest of these stretches."""

_HOUR_S = 3600
_AFTER_S = 600.0
"""For how long figures are kept up after the end: requests are on their way, the store may be too.
"""
_STALE_S = 30.0
"""Sums of the store older than this leave the judgement to this process's own."""

_COPY = "experiments.json"

_log = logging.getLogger("specroute.experiments")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the sums of a route are."""

    past: Callable[[], Past]
    history: History


class Trials:
    """All experiments, as far as one process is concerned."""

    def __init__(
        self,
        store: SharedStore,
        prefix: str,
        wall: Callable[[], float],
        last_known: LastKnown | None = None,
    ) -> None:
        """Args: `last_known` keeps the book for a start while the store is away."""
        self._store = store
        self._last_known = last_known or LastKnown(None)
        self._prefix = prefix
        self._wall = wall
        copy = self._last_known.read(_COPY)
        self._book = Book() if copy is None else of_document(copy)
        self._document: Document | None = None
        self._read = False
        """Whether the store has told the book; until then nobody is treated by a copy of it."""
        self._configured_off = False
        self._class_ids: tuple[ClassId, ...] = ()
        self._left: dict[ExperimentName, int] = {}
        """Epochs in which this process has left a treatment."""
        self._whys: dict[ExperimentName, tuple[int, str]] = {}
        """Such an epoch, and why."""
        self._own: dict[int, Cells] = {}
        """What this process has seen of all sides, by hour."""
        self._moments: dict[tuple[str, str], deque[Moment]] = {}
        self._missing: Counter[str] = Counter()
        self._so_far: dict[ExperimentName, deque[tuple[float, Counts]]] = {}
        """How requests of both sides had ended by then, by the sums of all processes."""
        self._over: dict[ExperimentName, float] = {}
        """Experiments that run no more, and until when their figures are kept up."""
        self._noted: dict[ExperimentName, tuple[int, int]] = {}
        """Requests of both sides when a look was last written down here."""
        self._gathered: dict[ExperimentName, Gathered] = {}
        self._last: dict[ExperimentName, tuple[Seen, Experiment, Evidence]] = {}
        self._shared_at: float | None = None
        self.rules = Rules(missing=self._missing)
        """What requests are placed by; replaced whole."""
        self._renew()

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
        tried = tried_in(sides)
        if tried:
            hour = int(self._wall() // _HOUR_S)
            cells: Cells = {key: dict(of) for key, of in side_cells(tried, class_id, sums, {})}
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
        # A store that was emptied may have come to the same version by now, so content counts too.
        if self._read and document == self._document:
            return
        # A store that was emptied does not turn speculation on again; an order does.
        self._book = of_document(document.data) if document else Book(off=self._book.off)
        if not self._read:
            self._left = {}  # what was left had only been known by a copy
        self._document, self._read = document, True
        self._renew()
        await asyncio.to_thread(self._last_known.keep, _COPY, as_document(self._book))

    def policies(self, model: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Policies that experiments on a route want asked, with their parameters."""
        for experiment in self.rules.experiments:
            plan = experiment.plan
            for does in (plan.treatment, plan.control):
                if plan.model == model and does.policy is not None:
                    yield does.policy, dict(does.parameters)

    def _renew(self) -> None:
        running = tuple(e for e in self._book.experiments.values() if e.assigns)
        names = {e.plan.name for e in running}
        for experiment in self.rules.experiments:
            if experiment.plan.name not in names:
                self._over[experiment.plan.name] = self._wall() + _AFTER_S
        epochs = {e.plan.name: e.standing.epoch for e in running}
        kept = self._left if self._read else epochs
        self._left = {name: of for name, of in kept.items() if epochs.get(name) == of}
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
        self.brake(sources)
        now = self._wall()
        self._forget(now)
        answers = True
        for experiment, source in self._due(sources):
            alarm = self._alarm(experiment)
            answers = answers and await self._look(experiment, source, now, alarm)
            if not answers:
                self._alone(experiment, now, alarm)
        if answers:
            await self._look_back(sources, now)

    def brake(self, sources: Mapping[str, Source]) -> None:
        """Leaves at once what does sudden harm, by what is known here; never waits for the store.

        Args:
            sources: Where the sums of each route are, by model.
        """
        now = self._wall()
        for experiment, source in self._due(sources):
            why = self._sudden(experiment, source, now)
            if why is not None:
                self._leave(experiment, why)

    def _due(self, sources: Mapping[str, Source]) -> list[tuple[Experiment, Source]]:
        return [
            (experiment, sources[experiment.plan.model])
            for experiment in self.rules.experiments
            if experiment.plan.model in sources
        ]

    def _alarm(self, experiment: Experiment) -> str | None:
        """Why this process has left a treatment: so the book is told, however late it answers."""
        epoch, why = self._whys.get(experiment.plan.name, (-1, ""))
        return why if epoch == experiment.standing.epoch else None

    def _forget(self, now: float) -> None:
        """Lets go of what no look will ask for."""
        running = {experiment.plan.name for experiment in self.rules.experiments}
        for key in [key for key in self._moments if key[1] not in running]:
            del self._moments[key]
        for name in self._so_far.keys() - running:
            del self._so_far[name]
        for name in self._whys.keys() - running:
            del self._whys[name]
        for name in self._gathered.keys() - running - self._over.keys():
            del self._gathered[name]
            self._last.pop(name, None)
        for hour in [h for h in self._own if not running or h < now // _HOUR_S - 1]:
            del self._own[hour]

    async def _look_back(self, sources: Mapping[str, Source], now: float) -> None:
        """Writes down what the last requests of experiments that are over came to."""
        for name, until in list(self._over.items()):
            experiment = self._book.experiments.get(name)
            if experiment is None or experiment.assigns or now > until:
                del self._over[name]
                continue
            source = sources.get(experiment.plan.model)
            if source is None:
                continue
            try:
                known = await self._known(experiment, source, now)
                await self._note(experiment, known, self._evidence(experiment, known, None), now)
            except StoreError as error:
                _log.debug("no look at what is over", extra={"error": str(error)})
                return

    async def _look(
        self, experiment: Experiment, source: Source, now: float, alarm: str | None
    ) -> bool:
        """Judges by what all processes have stored; whether the store answers."""
        name = experiment.plan.name
        try:
            known = await self._known(experiment, source, now)
        except StoreError as error:
            _log.debug("no look at shared sums", extra={"error": str(error)})
            return False
        self._shared_at = now
        kept = self._so_far.setdefault(name, deque(maxlen=_KEPT_LOOKS))
        kept.append((now, known.together))
        evidence = self._evidence(experiment, known, alarm)
        why = harm(evidence)
        if why is not None:
            self._leave(experiment, why)
        try:
            await self._move(experiment, evidence, now)
            await self._note(experiment, known, evidence, now)
        except StoreError as error:
            _log.warning("experiment not moved; the store is away", extra={"error": str(error)})
            return False
        return True

    async def _known(self, experiment: Experiment, source: Source, now: float) -> Seen:
        gathered = self._gathered.setdefault(experiment.plan.name, Gathered())
        return await gathered.known(experiment, source.history, now)

    def _evidence(self, experiment: Experiment, known: Seen, alarm: str | None) -> Evidence:
        """What is known, judged anew only where it is new."""
        last = self._last.get(experiment.plan.name)
        if last is not None and last[0] is known and last[1] == experiment:
            return replace(last[2], alarm=alarm)
        evidence = evidence_of(experiment, known)
        self._last[experiment.plan.name] = (known, experiment, evidence)
        return replace(evidence, alarm=alarm)

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
            self._left[name], self._whys[name] = epoch, (epoch, why)
            self._renew()

    def _sudden(self, experiment: Experiment, source: Source, now: float) -> str | None:
        """Sudden harm by what all processes saw, as far as it is known, or by what this one saw."""
        past = source.past()
        shared = {
            number: sides_of(cells)
            for number, cells in past.blocks.items()
            if number >= past.newest_block - 1
        }
        for of, stretches in (("shared", shared), ("own", dict(self._own))):
            why = self._judged(experiment, of, Moment(now, copied(stretches)))
            if why is not None:
                return why
        return None

    def _judged(self, experiment: Experiment, of: str, moment: Moment) -> str | None:
        moments = self._moments.setdefault((of, experiment.plan.name), deque())
        moments.append(moment)
        while len(moments) > 1 and moments[1].at <= moment.at - _RECENT_S[-1]:
            moments.popleft()
        for stretch_s in _RECENT_S:
            then = next((m for m in reversed(moments) if m.at <= moment.at - stretch_s), None)
            if then is None:
                then = moments[0]
            metrics = dict.fromkeys((Metric.COST, experiment.plan.primary))
            recent = seen(experiment, [(0, since(moment, then))], metrics)
            why = sudden_harm(recent, self._before(experiment, then), metrics)
            if why is not None:
                return why
        return None

    def _before(self, experiment: Experiment, then: Moment) -> Counts:
        here = seen(experiment, then.stretches.items(), ()).together
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

    async def _note(
        self, experiment: Experiment, known: Seen, evidence: Evidence, now: float
    ) -> None:
        """Writes a look down if it has seen more than the last one."""
        name, counts = experiment.plan.name, (evidence.control, evidence.treatment)
        if self._noted.get(name) != counts:
            await self._note_look(experiment, known, evidence, now)
            self._noted[name] = counts

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


__all__ = ["LOOK_S", "Source", "Trials"]
