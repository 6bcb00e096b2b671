"""Costs of servers → one of them: pure, the random numbers come in.

A cost is a load in requests. The smallest wins; of several that are nearly as small, the better of
two drawn at random, so that processes which see the same figures do not all run to one server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policies.values import value

BASE = 4.0
"""Requests that every server counts as having besides its own: how much a cached prefix may move
while there is little load."""
_CLOSE = 1.2
"""Costs up to this multiple of the smallest are as good. Less makes processes that see each other's
load late run to one server, more makes a lone process blind (`bench/balance.py`)."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much; 0 leaves something out of account."""

    queue: float = 2.0
    """Requests that one waiting at the engine counts as, beyond its own one."""
    kv: float = 8.0
    """Requests that a full cache for keys and values counts as."""
    affinity: float = 0.5
    """Share of the cost that a wholly cached prompt saves."""


@value
class Placement:
    """What placing a request may look at."""

    prefix: tuple[int, ...] = ()
    """Hashes of the beginnings of its prompt, the longest one last."""
    prompt_bytes: int = 0
    streamed: bool = True
    """Whether its answer comes in pieces, so that silence says something about its server."""


def cost(load: float, share: float, saved: float = 0.0) -> float:
    """What a request more would cost at a server.

    Args:
        load: Requests there, and what counts like some.
        share: Load that it should carry, relative to the others'.
        saved: Share of the cost that its cache saves.
    """
    return (BASE + load / share) * (1.0 - saved)


def pick(costs: Sequence[float], shares: Sequence[float], uniform: Callable[[], float]) -> int:
    """The index of the server that gets the request.

    Args:
        costs: At least one, each above 0.
        shares: How often each is drawn among equals, relative to the others.
        uniform: Draws from [0, 1).
    """
    limit = min(costs) * _CLOSE
    near = [index for index, value in enumerate(costs) if value <= limit]
    if len(near) == 1:
        return near[0]
    weights = [shares[index] for index in near]
    first = _draw(weights, uniform())
    if len(near) > 2:  # noqa: PLR2004 - of two, both would be drawn
        weights[first] = 0.0
        second = _draw(weights, uniform())
        if costs[near[second]] < costs[near[first]]:
            first = second
    elif costs[near[1 - first]] < costs[near[first]]:
        first = 1 - first
    return near[first]


def _draw(weights: list[float], number: float) -> int:
    left = number * sum(weights)
    last = 0
    for index, weight in enumerate(weights):
        if weight > 0.0:
            last = index
            left -= weight
            if left < 0.0:
                break
    return last
