"""A world passes in the order of time, serves every request once, and is the same for all routers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from policies.sim.references import REFERENCES, FixedPool, LeastLoaded, RandomPool
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad
from policies.sim.spec import (
    Cell,
    ClassTraffic,
    EngineSpec,
    Event,
    PoolSpec,
    StepCost,
    TrafficSpec,
    WorldSpec,
)
from policies.sim.traffic import arrivals
from policies.sim.world import run
from policies.types import ClassId, Status

CHAT, CODE = ClassId("chat"), ClassId("code_edit")
COST = StepCost(0.006, 2e-5, 2e-5, per_kv_token_s=4e-8, overhead_s=0.001)
EAGLE = EngineSpec(
    "eagle3",
    3,
    replace(COST, draft_s=0.002),
    {CHAT: Cell(2.4, (0.65, 0.64, 0.64), 0.2, 300), CODE: Cell(1.3, (0.2, 0.2, 0.2))},
)
PLAIN = EngineSpec("none", 0, COST)
TRAFFIC = TrafficSpec(
    8.0,
    300,
    {
        CHAT: ClassTraffic(1, (150, 0.5), (150, 0.5), more_turns=0.5, template_tokens=64),
        CODE: ClassTraffic(1, (300, 0.5), (100, 0.5)),
    },
    think_s=5.0,
)
WORLD = WorldSpec(
    "test",
    "A test.",
    (
        PoolSpec("plain", "none", "vllm", 0, 2, PLAIN),
        PoolSpec("eagle", "eagle3", "vllm", 3, 2, EAGLE),
    ),
    TRAFFIC,
)


@dataclass
class Watching:
    """Goes round the pools that are up and keeps what it is shown."""

    asks: list[tuple[Ask, Sequence[PoolLoad]]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Go round."""
        self.asks.append((ask, loads))
        self.times.append(ask.at_s)
        up = [number for number, load in enumerate(loads) if load.up]
        return Choice(up[ask.index % len(up)], 1.0 / len(up))

    def learn(self, outcome: Outcome) -> None:
        """Keep it."""
        self.outcomes.append(outcome)
        self.times.append(outcome.ended_s)


def test_every_request_is_served_once_and_told_of_once() -> None:
    """One outcome for each arrival, with what an estimate needs."""
    watching = Watching()
    got = run(WORLD, watching, 1)
    assert sorted(o.ask.index for o in watching.outcomes) == list(range(300))
    assert np.isfinite(got.e2e_s).all()
    assert (got.ttft_s > 0).all()
    assert (got.e2e_s >= got.ttft_s).all()
    for outcome in watching.outcomes:
        trial = outcome.trial
        assert trial.tokens is not None
        assert trial.propensity == 0.5
        assert outcome.load >= 1
        if trial.arm_id == "plain":
            assert trial.spec is None
        else:
            assert trial.spec is not None
            assert trial.spec.steps is not None
            assert trial.spec.accepted is not None
            assert trial.spec.steps + trial.spec.accepted == trial.tokens


def test_a_router_sees_things_in_the_order_of_time() -> None:
    """Nothing is told of that has not happened yet."""
    watching = Watching()
    run(WORLD, watching, 1)
    assert watching.times == sorted(watching.times)


def test_the_same_seed_gives_the_same_run() -> None:
    """To the last digit."""
    first, second = (run(WORLD, RandomPool(3), 2) for _ in range(2))
    assert first.e2e_s.tolist() == second.e2e_s.tolist()
    assert run(WORLD, RandomPool(3), 3).e2e_s.tolist() != first.e2e_s.tolist()


def test_a_request_has_the_same_luck_whoever_routes_it() -> None:
    """Common random numbers: steps of a request under one method do not depend on the router."""
    steps = []
    for router in (FixedPool(1), RandomPool(1)):
        got = run(WORLD, router, 1)
        steps.append({o.ask.index: o.trial.spec for o in got.outcomes if o.trial.spec is not None})
    shared = steps[0].keys() & steps[1].keys()
    assert len(shared) > 50
    assert all(steps[0][index] == steps[1][index] for index in shared)


