"""What the placing of a request on a server goes by."""

from __future__ import annotations

from dataclasses import dataclass

from policies.balance import AFFINITY
from policies.values import value


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much; 0 leaves something out of account."""

    queue: float = 2.0
    """Requests that one waiting at the engine counts as, beyond its own one."""
    kv: float = 8.0
    """Requests that a full cache for keys and values counts as."""
    affinity: float = AFFINITY
    """Share of the cost that a wholly cached prompt saves."""


@value
class Placement:
    """What placing a request may look at."""

    prefix: tuple[int, ...] = ()
    """Hashes of the beginnings of its prompt, the longest one last."""
    prompt_bytes: int = 0
    streamed: bool = True
    """Whether its answer comes in pieces, so that silence says something about its server."""
