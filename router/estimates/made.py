"""In which slots an answer's tokens were made. Pure."""

from __future__ import annotations

from policies.values import value
from router.estimates.layout import SLOT_S, slot_at


@value
class Made:
    """Tokens of an answer, and when the first and the last of them came; wall clock, seconds.

    Where an engine counts tokens only at the end of a request, both times are that end.
    """

    tokens: int
    first_s: float
    last_s: float


def spread(made: Made) -> list[tuple[int, int]]:
    """Whole tokens by slot, as if they had come evenly; their sum is exact.

    Example:
        >>> spread(Made(10, 105.0, 125.0))
        [(10, 2), (11, 5), (12, 3)]
        >>> spread(Made(10, 125.0, 125.0))
        [(12, 10)]
    """
    first, last = slot_at(made.first_s), slot_at(made.last_s)
    if first >= last:
        return [(last, made.tokens)]
    rate = made.tokens / (made.last_s - made.first_s)
    found, told = [], 0
    for slot in range(first, last):
        until = int(rate * ((slot + 1) * SLOT_S - made.first_s))
        found.append((slot, until - told))
        told = until
    found.append((last, made.tokens - told))
    return found
