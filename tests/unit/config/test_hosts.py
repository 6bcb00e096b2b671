"""Names of hosts that can be looked up."""

from __future__ import annotations

import pytest

from router.config.hosts import why_no_host


@pytest.mark.parametrize(
    "host",
    [
        *("h", "gpu-1", "vllm_1", "10.0.0.5", "::1", "fe80::1%25eth0", "a" * 63),
        *("vllm.default.svc.cluster.local.", "_http._tcp.vllm.default.svc", "bücher.example"),
        ".".join(["a" * 49] * 5),
    ],
)
def test_what_can_be_looked_up_passes(host: str) -> None:
    """Underscores and a last dot too, as clusters have them; addresses are no names."""
    assert why_no_host(host) is None


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("vllm..svc", "1 to 63 characters; look for two dots in a row"),
        (".svc", "1 to 63 characters"),
        (".", "1 to 63 characters"),
        ("", "letters, digits"),
        ("a" * 64 + ".example", "1 to 63 characters"),
        ("ü" * 60, "1 to 63 characters"),
        (".".join(["a" * 50] * 6), "at most 253 characters"),
        ("a b", "must consist of letters, digits"),
        ("a%20b", "must consist of letters, digits"),
        ("*.example", "must consist of letters, digits"),
    ],
)
def test_what_cannot_is_refused_with_the_remedy(host: str, words: str) -> None:
    """Else the first look-up would fail, and nobody would know of which line."""
    assert words in (why_no_host(host) or "")
