"""What a case is: a few exchanges on one client connection, every byte and every cut of them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Lines = tuple[tuple[str, str], ...]
"""Header lines, in latin-1."""

Framing = Literal["length", "chunked", "close", "bare"]
"""Of an answer; `bare` has no body and says nothing of a length."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a body is written in chunks."""

    cuts: tuple[int, ...] = ()
    """Where a chunk ends, in bytes of the body; what lies beyond it is no cut."""
    extension: str = ""
    trailers: Lines = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What the client sends."""

    method: str
    target: str
    version: str = "HTTP/1.1"
    lines: Lines = ()
    """Without Host and those that frame the body."""
    body: bytes = b""
    """Before its content coding."""
    forwarded: bytes = b""
    """What the engine has to get."""
    coding: str = ""
    chunking: Chunking | None = None
    """None where the length is told."""
    expects: bool = False
    """Waits for leave to send its body."""
    cuts: tuple[int, ...] = ()
    """Where a write ends, in bytes of the whole request."""
    strips: bool = False
    """Whether the proxy has to ask for usage, and to take it out of the answer."""
    record: bool = False
    """Whether it has to ask for a record of speculation, and to take it out of the answer."""
    announces: bool = False
    """Whether the engine may announce that usage by nulls."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer's body that means something by itself."""

    sent: bytes
    shown: bytes
    """What the client has to get of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine sends, each time that it is asked."""

    status: int = 200
    reason: str = "OK"
    version: str = "HTTP/1.1"
    lines: Lines = (("Content-Type", "application/json"),)
    parts: tuple[Part, ...] = ()
    framing: Framing = "length"
    chunking: Chunking = Chunking()
    interim: tuple[bytes, ...] = ()
    """Heads of 1xx answers that come before."""
    cuts: tuple[int, ...] = ()
    """Where a write ends, in bytes of the whole answer."""
    closes: bool = False
    """Closes its connection after the answer, announced or not."""
    breaks_at: int | None = None
    """Closes it when so many bytes are out."""
    holds_at: int | None = None
    """Sends no more from there on, until the proxy has left."""
    resets: bool = False
    """The end is a reset."""
    ended: bool = True
    """The stream holds its dialect's end mark."""
    early_error: tuple[int, bytes] | None = None
    """It begins with an error: the status and the body that a client gets instead."""

    @property
    def body(self) -> bytes:
        """All that is sent of the body."""
        return b"".join([part.sent for part in self.parts])

    @property
    def shown(self) -> bytes:
        """What the client has to get of it."""
        return b"".join([part.shown for part in self.parts])

    @property
    def event_stream(self) -> bool:
        """By its own word."""
        kind = next((value for name, value in self.lines if name.lower() == "content-type"), "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"


Moment = Literal["sent", "held", "got"]
How = Literal["close", "reset", "half"]


@dataclass(frozen=True, slots=True)
class Leave:
    """When and how a client goes."""

    moment: Moment
    """After so many bytes of the request, once the engine holds, after so many of the answer."""
    at: int = 0
    how: How = "close"


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not as they were meant."""

    at: int
    """Counted modulo the length."""
    left_out: int = 0
    put_in: bytes = b""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer."""

    request: Request
    answer: Answer
    leave: Leave | None = None
    slow: int = 0
    """Turns of the loop for which the client does not read."""
    marked: bool = True
    """Whether the dialect of the endpoint has an end mark, and so is read."""
    request_damage: tuple[Damage, ...] = ()
    """What the client writes is broken so. Nobody can say what has to come of it, but that it is
    HTTP on both sides, and that nothing is left."""
    answer_damage: tuple[Damage, ...] = ()
    """The same of what the engine writes."""

    @property
    def damaged(self) -> bool:
        """Whether any of it is."""
        return bool(self.request_damage or self.answer_damage)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Exchanges one after the other, or at once where they are pipelined."""

    engine: str
    """Kind of the engine, by its name in the configuration."""
    exchanges: tuple[Exchange, ...]
    pipelined: bool = False


def cut(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """The data in pieces, none of them empty.

    >>> list(cut(b"abcd", (1, 1, 9)))
    [b'a', b'bcd']
    """
    start = 0
    for at in (*sorted(set(cuts)), len(data)):
        piece = data[start:at]
        if piece:
            yield piece
        start = max(start, at)


def broken(data: bytes, damages: Sequence[Damage]) -> bytes:
    """The data with its damages.

    >>> broken(b"abcd", (Damage(1, 2, b"x"), Damage(4, 0, b"y")))
    b'yaxd'
    """
    for damage in damages:
        at = damage.at % max(len(data), 1)
        data = data[:at] + damage.put_in + data[at + damage.left_out :]
    return data


def coded(data: bytes, coding: str) -> bytes:
    """The data in a content coding."""
    match coding.lower():
        case "gzip":
            return gzip.compress(data, 1, mtime=0)
        case "deflate":
            return zlib.compress(data, 1)
        case _:
            return data


def request_bytes(request: Request, name: str) -> tuple[bytes, int]:
    """The request as it is written, and the length of its head.

    Args:
        request: What is sent.
        name: Of the exchange, by which the engine finds its answer.
    """
    body = coded(request.body, request.coding)
    lines = [("Host", "fuzz.test"), *request.lines, ("X-Fuzz", name)]
    if request.coding:
        lines.append(("Content-Encoding", request.coding))
    if request.expects:
        lines.append(("Expect", "100-continue"))
    if request.chunking is not None:
        lines.append(("Transfer-Encoding", "chunked"))
        body = _chunked(body, request.chunking)
    elif body or request.method in {"POST", "PUT", "PATCH"}:
        lines.append(("Content-Length", str(len(body))))
    head = _head(f"{request.method} {request.target} {request.version}", lines)
    return head + body, len(head)


def answer_bytes(answer: Answer, *, bodiless: bool) -> bytes:
    """The whole answer as it is written; `bodiless` says that it ends with its head."""
    body = answer.body
    lines = answer.lines
    if answer.framing == "length":
        lines = (*lines, ("Content-Length", str(len(body))))
    elif answer.framing == "chunked":
        lines = (*lines, ("Transfer-Encoding", "chunked"))
        body = _chunked(body, answer.chunking)
    head = _head(f"{answer.version} {answer.status} {answer.reason}", lines)
    return b"".join((*answer.interim, head, b"" if bodiless else body))


def _head(start: str, lines: Sequence[tuple[str, str]]) -> bytes:
    text = "\r\n".join((start, *(f"{name}: {value}" for name, value in lines)))
    return text.encode("latin-1") + b"\r\n\r\n"


def _chunked(body: bytes, how: Chunking) -> bytes:
    extension = how.extension.encode()
    chunks = [b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in cut(body, how.cuts)]
    trailers = "".join(f"{name}: {value}\r\n" for name, value in how.trailers).encode("latin-1")
    return b"".join((*chunks, b"0", extension, b"\r\n", trailers, b"\r\n"))