def test_loads_are_what_is_there() -> None:
    """Requests at the servers are those sent and not ended; the load counts this one too."""
    watching = Watching()
    run(WORLD, watching, 1)
    ended = {outcome.ask.index: outcome.ended_s for outcome in watching.outcomes}
    for ask, loads in watching.asks:
        there = sum(ended[index] > ask.at_s for index in range(ask.index))
        # A step under way at the moment of the choice may end requests at its end only.
        assert sum(load.running + load.waiting for load in loads) == there
        assert all(load.load >= 1 for load in loads)


def test_a_busier_world_is_slower() -> None:
    """Interference: more requests at a server make each of them slower."""
    times = []
    for rate in (1.0, 200.0):
        world = replace(WORLD, traffic=replace(TRAFFIC, rate=rate))
        times.append(float(run(world, LeastLoaded(), 1).e2e_s.mean()))
    assert times[1] > 1.1 * times[0]


def test_a_turn_finds_its_beginning_at_home_only() -> None:
    """Leaving the server that holds a conversation costs its prefill."""
    watching = Watching()
    run(WORLD, watching, 1)
    later = [(ask, loads) for ask, loads in watching.asks if ask.turn and ask.home is not None]
    home = [loads[ask.home].cached_tokens for ask, loads in later if ask.home is not None]
    away = [loads[1 - ask.home].cached_tokens for ask, loads in later if ask.home is not None]
    assert np.mean(home) > 2 * np.mean(away)
    assert max(home) > 64


def test_lost_requests_are_told_as_failed_and_tried_again() -> None:
    """A server that fails loses what it serves; the request goes on, its time runs on."""
    events = tuple(
        Event(at, "fail", pool="eagle", replica=replica, seconds=5.0)
        for at, replica in ((100, 0), (100, 1), (200, 0))
    )
    watching = Watching()
    world = replace(WORLD, events=events, traffic=replace(TRAFFIC, rate=30.0))
    got = run(world, watching, 1)
    failed = [o for o in watching.outcomes if o.trial.status is Status.FAILED]
    assert len(failed) == got.lost > 0
    assert {o.trial.arm_id for o in failed} == {"eagle"}
    assert all(o.trial.e2e_s is None for o in failed)
    assert np.isfinite(got.e2e_s).all()
    assert any(ask.attempt for ask, _ in watching.asks)
    assert any(loads[1].up == 0 for _, loads in watching.asks)
    with pytest.raises(ValueError, match="no server up"):
        run(world, _Stubborn(), 1)


class _Stubborn:
    """Chooses pool 1 whatever happens."""

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        del ask, loads
        return Choice(1)

    def learn(self, outcome: Outcome) -> None:
        del outcome


def test_a_drafter_that_goes_stale_slows_those_who_come_later() -> None:
    """Drift takes hold with the request it is set at."""
    world = replace(WORLD, events=(Event(150, "drift", "eagle", CHAT, 0.1),))
    before, after = run(WORLD, FixedPool(1), 1), run(world, FixedPool(1), 1)
    chat = np.array([name == "chat" for name in before.classes])
    assert after.tpot_s[:100].tolist() == before.tpot_s[:100].tolist()
    late = chat & (np.arange(300) >= 160)
    assert after.tpot_s[late].mean() > 1.4 * before.tpot_s[late].mean()


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_reference_runs_and_no_oracle_is_beaten_by_chance(name: str) -> None:
    """References serve all; those that know the truth beat the one that draws."""
    known = arrivals(TRAFFIC, 1)
    got = run(WORLD, REFERENCES[name](1), 1, known=known)
    drawn = run(WORLD, RandomPool(1), 1, known=known)
    assert len(got.e2e_s) == 300
    if "oracle" in name:
        assert got.e2e_s.mean() < drawn.e2e_s.mean()
