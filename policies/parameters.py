"""Strict decoding of a policy's parameters. It reads plain values, never a configuration file."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Check = Callable[[str, object], object]
"""Takes the parameter's name and raw value; returns the value or raises ValueError."""

T = TypeVar("T")


class ParameterError(ValueError):
    """A parameter that cannot be used."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        """Its name, so that whoever read a file can tell where it stands there."""


def suggestion(given: str, allowed: Iterable[str]) -> str:
    """Say which names are allowed, and which one was probably meant.

    Example:
        >>> suggestion("tompson", ["fixed", "thompson"])
        "allowed: fixed, thompson; did you mean 'thompson'?"
    """
    options = sorted(allowed)
    close = difflib.get_close_matches(given, options, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"allowed: {', '.join(options) or 'none'}{hint}"


def number(low: float, high: float) -> Check:
    """Accept a finite number within [low, high].

    Example:
        >>> number(0, 1)("floor", 0.5)
        0.5
    """

    def check(name: str, value: object) -> float:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
            raise ValueError(f"{name} must be a number within {low:g}..{high:g}, not {value!r}")
        return float(value)  # type: ignore[arg-type]

    return check


def integer(low: int, high: int) -> Check:
    """Accept an integer within [low, high].

    Example:
        >>> integer(1, 8)("draws", 4)
        4
    """

    def check(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{name} must be an integer within {low}..{high}, not {value!r}")
        return value

    return check


def text(name: str, value: object) -> str:
    """Accept a string that is not empty.

    Example:
        >>> text("arm", "plain")
        'plain'
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a string that is not empty, not {value!r}")
    return value


def weights(name: str, value: object) -> dict[str, float]:
    """Accept a mapping of names to non-negative numbers, not all 0.

    Example:
        >>> weights("weights", {"a": 1, "b": 3})
        {'a': 1.0, 'b': 3.0}
    """
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{name} must map arms to numbers, not {value!r}")
    check = number(0.0, 1e9)
    decoded = {text(name, key): check(f"{name}.{key}", item) for key, item in value.items()}
    result = {key: item for key, item in decoded.items() if isinstance(item, float)}
    if not sum(result.values()) > 0.0:
        raise ValueError(f"{name} must have a sum above 0, not {value!r}")
    return result


def table(name: str, value: object) -> dict[str, tuple[str, ...]]:
    """Accept a mapping of names to lists of names.

    Example:
        >>> table("table", {"chat": ["eagle3", "mtp"]})
        {'chat': ('eagle3', 'mtp')}
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must map classes to lists of names, not {value!r}")  # noqa: TRY004
    rows: dict[str, tuple[str, ...]] = {}
    for key, row in value.items():
        where = f"{name}.{key}"
        if not isinstance(row, Sequence) or isinstance(row, str) or not row:
            raise ValueError(f"{where} must be a list of names that is not empty, not {row!r}")
        rows[text(name, key)] = tuple(text(where, item) for item in row)
    return rows


def parameter(default: T, check: Check) -> T:
    """Declare a field of a parameter dataclass: its default and what is accepted."""
    field: Any = dataclasses.field(default=default, metadata={"check": check})
    return field  # type: ignore[no-any-return]


def decode(kind: type[T], given: Mapping[str, object], policy: str) -> T:
    """Build a parameter dataclass from plain values; nothing unknown, nothing out of range.

    Args:
        kind: A dataclass whose fields were declared with `parameter`.
        given: Name to value; a missing name takes the default.
        policy: Name of the policy, for messages.

    Raises:
        ParameterError: The message holds the parameter's name and what is allowed.
    """
    checks = {item.name: item.metadata["check"] for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in checks:
            hint = suggestion(str(name), checks)
            raise ParameterError(str(name), f"policy {policy!r} has no parameter {name!r}; {hint}")
        try:
            values[name] = checks[name](name, value)
        except ValueError as error:
            raise ParameterError(name, f"policy {policy!r}: {error}") from None
    return kind(**values)
