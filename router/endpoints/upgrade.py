"""Whether a request wants another protocol than HTTP/1.1, which no server here speaks."""

from __future__ import annotations

from router.errors import LONGEST_QUOTE, Reason, RequestError
from router.types import Headers

_OPTIONAL = frozenset(("h2c", "h2", "http", "tls"))
"""What a client offers in passing: its request is answered as it stands, as RFC 9110 7.8 allows.
Java's HTTP client offers h2c with every request."""


def refused_upgrade(headers: Headers) -> RequestError | None:
    """The answer to a WebSocket and the like; None where the request can be served as it is."""
    offered = [token for value in _values(headers, "upgrade") for token in value.split(",")]
    if not offered:
        return None
    named = [
        token.strip().lower()
        for value in _values(headers, "connection")
        for token in value.split(",")
    ]
    if "upgrade" not in named:
        return None
    protocols = [token.strip() for token in offered if token.strip()]
    if all(protocol.partition("/")[0].lower() in _OPTIONAL for protocol in protocols):
        return None
    return RequestError(
        Reason.UPGRADE_REFUSED,
        f"Only HTTP is served here, no upgrade to {', '.join(protocols)[:LONGEST_QUOTE]}.",
    )


def _values(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name]
