"""What follows from the end of a try, as a table, and how many tries a route may afford."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from router.fleet.state import Seen
from router.types import AttemptEnd, Headers

MOST_LOST = 2
"""Servers that took a request and were gone without an answer. It may be the request that ends
them, so it is not carried through the whole fleet."""

_SECONDS = re.compile(r"\s*-?[0-9]+(\.[0-9]*)?\s*", re.ASCII)

_LONGEST_WAIT_S = 300.0
"""Of a `Retry-After`: a server that says more is asked again all the same."""


@dataclass(frozen=True, slots=True)
class Follows:
    """What a try's end means."""

    seen: Seen | None
    """What the fleet is told; nothing where the server is not to blame."""
    same_arm: bool
    """Whether another server of the same arm is tried."""
    baseline: bool
    """Whether plain decoding is tried after that."""


FOLLOWS: dict[AttemptEnd, Follows] = {
    AttemptEnd.UNREACHABLE: Follows(Seen.UNREACHABLE, same_arm=True, baseline=True),
    AttemptEnd.STALE: Follows(None, same_arm=True, baseline=True),
    AttemptEnd.DISCONNECTED: Follows(Seen.FAILED, same_arm=False, baseline=True),
    AttemptEnd.BUSY: Follows(Seen.BUSY, same_arm=True, baseline=True),
    AttemptEnd.SERVER_ERROR: Follows(Seen.FAILED, same_arm=False, baseline=True),
    # It may still be working on the answer; a second server would double that.
    AttemptEnd.TIMEOUT: Follows(Seen.FAILED, same_arm=False, baseline=False),
    AttemptEnd.OVERTAKEN: Follows(None, same_arm=False, baseline=False),
}


class RetryBudget:
    """Tries beyond the first: a share of the requests, so that they cannot double the load.

    A token bucket that every request fills a little, as in Finagle's `RetryBudget`: `share` tokens
    a request, at most `most`, which is also what a route begins with.
    """

    def __init__(self, share: float = 0.2, most: float = 20.0) -> None:
        self._share = share
        self._most = most
        self._left = most

    def arrived(self) -> None:
        """A request has come."""
        self._left = min(self._left + self._share, self._most)

    def take(self) -> bool:
        """Whether one more try may be made; it is paid for."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


_TOO_LONG = (
    b"maximum context length",
    b"context length",
    b"context size",
    b"context window",
    b"max_model_len",
    b"longer than the model",
    b"longer than the maximum model length",
    b"prompt is too long",
    b"prompt too long",
    b"input is too long",
    b"input too long",
    b"is too large to process",
    b"too many tokens",
)
"""A bare "too long" would do for an engine that took too long."""


def says_prompt_too_long(body: bytes) -> bool:
    """Whether an engine's error is about the length of the prompt, whatever its status says."""
    text = body.lower()
    return any(mark in text for mark in _TOO_LONG)


def retry_after_s(headers: Headers, wall: float) -> float | None:
    """Seconds that a `Retry-After` asks for, at most five minutes; None if there is none.

    Args:
        headers: Of the answer.
        wall: Now, for the form that is a date (RFC 9110, section 10.2.3).

    >>> retry_after_s((("Retry-After", "7"),), 0.0)
    7.0
    """
    value = next((value for name, value in headers if name.lower() == "retry-after"), None)
    if value is None:
        return None
    try:
        seconds = float(value) if _SECONDS.fullmatch(value) else _until(value, wall)
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT_S)


def _until(value: str, wall: float) -> float:
    moment = parsedate_to_datetime(value)
    if moment.tzinfo is None:  # the old form without a zone, which means UTC too
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - wall
