"""The head of a request, as bytes."""

from __future__ import annotations

import re

from router.relay.upstream import UpstreamRequest
from router.relay.wire.origin import Origin
from router.types import Headers

_NOT_IN_A_TARGET = re.compile(rb"[\x00-\x20\x7f]")
_HAS_BODY = frozenset(("POST", "PUT", "PATCH"))
_NOT_IN_A_LINE = frozenset("\r\n\0")


def request_head(origin: Origin, request: UpstreamRequest) -> bytes:
    """Request line and header lines, the empty line included."""
    body = request.body
    length = f"Content-Length: {len(body)}\r\n" if body or request.method in _HAS_BODY else ""
    return b"".join(
        (
            request.method.encode("ascii", "replace"),
            b" ",
            _target(origin.prefix + request.path_qs),
            f" HTTP/1.1\r\nHost: {origin.authority}\r\n{length}".encode("ascii"),
            _lines(request.headers),
            b"\r\n",
        )
    )


def _target(path_qs: str) -> bytes:
    # What would end the target, or the line, is quoted; all else stays as the client wrote it.
    target = path_qs.encode("utf-8", "surrogateescape")
    if _NOT_IN_A_TARGET.search(target) is None:
        return target
    return _NOT_IN_A_TARGET.sub(lambda found: b"%%%02X" % found[0][0], target)


def _lines(headers: Headers) -> bytes:
    """The header lines. One that would become two, or that no header can hold, is left out.

    None of that can come from a client, whose request has been parsed: this is the second lock.
    """
    text = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if "\0" not in text and text.count("\n") == text.count("\r") == len(headers):
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            pass
    return _lines(tuple(line for line in headers if _is_plain(*line)))


def _is_plain(name: str, value: str) -> bool:
    line = name + value
    return _NOT_IN_A_LINE.isdisjoint(line) and all(ord(sign) < 256 for sign in line)  # noqa: PLR2004
