"""Ways in which a network may cut the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from hypothesis import strategies as st

SIZES = (1, 2, 3, 7, 64, 1000, 1 << 30)
"""Lengths of pieces that find most mistakes; the last one is "all at once"."""


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """The data in pieces of one size."""
    return (data[at : at + size] for at in range(0, len(data), size))


def cut(data: bytes, points: Iterable[int]) -> list[bytes]:
    """The data cut at the given points; points beyond its end, and double ones, are harmless."""
    edges = [0, *sorted(point for point in points if point < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def points(longest: int = 400) -> st.SearchStrategy[list[int]]:
    """Some points to cut at; empty pieces come up too."""
    return st.lists(st.integers(0, longest), max_size=30)
