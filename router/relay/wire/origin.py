"""Where a server is, taken from its base URL once."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """A server's address, and what requests to it have in common."""

    host: str
    """Name or address, ASCII, an IPv6 address without brackets."""
    port: int
    tls: bool
    authority: str
    """Value of the Host header."""
    prefix: str
    """Path that stands before that of each request; empty or `/…` without a slash at its end."""


def origin_of(url: str) -> Origin:
    """Reads a base URL.

    Raises:
        ValueError: It names no server that can be reached over HTTP.
    """
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    if not parts.hostname or port is None:
        raise ValueError("no http:// or https:// URL")
    name = parts.hostname
    host = name if name.isascii() else name.encode("idna").decode("ascii")
    # A zone says which of our own interfaces leads there; the server does not know it.
    shown = f"[{host.partition('%')[0]}]" if ":" in host else host
    if port != _PORTS[parts.scheme]:
        shown = f"{shown}:{port}"
    return Origin(host, port, parts.scheme == "https", shown, parts.path.rstrip("/"))
