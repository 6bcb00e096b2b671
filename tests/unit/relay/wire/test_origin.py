"""Base URLs and what is made of them."""

from __future__ import annotations

import pytest

from router.relay.wire.origin import Origin, origin_of

CLEAR, SAFE = False, True


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://engine:8000", Origin("engine", 8000, CLEAR, "engine:8000", "")),
        ("http://Engine", Origin("engine", 80, CLEAR, "engine", "")),
        ("https://engine", Origin("engine", 443, SAFE, "engine", "")),
        ("https://engine:80/a/b/", Origin("engine", 80, SAFE, "engine:80", "/a/b")),
        ("http://[2001:db8::1]:8000", Origin("2001:db8::1", 8000, CLEAR, "[2001:db8::1]:8000", "")),
        ("http://[::1]", Origin("::1", 80, CLEAR, "[::1]", "")),
        ("http://[fe80::1%eth0]:1", Origin("fe80::1%eth0", 1, CLEAR, "[fe80::1]:1", "")),
        (
            "http://bücher.example",
            Origin("xn--bcher-kva.example", 80, CLEAR, "xn--bcher-kva.example", ""),
        ),
    ],
)
def test_an_address(url: str, origin: Origin) -> None:
    """Host and port to connect to, and how they are shown to the server."""
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "engine:8000",
        "http://",
        "ftp://engine",
        "http://engine:x",
        "http://engine:70000",
        f"http://{'ü' * 70}.example",
    ],
)
def test_no_address(url: str) -> None:
    """What names no server is told at once."""
    with pytest.raises(ValueError, match=r"\w"):
        origin_of(url)
