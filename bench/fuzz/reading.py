"""Reads HTTP/1.1 messages strictly: whatever is not exactly as it should be is an error.

Written apart from the parsers that the proxy uses, because it judges what they made of the bytes.
"""

from __future__ import annotations

import re

from bench.fuzz.model import Lines

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"([0-9a-f]+)")
_LAST_INTERIM = 199
_LONGEST_LINE = 1 << 20


class MalformedError(Exception):
    """It is no HTTP."""


class MessageReader:
    """One message after the other of one direction of a connection."""

    def __init__(self, *, requests: bool) -> None:
        self._requests = requests
        self._buffer = bytearray()
        self.begin()

    def begin(self, *, bodiless: bool = False) -> None:
        """The next message; `bodiless` says that it ends with its head."""
        self._bodiless = bodiless
        self.interim = 0
        """1xx answers before it."""
        self.start = ""
        """Its first line; empty while the head is not here."""
        self.lines: Lines = ()
        self.body = bytearray()
        self.framing = ""
        self.complete = False
        self._left = -1
        """Bytes of the body or chunk still to come; -1 before a chunk's size."""
        self._trailers = False

    @property
    def rest(self) -> bytes:
        """What has come beyond the message."""
        return bytes(self._buffer)

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.start.split(" ")[1])

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.lines if key.lower() == name]

    def feed(self, data: bytes) -> None:
        """Takes bytes.

        Raises:
            MalformedError: They are no HTTP.
        """
        self._buffer += data
        while not self.complete and self._step():
            pass

    def end(self) -> None:
        """The connection has ended in an orderly way."""
        if self.framing == "close":
            self.complete = True

    def _step(self) -> bool:
        if not self.start:
            return self._head()
        if self.framing == "chunked":
            return self._chunk()
        take = len(self._buffer) if self.framing == "close" else min(self._left, len(self._buffer))
        self.body += self._buffer[:take]
        del self._buffer[:take]
        self._left -= take
        if self.framing != "close" and self._left == 0:
            self.complete = True
        return False

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        first, *rest = head.split(b"\r\n")
        self.lines = tuple(map(_line, rest))
        self.start = first.decode("latin-1")
        if not self._requests and self.status <= _LAST_INTERIM:
            self.interim += 1
            self.start, self.lines = "", ()
            return True
        self._frame()
        return True

    def _frame(self) -> None:
        lengths, codings = self.values("content-length"), self.values("transfer-encoding")
        if len(lengths) + len(codings) > 1:
            raise MalformedError(f"framed twice: {self.lines}")
        if self._bodiless or (not self._requests and self.status in {204, 304}):
            self.framing, self.complete = "bare", True
        elif codings:
            if codings != ["chunked"]:
                raise MalformedError(f"coding {codings}")
            self.framing = "chunked"
        elif lengths:
            self.framing, self._left = "length", int(lengths[0])
            self.complete = self._left == 0
        elif self._requests:
            self.framing, self.complete = "bare", True
        else:
            self.framing = "close"

    def _chunk(self) -> bool:
        if self._left < 0:
            line = self._taken_line()
            if line is None:
                return False
            if self._trailers:
                self.complete = line == b""
                return True
            size = _SIZE.match(line)
            if size is None:
                raise MalformedError(f"size of a chunk: {line[:80]!r}")
            self._left = int(size.group(1), 16)
            if self._left == 0:
                self._trailers, self._left = True, -1
            return True
        if len(self._buffer) < self._left + 2:
            # The part of it that is here is of the body all the same.
            take = min(self._left, len(self._buffer))
            self.body += self._buffer[:take]
            del self._buffer[:take]
            self._left -= take
            return False
        self.body += self._buffer[: self._left]
        if self._buffer[self._left : self._left + 2] != b"\r\n":
            raise MalformedError("a chunk longer than its size")
        del self._buffer[: self._left + 2]
        self._left = -1
        return True

    def _taken_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _LONGEST_LINE:
                raise MalformedError("a line without end")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line


def _line(raw: bytes) -> tuple[str, str]:
    name, colon, value = raw.partition(b":")
    if not colon or not _TOKEN.fullmatch(name):
        raise MalformedError(f"header line {raw[:80]!r}")
    return name.decode("latin-1"), value.strip(b" \t").decode("latin-1")
