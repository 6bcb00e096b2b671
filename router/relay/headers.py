"""Which header lines pass in each direction."""

from __future__ import annotations

from router.types import Headers

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_ABOUT_LENGTH = frozenset(
    ("content-length", "content-md5", "content-digest", "repr-digest", "digest", "etag")
)
_OWN_PREFIX = "x-specroute-"


def to_upstream(headers: Headers, *, api_key: str | None, identity: bool) -> Headers:
    """Lines for the engine.

    Args:
        headers: The client's lines.
        api_key: Credential that replaces the client's own, attached here, after the destination
            is settled.
        identity: Ask for an uncompressed reply, because something has to be taken out of it.
    """
    dropped = _HOP_BY_HOP | _named_in_connection(headers) | {"host", "content-length", "expect"}
    if api_key is not None:
        dropped |= {"authorization", "x-api-key"}
    if identity:
        dropped |= {"accept-encoding"}
    kept = [line for line in headers if _passes(line[0], dropped)]
    if api_key is not None:
        kept.append(("Authorization", f"Bearer {api_key}"))
    if identity:
        kept.append(("Accept-Encoding", "identity"))
    return tuple(kept)


def to_client(headers: Headers, *, length_changes: bool, extra: Headers) -> Headers:
    """Lines for the client.

    Args:
        headers: The engine's lines.
        length_changes: The body may become shorter, so its length is not passed on.
        extra: Our own lines.
    """
    dropped = _HOP_BY_HOP | _named_in_connection(headers)
    if length_changes:
        dropped |= _ABOUT_LENGTH
    return (*(line for line in headers if _passes(line[0], dropped)), *extra)


def _passes(name: str, dropped: frozenset[str]) -> bool:
    lowered = name.lower()
    return lowered not in dropped and not lowered.startswith(_OWN_PREFIX)


def _named_in_connection(headers: Headers) -> frozenset[str]:
    return frozenset(
        token.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for token in value.split(",")
    )


def header(headers: Headers, name: str) -> str | None:
    """First value of a header, or None."""
    wanted = name.lower()
    return next((value for key, value in headers if key.lower() == wanted), None)
