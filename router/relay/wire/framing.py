"""Where an answer begins and ends: httptools' parser, and what it cannot know.

Knows no sockets and no time; it is told bytes and says what they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import httptools

from policies.values import value
from router.types import Headers

HEAD_LIMIT = 64 * 1024
"""Bytes of the head, interim answers included; and of anything else that is no body."""

_LINE = len(": \r\n")
_OK = 200
_INTERIM = 100
_SWITCHING = 101
_WITHOUT_BODY = frozenset((204, 304))
_TRANSFER_ENCODING = b"transfer-encoding"
_CONTENT_LENGTH = b"content-length"


class Stage(IntEnum):
    """How far an answer has come."""

    HEAD = 0
    BODY = 1
    COMPLETE = 2
    BROKEN = 3
    """It is no HTTP that can be passed on; nothing after this point means anything."""


@value
class Head:
    """The head of a final answer."""

    status: int
    reason: str
    headers: Headers


class Framing:
    """The answers that come on one connection, one after the other.

    The parser calls the `on_…` methods; everybody else calls `begin`, `feed`, `finish`, `drop`.
    """

    __slots__ = (
        "_barren",
        "_bodiless",
        "_by_length",
        "_chunked",
        "_clean",
        "_end",
        "_head_bytes",
        "_headers",
        "_keep",
        "_parser",
        "_pieces",
        "_reason",
        "head",
        "on_body",
        "stage",
    )

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        """One call of C by C for each chunk."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self.begin(bodiless=False)

    def begin(self, *, bodiless: bool) -> None:
        """The next answer: `bodiless` says that it ends with its head, as those to HEAD do."""
        self.stage = Stage.HEAD
        self.head: Head | None = None
        self._bodiless = bodiless
        self._headers: list[tuple[str, str]] = []
        self._reason = b""
        self._head_bytes = self._barren = 0
        self._by_length = self._chunked = self._keep = False
        self._clean = True
        self._end: int | None = None

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another answer after this complete one."""
        return self._keep and self._clean and self.stage is Stage.COMPLETE

    def feed(self, data: bytes) -> bytes:
        """Takes what was read; returns the body in it, in one piece. `stage` says the rest."""
        pieces = self._pieces
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self.stage is Stage.COMPLETE:
                self._clean = False
            else:
                self.stage = Stage.BROKEN
        if pieces:
            if self._end is not None:
                del pieces[self._end :]
            if self.head is not None and pieces:
                piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                pieces.clear()
                self._barren = 0
                return piece
            pieces.clear()
        self._count(len(data))
        return b""

    def _count(self, size: int) -> None:
        """Bounds what may come without any body: heads, trailers, chunk extensions."""
        self._barren += size
        if self._barren > HEAD_LIMIT and self.stage is not Stage.COMPLETE:
            self.stage = Stage.BROKEN

    def finish(self) -> bool:
        """The connection has ended in good order: whether the answer is complete by that."""
        if self.stage is Stage.BODY and not (self._by_length or self._chunked):
            self.stage = Stage.COMPLETE
        self._clean = False
        return self.stage is Stage.COMPLETE

    def drop(self) -> None:
        """Lets the parser go, which refers back to this object; nothing can be fed any more."""
        self._parser = None

    def on_message_begin(self) -> None:
        """The first byte of an answer, an interim one, or of something after the answer."""
        if self.stage is Stage.HEAD:
            self._headers.clear()
            self._reason = b""
        else:
            self._clean = False

    def on_status(self, phrase: bytes) -> None:
        """A part of the reason phrase."""
        if self.stage is Stage.HEAD:
            self._reason += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line, or a trailer, which is dropped."""
        if self.stage is not Stage.HEAD:
            return
        value = value.rstrip(b" \t")
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))
        size = len(name)
        self._head_bytes += size + len(value) + _LINE
        if size == len(_CONTENT_LENGTH) and name.lower() == _CONTENT_LENGTH:
            self._by_length = True
        elif size == len(_TRANSFER_ENCODING) and name.lower() == _TRANSFER_ENCODING:
            # We asked for no transfer coding, and would pass on the coded bytes without its name.
            if self._chunked or value.lower() != b"chunked":
                self.stage = Stage.BROKEN
            self._chunked = True

    def on_headers_complete(self) -> None:
        """The end of a head."""
        if self.stage is not Stage.HEAD:
            return
        status = self._parser.get_status_code()
        if status < _OK:
            if status < _INTERIM or status == _SWITCHING:
                self.stage = Stage.BROKEN
            self._by_length = self._chunked = False
            return
        if (self._by_length and self._chunked) or self._head_bytes > HEAD_LIMIT:
            self.stage = Stage.BROKEN
            return
        self._pieces.clear()
        self._keep = self._parser.should_keep_alive() and not self._bodiless
        self.head = Head(status, _printable(self._reason), tuple(self._headers))
        self._headers = []
        if self._bodiless:
            self.stage, self._end = Stage.COMPLETE, 0
        else:
            self.stage = Stage.BODY

    def on_message_complete(self) -> None:
        """The end of an answer, or of an interim one."""
        if self.stage is Stage.BODY:
            self.stage, self._end = Stage.COMPLETE, len(self._pieces)


def _printable(phrase: bytes) -> str:
    # The parser looks at it less closely than at header lines.
    text = phrase.decode("latin-1")
    if text.isprintable():
        return text
    return "".join(sign for sign in text if sign >= " " and sign != "\x7f")
