"""How the values of a request are declared: nobody may change them, and they cost little to make.

A dataclass that is frozen at run time sets each field through `object.__setattr__`, which makes it
four times as dear as one that is not, and the values of one request have sixty fields. So it is the
type checker that forbids to change them, and a test that it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a slotted dataclass whose instances are never changed.

    Example:
        >>> @value
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), {Point(1): "as a key"}[Point(1, 0)]
        (Point(x=1, y=0), 'as a key')
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
