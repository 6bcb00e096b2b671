"""Load of a server in bands, and the parts of a cell that are named after them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.types import Counts

MOST = (1, 4, 16, 48)
"""Largest load of each band but the last: alone, 2-4, 5-16, 17-48, 49 and more. Factors of three to
four, since what speculation gains falls with the logarithm of the batch, about."""

BANDS = len(MOST) + 1

HIGHEST = 4096
"""Loads above count as this one: sums of their squares stay far from 63 bits."""

PARTS = tuple(f"~{band}" for band in range(BANDS))
"""Names of the parts, by band."""

_BAND_OF_PART = {part: band for band, part in enumerate(PARTS)}


def load_band(load: int) -> int:
    """Band of a load; a load below 1, which cannot be, counts as 1.

    Args:
        load: Requests at the server, the one in question included.

    Example:
        >>> [load_band(load) for load in (1, 2, 4, 5, 16, 17, 48, 49, 1000)]
        [0, 1, 1, 2, 2, 3, 3, 4, 4]
    """
    return bisect_left(MOST, load)


def load_part(load: int) -> str:
    """Name of the part of a cell that a request of this load counts in.

    Example:
        >>> load_part(20)
        '~3'
    """
    return PARTS[bisect_left(MOST, load)]


def by_band(parts: Mapping[str, Counts]) -> dict[int, Counts]:
    """The parts of a cell that are load bands, by band; other parts are left out.

    Example:
        >>> by_band({"": {"n": 9}, "a1+": {"n": 2}, "~1": {"n": 3}})
        {1: {'n': 3}}
    """
    return {_BAND_OF_PART[part]: sums for part, sums in parts.items() if part in _BAND_OF_PART}
