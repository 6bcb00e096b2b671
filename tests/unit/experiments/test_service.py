"""Experiments in several processes over one store: who moves them, and who leaves a treatment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from router.errors import StoreError
from router.experiments.model import Status
from router.experiments.rollout import TransitionError
from router.experiments.service import Source, Trials
from router.stores.base import Document
from router.stores.last_known import LastKnown
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.support.trial_world import MODEL, PLAN, TRY, TrialWorld

START = 1_800_000_000.0


class Switchable(MemoryStore):
    """A store that can be taken away."""

    away = False

    def _check(self) -> None:
        if self.away:
            raise StoreError("away")

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Reads, or fails."""
        self._check()
        return await super().read(keys)

    async def get(self, key: str) -> Document | None:
        """Reads, or fails."""
        self._check()
        return await super().get(key)

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """Writes, or fails."""
        self._check()
        return await super().put(key, data, expected=expected, entries=entries)


class Hanging(MemoryStore):
    """A store that takes what it is asked and never answers."""

    hangs = False

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Reads, or waits for ever."""
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return await super().read(keys)


def world(processes: int = 2) -> TrialWorld:
    """Processes over a store that can be taken away."""
    clock = ManualClock(START)
    return TrialWorld(Switchable(clock), clock, processes)


async def begun(processes: int = 2) -> tuple[TrialWorld, np.random.Generator]:
    """An experiment has just begun."""
    made = world(processes)
    await made.desk.start(PLAN, "ops")
    await made.refresh()
    return made, np.random.default_rng(7)


async def test_a_healthy_treatment_goes_up_stage_by_stage_and_is_done() -> None:
    """Each move is made once, however many processes look; who and why stand in the audit."""
    made, rng = await begun()
    await made.run(45, rng)
    status, stage, _ = await made.status()
    assert (status, stage) == ("running", 1)
    await made.run(40, rng)
    assert (await made.status())[0] == "done"
    audit = (await made.desk.shown(TRY))["audit"]
    assert [(line["who"], line["what"]) for line in audit] == [
        ("ops", "started"),
        ("ramp", "ramped"),
        ("ramp", "done"),
    ]
    assert audit[1]["evidence"]["treatment"] >= 20
    look = (await made.desk.shown(TRY))["look"]
    assert set(look["classes"]) == {"chat"}


async def test_sums_by_bucket_come_back_from_the_store() -> None:
    """What units differ by is known to all processes, and to the one that is alone."""
    made, rng = world(), np.random.default_rng(7)
    await made.desk.start({**PLAN, "unit": "session"}, "ops")
    await made.refresh()
    await made.run(60, rng)
    look = (await made.desk.shown(TRY))["look"]
    gain = look["evidence"]["gain"]
    assert gain["low"] < 0.0 < gain["high"]
    errors = next(of for of in look["evidence"]["guards"] if of["kind"] == "error_rate")
    assert errors["low"] < 0.0 < errors["high"]
    await made.run(60, rng, slower=1.15)
    assert (await made.status())[0] == "rolled_back"


@pytest.mark.parametrize(
    ("slower", "failing", "word"), [(2.0, 0.0, "slower"), (1.0, 0.2, "failing")]
)
async def test_sudden_harm_is_left_within_a_slot_and_rolled_back(
    slower: float, failing: float, word: str
) -> None:
    """Though hours of good requests lie before it; all processes know in the same second."""
    made, rng = await begun()
    await made.run(45, rng)
    assert (await made.status())[:2] == ("running", 1)
    await made.run(11, rng, slower=slower, failing=failing)
    status, _, why = await made.status()
    assert (status, word in why) == ("rolled_back", True)
    await made.refresh()
    assert [process.trials.rules.experiments for process in made.processes] == [(), ()]
    line = (await made.desk.shown(TRY))["audit"][-1]
    assert (line["who"], line["evidence"]["alarm"] is None) == ("guard", False)


@pytest.mark.parametrize(("slower", "failing"), [(2.0, 0.0), (1.0, 0.2)])
async def test_the_brake_needs_no_store(slower: float, failing: float) -> None:
    """Each process leaves by what it saw itself; the book follows when the store is back."""
    made, rng = await begun()
    await made.run(45, rng)
    assert isinstance(made.store, Switchable)
    made.store.away = True
    await made.run(11, rng, flush=False, slower=slower, failing=failing)
    rules = [process.trials.rules for process in made.processes]
    assert [bool(of.left) for of in rules] == [True, True]
    made.store.away = False
    assert (await made.status())[0] == "running"
    await made.run(3, rng)
    status, _, why = await made.status()
    assert (status, why.startswith("suddenly")) == ("rolled_back", True)


async def test_a_store_that_hangs_keeps_nobody_in_a_treatment() -> None:
    """What is known here is judged before the store is asked."""
    clock, rng = ManualClock(START), np.random.default_rng(7)
    store = Hanging(clock)
    made = TrialWorld(store, clock)
    await made.desk.start(PLAN, "ops")
    await made.refresh()
    await made.run(45, rng)
    [process] = made.processes
    store.hangs = True
    for _ in range(11):
        clock.advance(1.0)
        process.serve(10, rng, slower=2.0)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(process.step(flush=False))
            await asyncio.wait([looking], timeout=0.0)
            looking.cancel()
    assert process.trials.rules.left


async def test_the_brake_holds_while_a_look_waits_for_the_store() -> None:
    """However long it takes to answer."""
    made, rng = await begun(1)
    await made.run(45, rng)
    [process] = made.processes
    for _ in range(11):
        made.clock.advance(1.0)
        process.serve(10, rng, slower=2.0)
        process.trials.brake({MODEL: Source(process.reader.past, process.reader.history)})
    assert process.trials.rules.left == {(TRY, 2)}


async def test_slow_harm_is_rolled_back_by_what_gathers() -> None:
    """A tenth is no sudden harm; the intervals find it, and say by how much."""
    made, rng = await begun(1)
    await made.desk.ramp(TRY, "ops", 1)
    await made.refresh()
    for _ in range(60):
        await made.run(5, rng, requests=40, slower=1.12)
        if (await made.status())[0] == "rolled_back":
            break
    status, _, why = await made.status()
    assert (status, "suddenly" in why) == ("rolled_back", False)


async def test_a_process_goes_back_only_with_the_book() -> None:
    """Who left stays out as long as the epoch is the same, and follows a new one."""
    made, rng = await begun()
    first, _ = made.processes
    first.trials._left[TRY] = 1
    first.trials._renew()
    await made.run(5, rng)
    assert first.trials.rules.left == {(TRY, 1)}
    await made.desk.pause(TRY, "ops")
    await made.desk.resume(TRY, "ops")
    await made.refresh()
    assert first.trials.rules.left == frozenset()
    assert first.trials.rules.experiments[0].standing.epoch == 2


async def test_a_process_that_starts_again_goes_on_where_the_experiment_stands() -> None:
    """It knows what all saw before it began."""
    made, rng = await begun(1)
    await made.run(45, rng)
    again = TrialWorld(made.store, made.clock)
    await again.refresh()
    [experiment] = again.processes[0].trials.rules.experiments
    assert (experiment.standing.status, experiment.standing.stage) == (Status.RUNNING, 1)
    await again.run(40, rng)
    assert (await again.status())[0] == "done"


async def test_the_kill_switch_is_the_document_s_or_the_configuration_s() -> None:
    """Either suffices; the store may be away for the second."""
    made, _ = await begun(1)
    [process] = made.processes
    seen = []
    for on in (False, True):
        await made.desk.switch(on=on, who="ops", why="incident")
        await made.refresh()
        seen.append((process.trials.rules.off, (await made.desk.listed())["speculation"]))
    assert seen == [(True, False), (False, True)]
    process.trials.configure(speculation=False, class_ids=())
    assert process.trials.rules.off


async def test_a_store_that_was_emptied_does_not_undo_the_kill_switch() -> None:
    """Where nothing is known of it any more, what was ordered last holds."""
    made, _ = await begun(1)
    [process] = made.processes
    await made.desk.switch(on=False, who="ops", why="incident")
    await made.refresh()
    assert isinstance(made.store, MemoryStore)
    made.store._documents.clear()
    await made.refresh()
    assert process.trials.rules.off


async def test_an_emptied_store_that_comes_to_the_same_version_is_noticed() -> None:
    """What its new book says holds."""
    made, _ = await begun(1)
    [process] = made.processes
    assert process.trials.rules.experiments
    assert isinstance(made.store, MemoryStore)
    made.store._documents.clear()
    await made.desk.switch(on=False, who="ops", why="incident")
    await made.refresh()
    assert (process.trials.rules.off, process.trials.rules.experiments) == (True, ())


async def test_who_starts_while_the_store_is_away_knows_what_was_ordered(tmp_path: Path) -> None:
    """The kill switch holds; nobody is treated by a copy, since others may have left meanwhile."""
    made, _ = await begun(1)
    store, copies = made.store, LastKnown(tmp_path / "copies")
    assert isinstance(store, Switchable)
    first = Trials(store, "p", made.clock.wall, copies)
    await first.refresh()
    store.away = True
    again = Trials(store, "p", made.clock.wall, copies)
    with pytest.raises(StoreError):
        await again.refresh()
    assert [e.plan.name for e in again.rules.experiments] == [TRY]
    assert again.rules.left == {(TRY, 1)}
    store.away = False
    await again.refresh()
    assert again.rules.left == frozenset()
    await made.desk.switch(on=False, who="ops", why="incident")
    await again.refresh()
    store.away = True
    assert Trials(store, "p", made.clock.wall, copies).rules.off
    assert not Trials(store, "p", made.clock.wall).rules.off


async def test_orders_that_do_not_fit_change_nothing() -> None:
    """And leave no line."""
    made, _ = await begun(1)
    with pytest.raises(TransitionError, match="new name"):
        await made.desk.start(PLAN, "ops")
    with pytest.raises(TransitionError, match="cannot be resumed"):
        await made.desk.resume(TRY, "ops")
    assert len((await made.desk.shown(TRY))["audit"]) == 1
    for number in range(7):
        await made.desk.start({**PLAN, "name": f"other{number}"}, "ops")
    with pytest.raises(TransitionError, match="stop one first"):
        await made.desk.start({**PLAN, "name": "ninth"}, "ops")


async def test_what_ends_after_the_treatment_was_left_is_in_the_report_too() -> None:
    """Requests were on their way; nobody is judged by them any more."""
    made, rng = await begun()
    await made.run(45, rng)
    left = [process.trials.rules for process in made.processes]
    await made.run(11, rng, failing=0.2)
    assert (await made.status())[0] == "rolled_back"
    before = (await made.desk.shown(TRY))["look"]["ended"]["treatment"]["failed"]
    for process, rules in zip(made.processes, left, strict=True):
        now = process.trials.rules
        process.trials.rules = rules
        process.serve(30, rng, failing=1.0)
        process.trials.rules = now
    await made.run(20, rng)
    after = (await made.desk.shown(TRY))["look"]["ended"]["treatment"]["failed"]
    assert after >= before + 20
    assert (await made.status())[0] == "rolled_back"
