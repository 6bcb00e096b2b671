"""How tries fail, in the seam's words."""

from __future__ import annotations

from router.errors import Reason
from router.relay.upstream import UpstreamError
from router.types import AttemptEnd


def unreachable(detail: str) -> UpstreamError:
    """There is no connection."""
    return UpstreamError(AttemptEnd.UNREACHABLE, Reason.UPSTREAM_UNAVAILABLE, detail)


def stale() -> UpstreamError:
    """The server had closed a connection that was kept for the next request."""
    return UpstreamError(AttemptEnd.STALE, Reason.UPSTREAM_UNAVAILABLE, "connection lost")


def lost() -> UpstreamError:
    """The connection has ended before the answer did."""
    return UpstreamError(AttemptEnd.DISCONNECTED, Reason.UPSTREAM_UNAVAILABLE, "connection lost")


def no_http() -> UpstreamError:
    """What came is no answer that could be passed on."""
    return UpstreamError(
        AttemptEnd.DISCONNECTED, Reason.UPSTREAM_PROTOCOL, "not a complete HTTP answer"
    )


def silent() -> UpstreamError:
    """Nothing came for too long."""
    return UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "no data within the limit")


def closed() -> UpstreamError:
    """Our own side has ended it."""
    return UpstreamError(AttemptEnd.DISCONNECTED, Reason.UPSTREAM_UNAVAILABLE, "closed")
