"""Requests that want another protocol."""

from __future__ import annotations

import pytest

from router.endpoints.upgrade import refused_upgrade
from router.errors import Reason
from router.types import Headers


@pytest.mark.parametrize(
    "headers",
    [
        (("Connection", "Upgrade"), ("Upgrade", "websocket")),
        (("connection", "keep-alive, Upgrade"), ("UPGRADE", "WebSocket")),
        (("Connection", "keep-alive"), ("Connection", "upgrade"), ("Upgrade", "h2c, websocket")),
        (("Connection", "Upgrade"), ("Upgrade", "IRC/6.9")),
    ],
)
def test_a_websocket_is_refused_with_a_reason(headers: Headers) -> None:
    """As a client's error: trying again would not help, and no server is at fault."""
    error = refused_upgrade(headers)
    assert error is not None
    assert (error.reason, error.http_status) == (Reason.UPGRADE_REFUSED, 400)
    assert "Only HTTP is served here" in error.message


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AA")),
        (("Connection", "Upgrade"), ("Upgrade", "TLS/1.0, HTTP/1.1")),
        (("Connection", "Upgrade"),),
        (("Upgrade", "websocket"),),
        (("Connection", "close"), ("Upgrade", "websocket")),
        (("Connection", "Upgrade"), ("Upgrade", "")),
    ],
)
def test_an_offer_in_passing_is_not_taken_up(headers: Headers) -> None:
    """Java's client offers HTTP/2 with every request, and is answered in HTTP/1.1."""
    assert refused_upgrade(headers) is None


def test_a_long_wish_is_not_repeated_whole() -> None:
    """Bounded, like every echo."""
    error = refused_upgrade((("Connection", "Upgrade"), ("Upgrade", "x" * 10_000)))
    assert error is not None
    assert len(error.message) < 250
