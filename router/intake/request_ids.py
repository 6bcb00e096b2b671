"""Names for requests; they say nothing of the request, and nothing of how many there were."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

_DIGITS = 16
_AT_ONCE = 256


def request_ids() -> Iterator[str]:
    """Yields names of sixteen hexadecimal digits, without end.

    The system is asked for the randomness of many at a time: asking costs as much for one.
    """
    while True:
        drawn = secrets.token_hex(_AT_ONCE * _DIGITS // 2)
        for start in range(0, len(drawn), _DIGITS):
            yield drawn[start : start + _DIGITS]
