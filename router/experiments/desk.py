"""Carries out operators' orders about experiments, wherever they come in: on documents alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from router.experiments.bodies import read_plan
from router.experiments.book import change_book
from router.experiments.documents import (
    MOST_RUNNING,
    Book,
    audit_entry,
    book_key,
    experiment_json,
    look_key,
    of_document,
)
from router.experiments.forecast import DEFAULT_EFFECT, forecast, traffic_of
from router.experiments.looks import read_look
from router.experiments.model import Experiment, ExperimentName, Plan, Standing, Status
from router.experiments.rollout import (
    Audit,
    Event,
    Paused,
    Ramped,
    Resumed,
    Started,
    Stopped,
    TransitionError,
    moved,
)
from router.stores.base import SharedStore

_AUDIT_LINES = 200
_LIVE = (Status.RUNNING, Status.DONE, Status.PAUSED)


class UnknownExperimentError(Exception):
    """No experiment is called so."""


class ExperimentDesk:
    """What operators may see and order."""

    def __init__(
        self,
        store: SharedStore,
        prefix: str,
        wall: Callable[[], float],
        check: Callable[[Plan], None],
    ) -> None:
        """Args: `check` raises `PlanError` for a plan that does not fit the configuration."""
        self._store = store
        self._prefix = prefix
        self._wall = wall
        self._check = check

    async def plan(
        self, given: Mapping[str, Any], *, effect: float = DEFAULT_EFFECT
    ) -> dict[str, Any]:
        """What to expect of a plan; nothing begins.

        Raises:
            PlanError: It cannot be used.
            StoreError: The store did not answer.
        """
        plan = read_plan(given)
        self._check(plan)
        traffic = await traffic_of(self._store, self._prefix, plan, self._wall())
        shown = experiment_json(Experiment(plan))["plan"]
        return {"plan": shown, "forecast": forecast(plan, traffic, effect=effect)}

    async def start(self, given: Mapping[str, Any], who: str) -> dict[str, Any]:
        """Lets an experiment begin.

        Raises:
            PlanError: It cannot be used.
            TransitionError: The name is taken, or too many are running.
            StoreError: The store did not take it.
        """
        plan = read_plan(given)
        self._check(plan)

        def change(book: Book) -> tuple[Book, list[bytes]]:
            if plan.name in book.experiments:
                raise TransitionError(
                    f"an experiment was called {plan.name!r} before; a new try has a new name"
                )
            live = [e for e in book.experiments.values() if e.standing.status in _LIVE]
            if len(live) >= MOST_RUNNING:
                raise TransitionError(f"{len(live)} experiments are going on; stop one first")
            after, audits = moved(Experiment(plan), Started(self._wall(), who))
            return book.with_(after), [audit_entry(plan.name, audit) for audit in audits]

        await change_book(self._store, self._prefix, change)
        return await self.shown(plan.name)

    async def ramp(self, name: ExperimentName, who: str, stage: int | None) -> dict[str, Any]:
        """Moves to a stage; None for the next.

        Raises:
            UnknownExperimentError: No experiment is called so.
            TransitionError: It cannot be done where it stands.
            StoreError: The store did not take it.
        """

        def event(experiment: Experiment) -> Event:
            wanted = experiment.standing.stage + 1 if stage is None else stage
            return Ramped(self._wall(), who, wanted)

        return await self._order(name, event)

    async def pause(self, name: ExperimentName, who: str, why: str = "") -> dict[str, Any]:
        """Treats nobody for a while; see `ramp` for errors."""
        return await self._order(name, lambda _: Paused(self._wall(), who, why))

    async def resume(self, name: ExperimentName, who: str) -> dict[str, Any]:
        """Goes on; see `ramp` for errors."""
        return await self._order(name, lambda _: Resumed(self._wall(), who))

    async def stop(self, name: ExperimentName, who: str, why: str = "") -> dict[str, Any]:
        """Ends it; see `ramp` for errors."""
        return await self._order(name, lambda _: Stopped(self._wall(), who, why))

    async def switch(self, *, on: bool, who: str, why: str = "") -> dict[str, Any]:
        """Turns speculation off for all traffic, or allows it again.

        Raises:
            StoreError: The store did not take it.
        """

        def change(book: Book) -> tuple[Book, list[bytes]]:
            if book.off is not on:
                return book, []
            what = "speculation allowed" if on else "speculation off"
            nothing = Standing()
            audit = Audit(self._wall(), who, what, why or what, nothing, nothing)
            return Book(book.experiments, not on), [audit_entry(None, audit)]

        await change_book(self._store, self._prefix, change)
        return {"speculation": on}

    async def listed(self) -> dict[str, Any]:
        """All experiments, the newest last, whether speculation is allowed, and who said so.

        Raises:
            StoreError: The store did not answer.
        """
        book = await self._book()
        return {
            "speculation": not book.off,
            "experiments": [self._summary(e) for e in book.experiments.values()],
            "audit": await self._audit(None),
        }

    async def shown(self, name: ExperimentName) -> dict[str, Any]:
        """One experiment with the figures of its last look and its audit.

        Raises:
            UnknownExperimentError: No experiment is called so.
            StoreError: The store did not answer.
        """
        experiment = (await self._book()).experiments.get(name)
        if experiment is None:
            raise UnknownExperimentError(f"no experiment is called {name!r}")
        look = await self._store.get(look_key(self._prefix, name))
        return {
            **self._summary(experiment),
            "look": None if look is None else read_look(look.data),
            "audit": await self._audit(name),
        }

    async def _audit(self, name: ExperimentName | None) -> list[dict[str, Any]]:
        """What happened to an experiment; with None, to all traffic."""
        lines = await self._store.log(book_key(self._prefix), _AUDIT_LINES)
        return [line for line in map(orjson.loads, lines) if line["experiment"] == name]

    def _summary(self, experiment: Experiment) -> dict[str, Any]:
        return {
            **experiment_json(experiment),
            "share": experiment.share,
            "notes": list(experiment.notes),
        }

    async def _order(
        self, name: ExperimentName, event: Callable[[Experiment], Event]
    ) -> dict[str, Any]:
        def change(book: Book) -> tuple[Book, list[bytes]]:
            experiment = book.experiments.get(name)
            if experiment is None:
                raise UnknownExperimentError(f"no experiment is called {name!r}")
            after, audits = moved(experiment, event(experiment))
            return book.with_(after), [audit_entry(name, audit) for audit in audits]

        await change_book(self._store, self._prefix, change)
        return await self.shown(name)

    async def _book(self) -> Book:
        document = await self._store.get(book_key(self._prefix))
        return of_document(document.data) if document else Book()
