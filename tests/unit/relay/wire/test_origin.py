"""Base URLs and what is made of them."""

from __future__ import annotations

import pytest

from router.relay.wire.origin import Origin, origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://engine:8000", Origin("engine", 8000, False, "engine:8000", "")),  # noqa: FBT003
        ("http://Engine", Origin("engine", 80, False, "engine", "")),  # noqa: FBT003
        ("https://engine", Origin("engine", 443, True, "engine", "")),  # noqa: FBT003
        ("https://engine:80/a/b/", Origin("engine", 80, True, "engine:80", "/a/b")),  # noqa: FBT003
        ("http://[2001:db8::1]:8000", Origin("2001:db8::1", 8000, False, "[2001:db8::1]:8000", "")),  # noqa: FBT003
        ("http://[::1]", Origin("::1", 80, False, "[::1]", "")),  # noqa: FBT003
        ("http://[fe80::1%eth0]:1", Origin("fe80::1%eth0", 1, False, "[fe80::1]:1", "")),  # noqa: FBT003
        (
            "http://bücher.example",
            Origin(
                host="xn--bcher-kva.example",
                port=80,
                tls=False,
                authority="xn--bcher-kva.example",
                prefix="",
            ),
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
    with pytest.raises(ValueError, match=r"."):
        origin_of(url)
