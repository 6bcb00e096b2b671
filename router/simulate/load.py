"""Reads the worlds that ship with the package, and files like them. It runs none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from policies.priors import MethodPrior
from policies.sim.fields import build
from policies.sim.spec import EngineSpec, WorldSpec, engines_of
from policies.types import ClassId


def world_names() -> tuple[str, ...]:
    """Worlds that ship with the package."""
    return _names("worlds")


def box_names() -> tuple[str, ...]:
    """Boxes that ship with the package: a model on a card, with its methods."""
    return _names("boxes")


def load_world(name: str) -> WorldSpec:
    """Read a world by its name, or from a file.

    Args:
        name: One of `world_names`, or a path that ends in `.yaml`; `box` in it may be a name, or
            stand there in full.

    Raises:
        ValueError: There is no such world, or its file is wrong; the message says where.
    """
    return WorldSpec.from_mapping(world_mapping(name))


def world_mapping(name: str) -> dict[str, object]:
    """The plain values of a world, its box put in."""
    given = dict(_read("worlds", name))
    if isinstance(given.get("box"), str):
        given["box"] = load_box(str(given["box"]))
    return given


def load_box(name: str) -> Mapping[str, object]:
    """Read the plain values of a box: by its name, or from a file."""
    given = dict(_read("boxes", name))
    given.pop("curves", None)
    return given


@dataclass(frozen=True, slots=True)
class Curve:
    """Published speed-ups over plain decoding.

    Attributes:
        arm: Of a box.
        class_id: Of which text.
        batch: Requests at once.
        speedup: At each batch.
        context: Tokens that each request attends to, on average.
    """

    arm: str
    class_id: ClassId
    batch: tuple[float, ...]
    speedup: tuple[float, ...]
    context: float


def load_curves(name: str) -> tuple[Curve, ...]:
    """What was published for a box, where its arms have the class; empty if nothing was."""
    given, engines = _read("boxes", name).get("curves"), load_engines(name)
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise ValueError(f"curves of {name!r} must be a mapping")  # noqa: TRY004
    return tuple(
        Curve(
            arm=str(arm),
            class_id=ClassId(class_id),
            batch=tuple(float(count) for count in given["batch"]),
            speedup=tuple(float(value) for value in values),
            context=float(given["context"][class_id]),
        )
        for arm, row in given["speedup"].items()
        for class_id, values in row.items()
        if engines[arm].cell(ClassId(class_id)) is not None
    )


def load_engines(name: str) -> dict[str, EngineSpec]:
    """The engine of every arm of a box."""
    return engines_of(load_box(name))


def load_priors(world: WorldSpec | None = None) -> dict[str, MethodPrior]:
    """What is published of each method; a world may tell its policies other taus instead."""
    given = yaml.safe_load((_folder("priors.yaml")).read_text(encoding="utf-8"))
    priors = {
        str(name): build(MethodPrior, row, f"methods.{name}")
        for name, row in given["methods"].items()
    }
    for name, taus in ((world and world.trial_priors) or {}).items():
        told = {ClassId(class_id): tau for class_id, tau in taus.items()}
        priors[name] = replace(priors[name], tau=told)
    return priors


def _folder(kind: str) -> Traversable:
    assert __package__ is not None, "it is a module of the package"
    return files(__package__) / kind


def _names(kind: str) -> tuple[str, ...]:
    found = (item.name for item in _folder(kind).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def _read(kind: str, name: str) -> Mapping[str, object]:
    if name.endswith(".yaml"):
        text = Path(name).read_text(encoding="utf-8")
    elif name in _names(kind):
        text = (_folder(kind) / f"{name}.yaml").read_text(encoding="utf-8")
    else:
        raise ValueError(f"there is no {name!r} among {kind}: {', '.join(_names(kind))}")
    given = yaml.safe_load(text)
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} must hold a mapping")  # noqa: TRY004
    return given
