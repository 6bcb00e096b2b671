"""A simulated server keeps its books, and jumps to where steps would lead it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.sim.engine import SimEngine
from policies.sim.machine import EngineCounters, SimMachine, SimRequest
from policies.sim.spec import Cell, EngineSpec, StepCost
from policies.types import ClassId

CHAT = ClassId("chat")
COST = StepCost(0.006, 2e-5, 2e-5, per_kv_token_s=4e-8, overhead_s=0.001, draft_s=0.002)
CHAIN = Cell(2.3, (0.62, 0.61, 0.66), 0.35, 572)
LEARNS = Cell(1.2, (0.1, 0.9, 0.9), 0.2, 300, lag1=0.4, learned_tau=3.0, learn_tokens=500.0)


def spec(cell: Cell | None = CHAIN, **changes: object) -> EngineSpec:
    cells = {CHAT: cell} if cell else {}
    cost = COST if cell else replace(COST, draft_s=0.0)
    values: dict[str, object] = {"method": "eagle3", "k": 3 if cell else 0, "cells": cells}
    return EngineSpec(**(values | {"cost": cost, "jitter_sd": 0.0} | changes))  # type: ignore[arg-type]


def engine(cell: Cell | None = CHAIN, **changes: object) -> SimEngine:
    return SimEngine(spec(cell, **changes), np.random.default_rng(0))


def request(number: int, prompt: int = 100, output: int = 50, template: str = "t") -> SimRequest:
    return SimRequest(f"r{number}", CHAT, prompt, output, template, seed=number)


def run_out(machine: SimEngine) -> float:
    seconds = 0.0
    while (step := machine.step()) is not None:
        seconds += step.duration_s
    return seconds


def test_plain_decoding_takes_a_step_for_each_token() -> None:
    """One request alone: prefill, then a token a step, at the price that the cost says."""
    machine = engine(None)
    machine.submit(request(1, prompt=100, output=3))
    first, second, third = machine.step(), machine.step(), machine.step()
    assert first is not None
    assert second is not None
    assert third is not None
    assert machine.step() is None
    assert first.duration_s == pytest.approx(0.007 + 100 * 2e-5)
    assert second.duration_s == pytest.approx(0.007 + 2e-5 + 101 * 4e-8)
    assert [step.emissions[0].first for step in (first, second, third)] == [True, False, False]
    assert [step.emissions[0].finished for step in (first, second, third)] == [False, False, True]
    assert machine.counters == EngineCounters(generated=3, prompt=100, steps=3, finished=1)


def test_steps_give_away_all_tokens_and_the_counters_say_so() -> None:
    """What emissions add up to is what counters hold, at every moment."""
    machine: SimMachine = engine()
    for number in range(10):
        machine.submit(request(number, output=20 + number))
    emitted = {f"r{number}": 0 for number in range(10)}
    accepted = drafted = drafts = 0
    while (step := machine.step()) is not None:
        for emission in step.emissions:
            emitted[emission.request_id] += emission.tokens
            accepted += emission.accepted
            drafted += emission.drafted
            drafts += emission.drafted > 0
        counters = machine.counters
        assert counters.generated == sum(emitted.values())
        assert (counters.accepted, counters.drafted) == (accepted, drafted)
        assert counters.drafts == drafts
        assert sum(counters.per_position) == accepted
        assert list(counters.per_position) == sorted(counters.per_position, reverse=True)
    assert emitted == {f"r{number}": 20 + number for number in range(10)}
    assert machine.counters.finished == 10


@settings(max_examples=30, deadline=None)
@given(
    outputs=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    slots=st.integers(1, 6),
    chunk=st.integers(4, 300),
)
def test_jumps_lead_where_steps_lead(outputs: list[int], slots: int, chunk: int) -> None:
    """A jump is so many steps: time, books and what finished are the same."""
    one, other = (
        SimEngine(
            spec(slots=slots, chunk_tokens=chunk, jitter_sd=0.1, boot_sd=0.1),
            np.random.default_rng(3),
        )
        for _ in range(2)
    )
    for number, output in enumerate(outputs):
        one.submit(request(number, output=output))
        other.submit(request(number, output=output))
    stepped, jumped = run_out(one), 0.0
    finished: list[str] = []
    while len(durations := other.peek()):
        jumped += float(durations.sum())
        finished += other.commit(len(durations)).finished
    assert jumped == pytest.approx(stepped)
    assert other.counters == one.counters
    assert sorted(finished) == sorted(f"r{number}" for number in range(len(outputs)))


def test_a_jump_may_be_cut_anywhere() -> None:
    """Half a jump and then the rest is the jump."""
    whole, cut = engine(), engine()
    for machine in (whole, cut):
        machine.submit(request(1))
        machine.commit(1)
    seconds = whole.peek().copy()
    assert cut.commit(3).finished == ()
    assert cut.peek() == pytest.approx(seconds[3:])
    with pytest.raises(ValueError, match="steps"):
        cut.commit(len(seconds))


def test_slots_and_the_cache_bound_what_runs() -> None:
    """Requests beyond the slots, or beyond the KV cache, wait in their order."""
    machine = engine(slots=2)
    for number in range(4):
        machine.submit(request(number))
    step = machine.step()
    assert step is not None
    assert (step.running, step.waiting) == (2, 2)
    small = engine(kv_tokens=320)
    for number in range(4):
        small.submit(request(number, prompt=100, output=50))
    step = small.step()
    assert step is not None
    assert (step.running, step.waiting) == (2, 2)
    assert step.kv_usage == pytest.approx(300 / 320)
    with pytest.raises(ValueError, match="KV cache"):
        small.submit(request(9, prompt=300, output=50))
    with pytest.raises(ValueError, match="known already"):
        small.submit(request(1))


def test_a_long_prompt_is_prefilled_in_chunks_and_what_is_cached_not_at_all() -> None:
    """Prefill shares steps with decoding; a cached beginning costs nothing."""
    machine = engine(None, chunk_tokens=50)
    machine.submit(request(1, prompt=120, output=2))
    firsts = []
    for _ in range(3):
        step = machine.step()
        assert step is not None
        firsts.append(bool(step.emissions))
    assert firsts == [False, False, True]
    cached = engine(None)
    cached.submit(SimRequest("r1", CHAT, 1000, 2, cached_tokens=990))
    assert cached.peek()[0] == pytest.approx(0.007 + 10 * 2e-5)


def test_a_cancelled_request_is_gone_from_time_and_books() -> None:
    """What runs on is as fast as if the other had never been, from then on."""
    alone, left = engine(), engine()
    alone.submit(request(1))
    left.submit(request(1))
    left.submit(request(2))
    alone.step()
    left.step()
    left.cancel("r2")
    left.cancel("unknown")
    assert left.peek() == pytest.approx(alone.peek())
    run_out(left)
    assert left.counters.finished == 1
    left.submit(request(2))
    left.cancel("r2")
    assert left.step() is None
    assert left.requests() == ()


def test_a_request_fares_the_same_beside_others() -> None:
    """Its drafts depend on its seed, not on the batch: policies are compared on the same luck."""
    alone, crowded = engine(), engine()
    alone.submit(request(1))
    for number in range(1, 8):
        crowded.submit(request(number))
    run_out(alone)
    run_out(crowded)
    assert alone.counters.accepted == _accepted(1)
    assert crowded.counters.accepted == sum(_accepted(number) for number in range(1, 8))


def _accepted(number: int) -> int:
    machine = engine()
    machine.submit(request(number))
    run_out(machine)
    return machine.counters.accepted


def test_a_drafter_that_learns_forgets_at_a_restart() -> None:
    """What it serves makes it better for that template only; a restart empties it."""
    machine = engine(LEARNS)
    assert machine.learned(CHAT, "t") == 0.0
    machine.submit(request(1, output=1000))
    run_out(machine)
    assert machine.learned(CHAT, "t") == pytest.approx(1.0 - np.exp(-2.0))
    assert machine.learned(CHAT, "u") == 0.0
    machine.submit(request(2))
    machine.restart()
    assert machine.learned(CHAT, "t") == 0.0
    assert machine.step() is None
    assert machine.counters == EngineCounters(per_position=(0, 0, 0))


def test_a_drafter_may_change_while_it_serves() -> None:
    """A new drafter holds for those that begin after it."""
    machine = engine()
    machine.become(spec().scaled(CHAT, 0.0))
    machine.submit(request(1))
    run_out(machine)
    assert machine.counters.accepted == 0
    assert machine.counters.drafted == 3 * 49


def test_the_books_outlive_many_steps() -> None:
    """The sums over steps to come move along with time, however long a server runs."""
    machine = engine()
    for number in range(60):
        machine.submit(request(number, output=200))
        machine.submit(request(1000 + number, output=10))
        while machine.running + machine.waiting > 1:
            machine.commit(len(machine.peek()))
    run_out(machine)
    assert machine.counters.finished == 120
    assert machine.counters.generated == 60 * 210
    assert machine.kv_usage == 0.0


@pytest.mark.parametrize("cell", [CHAIN, None])
def test_more_requests_at_once_make_longer_steps_and_more_tokens(cell: Cell | None) -> None:
    """Batching: a step grows with its tokens, far less than they do."""
    times = []
    for count in (1, 16, 64):
        machine = engine(cell)
        for number in range(count):
            machine.submit(request(number, output=400))
        machine.step()
        times.append(float(machine.peek()[0]))
    assert times == sorted(times)
    assert times[2] < 64 * times[0] / 4
