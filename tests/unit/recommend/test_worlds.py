"""Advice against simulated worlds, where what other lengths would take is known."""

from __future__ import annotations

import pytest

from policies.recommend import Acceptance, Bounds, Drawn, Point, Pool, step_at, tau_at
from policies.sim.spec import PoolSpec
from policies.types import ArmId
from router.simulate.load import load_world

LOADS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXT = 600.0
"""Tokens that a request attends to."""


def seconds(pool: PoolSpec, load: float) -> float:
    """A step of the world."""
    cost, k = pool.spec.cost, pool.k
    return float(cost.seconds(load * (1 + k), load * k, load * CONTEXT))


def near(value: float) -> Bounds:
    """Known to one per cent."""
    return Bounds(value, 0.99 * value, 1.01 * value)


def seen(pool: PoolSpec) -> Pool:
    """The pool, as measured at all loads."""
    points = tuple(Point(float(load), near(seconds(pool, load))) for load in LOADS)
    return Pool(ArmId(pool.name), pool.method, pool.k, 1, 4.0, points)


@pytest.mark.parametrize("load", [1.0, 4.0, 16.0, 64.0])
def test_steps_of_a_shorter_draft_are_told_by_a_longer_one(load: float) -> None:
    """EAGLE-3 with five tells what three take, within 5 per cent of the published curve."""
    world = {pool.name: pool for pool in load_world("llama8b-heavy").pools}
    drawn, plain = Drawn(seen(world["eagle3-k5"]), 0), Drawn(seen(world["plain"]), 1)
    found = float(step_at(drawn, plain, load, 3)[0])
    assert found == pytest.approx(seconds(world["eagle3"], load), rel=0.05)


def test_tokens_of_a_shorter_draft_are_told_by_a_longer_one() -> None:
    """Of every class, within 5 per cent of what was published of three."""
    world = {pool.name: pool for pool in load_world("llama8b-heavy").pools}
    longer, shorter = world["eagle3-k5"].spec, world["eagle3"].spec
    for class_id, cell in longer.cells.items():
        known = Acceptance(500, near(cell.tau), rates=cell.alphas)
        assert tau_at(known, 5, 3) == pytest.approx(shorter.cells[class_id].tau, rel=0.05)
