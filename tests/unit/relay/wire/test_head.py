"""Heads of requests, as bytes."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.relay.upstream import UpstreamRequest
from router.relay.wire.head import request_head
from router.relay.wire.origin import origin_of
from router.types import Headers

ORIGIN = origin_of("http://engine:8000/base")


def head(
    method: str = "POST",
    path_qs: str = "/v1/x?y",
    headers: Headers = (),
    body: bytes = b"{}",
) -> bytes:
    """The head of a request."""
    return request_head(ORIGIN, UpstreamRequest(method, path_qs, headers, body, 1.0, 1.0))


def test_a_whole_head() -> None:
    """Line, host, length, then the given lines in their order."""
    assert head(headers=(("B", "1"), ("a", "é\xff"), ("B", ""))) == (
        b"POST /base/v1/x?y HTTP/1.1\r\nHost: engine:8000\r\nContent-Length: 2\r\n"
        b"B: 1\r\na: \xe9\xff\r\nB: \r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("POST", b"", b"\r\nContent-Length: 0\r\n"),
        ("PUT", b"", b"\r\nContent-Length: 0\r\n"),
        ("PATCH", b"", b"\r\nContent-Length: 0\r\n"),
        ("GET", b"", None),
        ("HEAD", b"", None),
        ("DELETE", b"", None),
        ("OPTIONS", b"", None),
        ("DELETE", b"x", b"\r\nContent-Length: 1\r\n"),
        ("GET", b"xx", b"\r\nContent-Length: 2\r\n"),
    ],
)
def test_a_length_where_one_is_due(method: str, body: bytes, length: bytes | None) -> None:
    """An empty body has one only with the methods that announce a body."""
    found = head(method, body=body)
    assert (b"Content-Length" in found) is (length is not None)
    assert (length or b"\r\n") in found


@pytest.mark.parametrize("bad", ["\r", "\n", "\r\n", "\0", "a\r\nContent-Length: 9", "€"])
@pytest.mark.parametrize("place", ["name", "value", "end"])
def test_a_line_that_is_none_is_left_out(bad: str, place: str) -> None:
    """It alone: no header can be made into two, and none takes others with it."""
    line = {"name": (f"X{bad}A", "1"), "value": ("X-A", f"1{bad}2"), "end": ("X-A", bad)}[place]
    assert head(headers=(("A", "1"), line, ("B", "2"))) == head(headers=(("A", "1"), ("B", "2")))


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/a b", b"/a%20b"),
        ("/a\r\nX: y", b"/a%0D%0AX:%20y"),
        ("/\0\t\x7f", b"/%00%09%7F"),
        ("/%C3%BC/a%2Fb?q=%zz&&", b"/%C3%BC/a%2Fb?q=%zz&&"),
        ("/\u00fc", "/ü".encode()),
        ("/\udcff", b"/\xff"),
    ],
)
def test_nothing_in_the_target_ends_it(target: str, sent: bytes) -> None:
    """What a target cannot hold is quoted; all else is sent as the client wrote it."""
    assert head(path_qs=target).startswith(b"POST /base" + sent + b" HTTP/1.1\r\n")


class Parsed:
    """What a server makes of a head."""

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.complete = 0

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line."""
        self.lines.append((name, value))

    def on_message_complete(self) -> None:
        """The end of a request."""
        self.complete += 1


@given(
    st.lists(
        st.tuples(
            st.text("abcXYZ-_", min_size=1, max_size=8).filter(
                lambda name: name.lower() not in ("host", "content-length")
            ),
            st.text(max_size=12),
        ),
        max_size=6,
    ),
    st.text(st.characters(max_codepoint=127), max_size=20),
)
def test_a_server_reads_one_request(headers: list[tuple[str, str]], path: str) -> None:
    """Whatever stands in names, values and target, there is one request, and nothing is added."""
    found = Parsed()
    # Other control characters than line ends are for the server to judge.
    kept = tuple(
        (n, "".join(c for c in v if (c >= " " and c != "\x7f") or c in "\r\n\0"))
        for n, v in headers
    )
    parser = httptools.HttpRequestParser(found)
    parser.set_dangerous_leniencies(lenient_headers=True)
    parser.feed_data(head("GET", "/" + path, kept, b""))
    assert found.complete == 1
    sound = [
        line
        for line in kept
        if not set("\r\n\0") & set(line[1]) and max(line[1], default="") <= "\xff"
    ]
    assert [name.decode() for name, _ in found.lines] == ["Host", *(name for name, _ in sound)]
