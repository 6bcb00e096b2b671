"""Reads the worlds that ship with the package, and files like them. It runs none."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from policies.sim.spec import EngineSpec, WorldSpec, engines_of


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


def load_curves(name: str) -> Mapping[str, object]:
    """Speed-ups that were published for a box: by arm, class and batch; empty if there are none."""
    curves = _read("boxes", name).get("curves", {})
    if not isinstance(curves, Mapping):
        raise ValueError(f"curves of {name!r} must be a mapping")  # noqa: TRY004
    return curves


def load_engines(name: str) -> dict[str, EngineSpec]:
    """The engine of every arm of a box."""
    return engines_of(load_box(name))


def load_priors() -> dict[str, dict[str, dict[str, float]]]:
    """What is published of methods: tau and the cost of a step by method and class.

    Returns:
        By method: `tau` by class (`*` for any) and `step` with `cost` (a step over a plain one,
        one request), both with the sd of their logarithm in `sd`.
    """
    given = yaml.safe_load((files(__package__) / "priors.yaml").read_text(encoding="utf-8"))
    return {
        str(method): {
            str(part): {str(key): float(value) for key, value in row.items()}
            for part, row in parts.items()
            if isinstance(row, Mapping)
        }
        for method, parts in given["methods"].items()
    }


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
