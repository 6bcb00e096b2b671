"""Work that is done in pieces, so that requests get their turn in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def result(steps: Generator[None, None, T]) -> T:
    """What comes out at the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
