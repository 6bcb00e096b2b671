"""Gains and shares are against the same arrivals decoded plainly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.sim.compare import yardstick
from policies.sim.references import LeastLoaded, OracleTruth
from policies.sim.spec import (
    Cell,
    ClassTraffic,
    EngineSpec,
    PoolSpec,
    StepCost,
    TrafficSpec,
    WorldSpec,
)
from policies.types import ClassId

CHAT = ClassId("chat")
COST = StepCost(0.006, 2e-5, 2e-5)
EAGLE = EngineSpec("eagle3", 3, COST, {CHAT: Cell(2.4, (0.65,) * 3)})
WORLD = WorldSpec(
    "test",
    "A test.",
    (
        PoolSpec("plain", "none", "vllm", 0, 1, EngineSpec("none", 0, COST)),
        PoolSpec("eagle", "eagle3", "vllm", 3, 1, EAGLE),
    ),
    TrafficSpec(2.0, 150, {CHAT: ClassTraffic(1, (100, 0.5), (150, 0.5))}),
)


def test_the_oracle_has_all_of_its_own_gain_and_plain_decoding_none() -> None:
    """Share 1 and 0 by definition; a router that ignores methods lies between."""
    stick = yardstick(WORLD, 1)
    assert stick.share(stick.oracle) == pytest.approx(1.0)
    assert stick.share(stick.plain) == pytest.approx(0.0)
    share = stick.share(stick.run(LeastLoaded()))
    assert share is not None
    assert 0.0 < share < 1.0
    assert stick.gain(stick.all_in("eagle")) > 0.3
    assert stick.share(stick.run(OracleTruth()), slice(50, None)) == pytest.approx(1.0, abs=0.1)


def test_nothing_is_shared_where_nothing_is_gained() -> None:
    """A drafter whose drafts are never accepted leaves no gain to divide by."""
    useless = replace(EAGLE, cells={CHAT: Cell(1.01, (0.01,) * 3)})
    pools = (WORLD.pools[0], replace(WORLD.pools[1], spec=useless))
    assert yardstick(replace(WORLD, pools=pools), 1).share is not None
    stick = yardstick(replace(WORLD, pools=pools), 1)
    assert stick.share(stick.plain) is None
