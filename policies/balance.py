"""Which server of a pool takes a request: costs of servers → one of them.

Here, and not in the router, because a simulated fleet places by the same rule.

A cost is a load in requests. The smallest wins; of several that are nearly as small, the better of
two drawn at random, so that processes which see the same figures do not all run to one server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

BASE = 4.0
"""Requests that every server counts as having besides its own: how much a cached prefix may move
while there is little load."""
_CLOSE = 1.2
"""Costs up to this multiple of the smallest are as good. Less makes processes that see each other's
load late run to one server, more makes a lone process blind (`bench/balance.py`)."""
WORTH_CACHING_BYTES = 2048
"""From so long a prompt on, its cached beginning counts in full."""
AFFINITY = 0.5
"""Share of the cost that a wholly cached prompt saves, unless it is configured."""


def saved(matched: float, prompt_bytes: int, affinity: float = AFFINITY) -> float:
    """The share of a request's cost that a server's cache saves.

    Args:
        matched: The part of the prompt that the server has, 0 to 1.
        prompt_bytes: Length of the prompt.
        affinity: What a wholly cached one saves.
    """
    return affinity * matched * min(prompt_bytes / WORTH_CACHING_BYTES, 1.0)


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
