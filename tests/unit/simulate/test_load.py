"""The worlds that ship with the package load, and say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from router.simulate.load import (
    box_names,
    load_curves,
    load_engines,
    load_priors,
    load_world,
    world_mapping,
    world_names,
)


@pytest.mark.parametrize("name", world_names())
def test_every_world_loads_under_its_own_name(name: str) -> None:
    """With one plain pool, arrivals of classes that its pools draft for, and a hash."""
    world = load_world(name)
    assert world.name == name
    assert len(world.digest) == 64
    assert world.traffic.requests == 5000
    for pool in world.pools:
        if pool.k:
            assert all(pool.spec.cell(class_id) for class_id in world.traffic.classes)


@pytest.mark.parametrize("name", box_names())
def test_every_box_says_where_it_is_from(name: str) -> None:
    """Engines can be built of it, one of them plain, and curves are of arms that it has."""
    engines = load_engines(name)
    assert engines["plain"].k == 0
    assert {curve.arm for curve in load_curves(name)} <= set(engines)


def test_hashes_tell_worlds_apart() -> None:
    """No two worlds are the same."""
    assert len({load_world(name).digest for name in world_names()}) == len(world_names())


def test_a_world_may_stand_in_a_file(tmp_path: Path) -> None:
    """A user's own world, its box in full or by name."""
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(world_mapping("spark")), encoding="utf-8")
    assert load_world(str(path)).digest == load_world("spark").digest
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="must hold a mapping"):
        load_world(str(path))
    with pytest.raises(ValueError, match=r"there is no 'nowhere' among worlds: .*spark"):
        load_world("nowhere")


def test_priors_cover_the_methods_of_all_worlds_and_a_world_may_lie() -> None:
    """Published numbers by method; a world may hand out wrong ones."""
    priors = load_priors()
    for name in world_names():
        assert {pool.method for pool in load_world(name).pools} <= set(priors)
    wrong = load_priors(load_world("wrong-priors"))
    assert wrong["mtp"].tau != priors["mtp"].tau
    assert wrong["mtp"].step == priors["mtp"].step
    assert all(prior.source for prior in priors.values())
