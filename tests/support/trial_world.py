"""Processes that run experiments over one store, fed with requests that nobody sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from policies.estimators.clusters import BUCKETS
from policies.estimators.increments import by_kind, costs_by_kind, increments
from policies.types import ArmId, ClassId, Status, Trial
from router.estimates.learned import Learned
from router.estimates.reader import Reader
from router.estimates.writer import Writer
from router.experiments.cells import at_bucket, side_arm, side_cells
from router.experiments.desk import ExperimentDesk
from router.experiments.model import ExperimentName, Variant
from router.experiments.service import Source, Trials
from router.stores.base import SharedStore
from tests.support.clock import ManualClock

MODEL = "m"
CHAT = ClassId("chat")
TRY = ExperimentName("try")
PLAN: Mapping[str, Any] = {
    "name": "try",
    "model": MODEL,
    "hypothesis": "drafts help here",
    "treatment": {"arm": "fast"},
    "unit": "request",
    "stages": [
        {"share": 0.1, "dwell_s": 30, "min_requests": 20},
        {"share": 0.5, "dwell_s": 30, "min_requests": 20},
    ],
}


class Process:
    """One process: its writer, its reader, its experiments."""

    def __init__(self, store: SharedStore, clock: ManualClock) -> None:
        self.clock = clock
        self.writer = Writer(store, clock, prefix="p", ttl_s=7200)
        self.reader = Reader(store, self.writer, prefix="p", model=MODEL, window_s=7200)
        self.trials = Trials(store, "p", self.writer.slots.wall)
        self.trials.configure(speculation=True, class_ids=(CHAT,))

    def serve(
        self, requests: int, rng: np.random.Generator, *, slower: float = 1.0, failing: float = 0.0
    ) -> None:
        """Requests that have finished now, split as the stage says; harm is done to the treated."""
        for experiment in self.trials.rules.experiments:
            epoch = experiment.standing.epoch
            if (experiment.plan.name, epoch) in self.trials.rules.left:
                continue
            for _ in range(requests):
                treated = rng.random() < experiment.share
                variant = Variant.TREATMENT if treated else Variant.CONTROL
                side = side_arm(experiment.plan.name, epoch, variant)
                if experiment.plan.clustered:
                    side = at_bucket(side, int(rng.integers(BUCKETS)))
                sides = (side,)
                self._finish(
                    sides,
                    0.02 * math.exp(rng.normal(0.0, 0.2)) * (slower if treated else 1.0),
                    failed=treated and rng.random() < failing,
                )

    def _finish(self, sides: tuple[ArmId, ...], tpot_s: float, *, failed: bool) -> None:
        trial = Trial(
            CHAT,
            ArmId("plain"),
            Status.FAILED if failed else Status.OK,
            streamed=True,
            propensity=1.0,
            ttft_s=0.1,
            tpot_s=tpot_s,
            e2e_s=0.1 + 100 * tpot_s,
            tokens=101,
        )
        sums = increments(trial, 300)
        self.trials.note(sides, CHAT, by_kind(sums))
        also = side_cells(sides, CHAT, by_kind(sums), costs_by_kind(sums))
        self.writer.add(Learned(MODEL, ArmId("plain"), CHAT, sums, also=also))

    async def step(self, *, flush: bool = True) -> None:
        """What a process does each second."""
        if flush:
            await self.writer.flush()
            await self.reader.refresh()
            await self.trials.refresh()
        await self.trials.look({MODEL: Source(self.reader.past, self.reader.history)})


class TrialWorld:
    """Processes over one store."""

    def __init__(self, store: SharedStore, clock: ManualClock, processes: int = 1) -> None:
        self.clock = clock
        self.store = store
        self.desk = ExperimentDesk(store, "p", clock.wall, lambda _: None)
        self.processes = [Process(store, clock) for _ in range(processes)]

    async def refresh(self) -> None:
        """All read the book."""
        for process in self.processes:
            await process.trials.refresh()

    async def run(
        self,
        seconds: int,
        rng: np.random.Generator,
        *,
        requests: int = 10,
        flush: bool = True,
        slower: float = 1.0,
        failing: float = 0.0,
    ) -> None:
        """Each process serves and looks, second by second; harm is done to the treated."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            for process in self.processes:
                process.serve(requests, rng, slower=slower, failing=failing)
            for process in self.processes:
                await process.step(flush=flush)

    async def status(self) -> tuple[str, int, str]:
        """Where the experiment stands by the book: status, stage, why."""
        standing = (await self.desk.shown(TRY))["standing"]
        return standing["status"], standing["stage"], standing["why"]
