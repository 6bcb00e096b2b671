"""Builds dataclasses from plain values and says what is wrong with them; it knows no world."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build(kind: type[T], given: Mapping[str, object], where: str, **built: object) -> T:
    """Make a dataclass of what a file said.

    Args:
        kind: The dataclass; its fields are numbers, text, tuples, mappings or such dataclasses.
        given: Value by field.
        where: Path in the file, for messages.
        built: Fields that need no conversion.

    Raises:
        ValueError: A field is missing, unknown or of the wrong kind.

    Example:
        >>> @dataclasses.dataclass
        ... class Point:
        ...     x: float
        ...     y: tuple[float, ...] = ()
        >>> build(Point, {"x": 1, "y": [2, 3]}, "point")
        Point(x=1.0, y=(2.0, 3.0))
    """
    hints = get_type_hints(kind)
    fields = {item.name: item for item in dataclasses.fields(kind) if item.name not in built}  # type: ignore[arg-type]
    extra = sorted(set(given) - set(fields))
    if extra:
        raise ValueError(f"{where} knows no {', '.join(extra)}; it knows {', '.join(fields)}")
    values = dict(built)
    for name, item in fields.items():
        if name in given:
            values[name] = _convert(hints[name], given[name], f"{where}.{name}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} needs {name}")
    return kind(**values)


def _convert(hint: object, value: object, where: str) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _convert(next(a for a in arguments if a is not NoneType), value, where)
    if origin is tuple:
        return _tuple(arguments, value, where)
    if origin is Mapping:
        return _mapping(arguments, value, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} must be a mapping, not {value!r}")
        return build(hint, value, where)
    return _scalar(hint, value, where)


def _tuple(arguments: tuple[object, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be a list, not {value!r}")  # noqa: TRY004
    endless = arguments[-1] is Ellipsis
    if not endless and len(value) != len(arguments):
        raise ValueError(f"{where} must have {len(arguments)} values, not {value!r}")
    kinds = (arguments[0],) * len(value) if endless else arguments
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(_convert(kind, item, f"{where}[{index}]") for index, (kind, item) in pairs)


def _mapping(arguments: tuple[object, ...], value: object, where: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping, not {value!r}")  # noqa: TRY004
    return {
        str(name): _convert(arguments[1], item, f"{where}.{name}") for name, item in value.items()
    }


def _scalar(hint: object, value: object, where: str) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float:
        if number and math.isfinite(float(str(value))):
            return float(str(value))
    elif hint is int:
        if number and isinstance(value, int):
            return value
    elif isinstance(value, str):
        return value
    kind = getattr(hint, "__name__", "text")
    raise ValueError(f"{where} must be {kind}, not {value!r}")
