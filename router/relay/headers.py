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
_NEVER_SENT = _HOP_BY_HOP | {"host", "content-length", "expect"}
_CREDENTIALS = frozenset(("authorization", "x-api-key"))
_ACCEPTED_CODINGS = frozenset(("accept-encoding",))
_OWN_PREFIX = "x-specroute-"


def to_upstream(headers: Headers, *, api_key: str | None, identity: bool) -> Headers:
    """Lines for the engine.

    Args:
        headers: The client's lines.
        api_key: Credential that replaces the client's own, attached here, after the destination
            is settled.
        identity: Ask for an uncompressed reply, because something has to be taken out of it.
    """
    dropped = _NEVER_SENT
    if api_key is not None:
        dropped |= _CREDENTIALS
    if identity:
        dropped |= _ACCEPTED_CODINGS
    kept = _kept(headers, dropped)
    if api_key is not None:
        kept.append(("Authorization", f"Bearer {api_key}"))
    if identity:
        kept.append(("Accept-Encoding", "identity"))
    return tuple(kept)


def to_client(
    headers: Headers, *, length_changes: bool, extra: Headers, length: int | None = None
) -> Headers:
    """Lines for the client.

    Args:
        headers: The engine's lines.
        length_changes: The body may become another one, so its length is not passed on.
        extra: Our own lines.
        length: Of the body that it has become; stands where the engine told its own.
    """
    dropped = _HOP_BY_HOP
    if length is not None:
        dropped |= _ABOUT_LENGTH - {"content-length"}
        headers = tuple(
            (name, str(length) if name.lower() == "content-length" else line)
            for name, line in headers
        )
    elif length_changes:
        dropped |= _ABOUT_LENGTH
    return (*_kept(headers, dropped), *extra)


def _kept(headers: Headers, dropped: frozenset[str]) -> list[tuple[str, str]]:
    names = [name.lower() for name, _ in headers]
    if "connection" in names:
        dropped |= _named_in_connection(headers)
    return [
        line
        for name, line in zip(names, headers, strict=True)
        if name not in dropped and not name.startswith(_OWN_PREFIX)
    ]


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
    for key, value in headers:
        if len(key) == len(wanted) and key.lower() == wanted:
            return value
    return None
