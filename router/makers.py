"""What makes the parts that every request passes through, so that others may stand in for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from router.pipeline import Pipeline
from router.relay.relay import Relay
from router.relay.wire.upstream import WireUpstream


@dataclass(frozen=True, slots=True)
class Makers:
    """Each takes what the class of its default takes."""

    pipeline: Callable[..., Pipeline] = Pipeline
    relay: Callable[..., Relay] = Relay
    upstream: Callable[[], WireUpstream] = WireUpstream


PLAIN = Makers()
"""Nothing stands in for anything."""
