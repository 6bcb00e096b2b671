"""Situations to try the dashboard on: each has the pools, classes and faults that it speaks of."""

from __future__ import annotations

import pytest

from bench.situations import SITUATIONS, world_of


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_is_of_its_world(name: str) -> None:
    """And its answer names who hurts."""
    situation = SITUATIONS[name]
    world = world_of(situation)
    assert {pool.name for pool in world.pools} == set(situation.pools)
    assert set(world.traffic.classes) == set(situation.classes)
    assert world.plain.name == situation.pools[0]
    assert situation.hurt in situation.pools[1:]
    assert situation.hurt in situation.answer
    if situation.fault is not None and situation.fault.class_id is not None:
        assert situation.fault.class_id in world.traffic.classes
