"""Whatever sums a store holds, there is a snapshot, a plan, a state to show, gauges and advice."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator

import numpy as np
import orjson
import pytest

from policies.base import ContextPolicy
from policies.cost import typical_tokens
from policies.estimators.increments import effect_fields, increments
from policies.registry import build_any_policy
from policies.types import ClassId, SpecUsage, Status, Trial
from router.admin.gauges import route_gauges
from router.admin.state import RouteState, route_json
from router.estimates.detector import find_shift
from router.estimates.extras import more_cells
from router.estimates.knowing import Knowing
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import SnapshotBuilder
from router.fleet.state import FleetState
from router.recommend.render import recommend, text
from router.selection.expectations import expectations
from router.selection.plans import Plan, context_plan_steps, plan_steps
from router.serving import published_priors
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, FAST, PLAIN, pool, route_facts
from tests.support.pieces import result

FACTS = route_facts(
    pool("plain"), pool("fast", method="draft_model", num_speculative_tokens=3, replicas=2)
)
CLASSES = (ClassId("chat"), ClassId("math"))
NEWEST = 1_000_000
WALL = (NEWEST + 0.5) * BLOCK_S


def trials(rng: random.Random) -> Iterator[Trial]:
    """Requests as no engine has them: of a nanosecond or of years, of one token or of millions."""
    shortest = rng.uniform(-9.0, 2.0)
    longest = shortest + rng.uniform(0.0, 8.0)
    most = rng.choice([1, 2, 100, 10**6])
    for _ in range(rng.choice([1, 2, 8, 30])):
        took, tokens = 10.0 ** rng.uniform(shortest, longest), rng.randint(1, most)
        steps, k = rng.randint(1, tokens), rng.choice([1, 3, 7])
        prompt = rng.choice([1, 20, 750, 10**6])
        yield Trial(
            rng.choice(CLASSES),
            rng.choice([PLAIN, FAST]),
            rng.choice([*[Status.OK] * 6, *Status]),
            streamed=rng.random() < 0.8,
            propensity=rng.choice([1e-300, 1e-6, 0.005, 0.5, 1.0]),
            ttft_s=rng.choice([took, took, None, 1e-12, 1e6]),
            tpot_s=rng.choice([10.0 ** rng.uniform(shortest, longest), None, 1e-12]),
            e2e_s=rng.choice([took * tokens, took, None, 1e9]),
            tokens=rng.choice([tokens, tokens, None, 0]),
            spec=rng.choice([None, SpecUsage(steps, steps * k, rng.randint(0, tokens - 1))]),
            load=rng.choice([None, 1, 3, 50, 10**6]),
            waiting=rng.choice([None, 0, 10**9]),
            prompt_tokens=rng.choice([prompt, None]),
            cached_tokens=rng.choice([None, 0, prompt]),
            queue_s=rng.choice([None, 0.0, 1e9]),
            overhead_s=rng.choice([None, 1e-9, 1e9]),
            valid=rng.choice([None, True, False]),
            truncated=rng.choice([None, True, False]),
            by_chance=rng.random() < 0.9,
        )


def past(rng: random.Random) -> Past:
    """Blocks of such requests, many times over, with a figure here and there that is none."""
    blocks, times = {}, rng.choice([1, 1, 1000, 10**9])
    for index in range(NEWEST + 1 - rng.choice([1, 2, 5, 9, 20, 30]), NEWEST + 1):
        cells: Cells = {}
        for trial in trials(rng):
            added = increments(trial, typical_tokens(trial.class_id))
            effects = effect_fields(added)
            part = SegmentId(rng.choice(["a1", "a1+", "+", "~1"]))
            more = more_cells(trial, effects, {PLAIN})
            own = (((trial.arm_id, trial.class_id, name), of) for name, of in
                   ((POOLED, added), (part, effects)))  # fmt: skip
            for key, sums in (*own, *more):
                bounded = {name: min(n * times, 2**63 - 1) for name, n in sums.items()}
                merge_cells(cells, {key: bounded})
        if cells and rng.random() < 0.1:
            key = rng.choice(list(cells))
            cells[key] = {**cells[key], rng.choice(list(cells[key])): rng.choice([-5, 2**62])}
        blocks[index] = cells
    return Past(blocks, NEWEST, frozenset(set(blocks) - {NEWEST}))


def planned(name: str, sums: Past, builder: SnapshotBuilder) -> tuple[RouteState, Plan]:
    """What is known of a route, and what a policy makes of it."""
    built, policy = builder.build(sums, WALL), build_any_policy(name, {}, ARMS, CLASSES)
    rng = np.random.default_rng(0)
    if isinstance(policy, ContextPolicy):
        knowing = Knowing(ARMS, expectations(ARMS, CLASSES, published_priors()), 900.0)
        look = knowing.look(sums, {name: of.parts for name, of in built.classes.items()}, WALL)
        known = result(look)
        steps = context_plan_steps(policy, known, tuple(built.classes), version=1, rng=rng)
    else:
        steps = plan_steps(policy, built.views(), ARMS, version=1, rng=rng)
    plan = next(made for made in steps if made is not None)
    return RouteState(FACTS, FleetState(FACTS).view(), built, plan), plan


@pytest.mark.parametrize("name", ["net_gain", "linear", "thompson", "ucb", "exp3"])
@pytest.mark.parametrize("seed", range(16))
def test_nothing_fails(name: str, seed: int) -> None:
    """No policy is left out for a class, and all that is shown is a number or not known."""
    sums = past(random.Random(seed))
    builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1, detect=find_shift)
    state, plan = planned(name, sums, builder)
    assert not plan.spoiled
    assert all(math.isfinite(value) for _, _, value in route_gauges(state))
    shown = json.loads(orjson.dumps(route_json(state)))
    assert text(recommend({"time": WALL, "window_s": 3600, "routes": [shown]}))
