"""Says what was wrong: what reached each side against what had to, by documents and RFCs alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from bench.fuzz.client import Got
from bench.fuzz.engine import Received, Script
from bench.fuzz.model import Answer, Exchange, Lines, Request, answer_bytes
from bench.fuzz.reading import MalformedError, MessageReader

_HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_OF_LENGTH = frozenset(
    ("content-length", "content-md5", "content-digest", "repr-digest", "digest", "etag")
)
_OWN = "x-specroute-"
_OWN_LINES = (
    ["x-specroute-request-id", "x-specroute-pool", "x-specroute-method"],
    [
        *("x-specroute-request-id", "x-specroute-pool", "x-specroute-method"),
        "x-specroute-class",
    ],
)
_REASONS = ("upstream_unavailable", "upstream_protocol", "upstream_timeout")
_UNDONE = frozenset(("gzip", "deflate"))
"""Codings that a request may come in and its body is freed of."""
_MOST_TRIES = 2
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_UNDECIDED = 48
"""Bytes of a stream that may be held back, because they may become an error."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How far the engine's answer has come when its connection ended."""

    head: bool
    body: bytes
    complete: bool


def faults(exchange: Exchange, name: str, script: Script, got: Got, host: str) -> Iterator[str]:
    """Everything that was not as it had to be."""
    if exchange.damaged:
        if got.fault:
            yield got.fault
        return
    tries = script.received
    for received in tries:
        yield from _request_faults(exchange.request, name, received, host, left=got.left)
    if len(tries) > (_MOST_TRIES if exchange.answer.breaks_at is not None else 1):
        yield f"{len(tries)} tries"
    if got.fault:
        yield got.fault
        return
    if got.surplus:
        yield f"bytes that nobody asked for: {got.surplus[:80]!r}"
    if got.left:
        yield from _left_faults(exchange, got)
        return
    if not tries:
        yield f"the request did not reach the engine: {got.start!r} {got.body[:200]!r}"
        return
    yield from _answer_faults(exchange, got)


# --- At the engine --------------------------------------------------------------------------------


def _request_faults(
    request: Request, name: str, received: Received, host: str, *, left: bool
) -> Iterator[str]:
    wanted = f"{request.method} {request.target} HTTP/1.1"
    if received.start != wanted:
        yield f"request line {received.start!r}, not {wanted!r}"
    lines = _request_lines(request, name, host)
    if received.lines != lines:
        yield f"request lines {_difference(received.lines, lines)}"
    if not received.complete:
        if not left:
            yield "the request is not whole at the engine"
    elif received.body != request.forwarded:
        yield f"request body {_first_difference(received.body, request.forwarded)}"


def _request_lines(request: Request, name: str, host: str) -> Lines:
    body = request.forwarded
    framing = [("Content-Length", str(len(body)))]
    if not body and request.method not in {"POST", "PUT", "PATCH"}:
        framing = []
    passed = [*request.lines, ("X-Fuzz", name)]
    if request.coding and request.coding.lower() not in _UNDONE:
        passed.append(("Content-Encoding", request.coding))
    dropped = _HOP_BY_HOP | _named(request.lines)
    kept = [line for line in passed if _passes(line[0], dropped)]
    if request.strips or request.record:
        kept = [line for line in kept if line[0].lower() != "accept-encoding"]
        kept.append(("Accept-Encoding", "identity"))
    return (("Host", host), *framing, *kept)


# --- At the client --------------------------------------------------------------------------------


def _left_faults(exchange: Exchange, got: Got) -> Iterator[str]:
    """A client that has gone may have got anything up to then, and nothing else."""
    if not got.start or got.start.startswith("HTTP/1.1 502"):
        return
    error = exchange.answer.early_error
    if error is not None and got.status == error[0]:
        return
    if got.status != exchange.answer.status:
        yield f"status {got.start!r} for a client that left"
    body = exchange.answer.shown
    if not body.startswith(got.body) and not _is_ending(got.body, body):
        yield f"body of a client that left {_first_difference(got.body, body)}"


def _answer_faults(exchange: Exchange, got: Got) -> Iterator[str]:
    answer = exchange.answer
    if answer.breaks_at is None:
        yield from _whole_faults(exchange, got, answer.shown, ended=answer.ended)
        return
    sent = _sent(exchange)
    if sent.complete:
        shown = _shown(exchange, sent.body)
        # Where its connection's end ends a stream, an end mark may come without its blank line.
        ended = answer.ended and sent.body.rstrip(b"\r\n") == answer.body.rstrip(b"\r\n")
        found = list(_whole_faults(exchange, got, shown, ended=ended))
        if not answer.resets or not found:
            yield from found
            return
    yield from _broken_faults(exchange, got, sent)


def _whole_faults(exchange: Exchange, got: Got, body: bytes, *, ended: bool) -> Iterator[str]:
    """Of an answer that came whole, as far as anybody can tell."""
    answer, request = exchange.answer, exchange.request
    if answer.early_error is not None and len(body) >= len(answer.parts[0].sent):
        yield from _early_faults(exchange, got, answer.early_error)
        return
    bodiless = request.method == "HEAD" or answer.status in {204, 304}
    if answer.framing == "close" and _is_held(exchange) and _may_be_cut(body):
        yield from _cut_held_faults(got)
        return
    read = _is_read(exchange)
    if answer.framing == "close" and read and not ended and not bodiless:
        yield from _unended_faults(exchange, got, body)
        return
    if got.start != f"HTTP/1.1 {answer.status} {answer.reason}":
        yield f"status line {got.start!r}"
    yield from _line_faults(exchange, got)
    if bodiless:
        body = b""
    if got.body != body:
        yield f"body {_first_difference(got.body, body)}"
    if not got.complete:
        yield f"the answer is not whole: {got.end or 'open'}"
    if got.framing == "close" and got.end != "eof":
        yield f"ended by {got.end or 'nothing'}"


def _cut_held_faults(got: Got) -> Iterator[str]:
    """Of a held answer of success whose connection has ended before its object: it is none."""
    if got.status != 502 or dict(got.lines).get("x-specroute-reason") != "upstream_protocol":
        yield f"status line {got.start!r} for a held answer that was cut"
    if not got.complete or not _is_error(got.body):
        yield f"an error that is none: {got.body[:200]!r}"


def _unended_faults(exchange: Exchange, got: Got, body: bytes) -> Iterator[str]:
    """Of a stream that its connection's end has ended, and no end mark."""
    if got.status == 502 and _held(exchange.answer, body):
        return
    if got.complete and not _is_ending(got.body, body):
        yield f"no error at the end of a stream that was cut: {got.body[-200:]!r}"
    if not got.complete and not body.startswith(got.body):
        yield f"body of a stream that was cut {_first_difference(got.body, body)}"
    if got.status != exchange.answer.status:
        yield f"status line {got.start!r}"


def _early_faults(exchange: Exchange, got: Got, error: tuple[int, bytes]) -> Iterator[str]:
    status, body = error
    if got.status != status:
        yield f"status {got.start!r} for an early error of {status}"
    if got.body != body or not got.complete:
        yield f"body of an early error {_first_difference(got.body, body)}"
    del exchange


def _broken_faults(exchange: Exchange, got: Got, sent: Sent) -> Iterator[str]:
    """Of an answer that broke off."""
    answer = exchange.answer
    error = answer.early_error
    if got.status == 502 and dict(got.lines).get("x-specroute-reason") in _REASONS:
        yield from _unanswered_faults(exchange, got, sent)
    elif error is not None and got.status == error[0]:
        yield from _early_faults(exchange, got, error)
    elif not sent.body:
        yield f"an answer to nothing: {got.start!r}"
    else:
        if got.start != f"HTTP/1.1 {answer.status} {answer.reason}":
            yield f"status line {got.start!r}"
        yield from _line_faults(exchange, got)
        yield from _cut_faults(exchange, got, sent)


def _unanswered_faults(exchange: Exchange, got: Got, sent: Sent) -> Iterator[str]:
    """Of an error of ours in place of an answer."""
    answer = exchange.answer
    held = answer.resets or _held(answer, sent.body) or _is_held(exchange)
    if sent.body and not (held or answer.status >= 500 or answer.status in {429, 503}):
        yield "502 after the first byte had come"
    if not got.complete or not (exchange.request.method == "HEAD" or _is_error(got.body)):
        yield f"an error that is none: {got.body[:200]!r}"


def _cut_faults(exchange: Exchange, got: Got, sent: Sent) -> Iterator[str]:
    """Of the body of an answer that broke off after it had begun."""
    answer = exchange.answer
    shown = _shown(exchange, sent.body)
    if not got.complete:
        if not shown.startswith(got.body) and not answer.shown.startswith(got.body):
            yield f"body of a broken answer {_first_difference(got.body, shown)}"
        if got.framing == "close" and got.end != "reset":
            yield f"a broken answer ended by {got.end or 'nothing'} where the end is all there is"
    elif not _is_read(exchange):
        yield f"an answer that broke off looks whole, {len(got.body)} bytes"
    elif _ended(answer, sent.body):
        if got.body != shown:
            yield f"body of an ended stream {_first_difference(got.body, shown)}"
    elif not _is_ending(got.body, shown):
        yield f"no error at the end of a broken stream: {got.body[-200:]!r}"
    elif not answer.resets and not got.body.startswith(_surely_shown(exchange, sent.body)):
        yield f"events are missing before the error: {got.body[-300:]!r}"


def _line_faults(exchange: Exchange, got: Got) -> Iterator[str]:
    answer, request = exchange.answer, exchange.request
    dropped = _HOP_BY_HOP | _named(answer.lines)
    lines = list(answer.lines)
    if answer.framing == "length":
        lines.append(("Content-Length", str(len(answer.shown))))
    bodiless = request.method == "HEAD" or answer.status in {204, 304}
    if _is_read(exchange) and not bodiless:  # an error or a comment of ours may come in
        dropped |= _OF_LENGTH
    elif answer.shown != answer.body:
        dropped |= _OF_LENGTH - {"content-length"}
    kept = [line for line in lines if _passes(line[0], dropped)]
    if list(got.lines[: len(kept)]) != kept:
        yield f"answer's lines {_difference(got.lines, tuple(kept))}"
        return
    yield from _added_faults(exchange, got.lines[len(kept) :], {name.lower() for name, _ in kept})


def _added_faults(exchange: Exchange, more: Lines, names: set[str]) -> Iterator[str]:
    """Of the lines that the proxy adds behind those of the engine."""
    answer, request = exchange.answer, exchange.request
    own = [name for name, _ in more if name.startswith(_OWN)]
    if own not in _OWN_LINES or [name for name, _ in more[: len(own)]] != own:
        yield f"our own lines {more}"
    more = more[len(own) :]
    due: list[tuple[str, str]] = []
    if answer.status in {429, 503} and "retry-after" not in names:
        due.append(("Retry-After", "1"))
    if answer.event_stream:
        unheld = (("X-Accel-Buffering", "no"), ("Cache-Control", "no-cache"))
        due += [line for line in unheld if line[0].lower() not in names]
    bodiless = request.method == "HEAD" or answer.status in {204, 304}
    if "content-length" not in names and not bodiless and request.version == "HTTP/1.1":
        due.append(("Transfer-Encoding", "chunked"))
    rest = more[len(due) :]
    if list(more[: len(due)]) != due or any(name != "Connection" for name, _ in rest):
        yield f"lines added {more}, not {due}"


# --- What it means --------------------------------------------------------------------------------


def _sent(exchange: Exchange) -> Sent:
    answer = exchange.answer
    bodiless = exchange.request.method == "HEAD"
    reader = MessageReader(requests=False)
    reader.begin(bodiless=bodiless)
    try:
        reader.feed(answer_bytes(answer, bodiless=bodiless)[: answer.breaks_at])
    except MalformedError as error:  # pragma: no cover - a case that is wrong in itself
        raise AssertionError from error
    if not answer.resets:
        reader.end()
    return Sent(bool(reader.start), bytes(reader.body), reader.complete)


def _is_read(exchange: Exchange) -> bool:
    """Whether the proxy reads the events of the answer."""
    answer = exchange.answer
    coded = any(name.lower() == "content-encoding" for name, _ in answer.lines)
    return answer.event_stream and exchange.marked and not coded


def _is_held(exchange: Exchange) -> bool:
    """Whether nothing of the answer is passed on before its end: a member may have to go."""
    kind = next((v for n, v in exchange.answer.lines if n.lower() == "content-type"), "")
    json_kind = kind.partition(";")[0].strip().lower()
    coded = any(name.lower() == "content-encoding" for name, _ in exchange.answer.lines)
    is_json = json_kind == "application/json" or json_kind.endswith("+json")
    succeeds = exchange.answer.status < 300
    return exchange.request.record and exchange.marked and is_json and not coded and succeeds


def _may_be_cut(body: bytes) -> bool:
    """Whether it is the beginning of an object, perhaps none of it, and no whole one."""
    begun = body.strip(b" \t\r\n")
    if begun and not begun.startswith(b"{"):
        return False
    try:
        json.loads(begun)
    except ValueError:
        return True
    return False


def _shown(exchange: Exchange, body: bytes) -> bytes:
    """What the client may get of so much of the answer's body."""
    if _is_held(exchange) and body != exchange.answer.body:
        return body  # half a text in JSON has no members
    shown: list[bytes] = []
    left = len(body)
    for part in exchange.answer.parts:
        if left >= len(part.sent):
            shown.append(part.shown)
        elif part.sent == part.shown:
            shown.append(part.sent[:left])
        left -= min(left, len(part.sent))
    return b"".join(shown)


def _surely_shown(exchange: Exchange, body: bytes) -> bytes:
    """What of it the client must get: all, or where events are taken out, those that are whole."""
    if not (exchange.request.strips or exchange.request.record):
        return _shown(exchange, body)
    shown: list[bytes] = []
    left = len(body)
    for part in exchange.answer.parts:
        if left < len(part.sent):
            break
        shown.append(part.shown)
        left -= len(part.sent)
    while shown and (not shown[-1].strip(b"\r\n") or not shown[-1].endswith(_EVENT_ENDS)):
        shown.pop()  # no event yet; blank lines too may be the beginning of what never came
    return b"".join(shown)


def _held(answer: Answer, body: bytes) -> bool:
    """Whether so much of a stream may be held back: its first event may still be an error."""
    first = next((part.sent for part in answer.parts if part.sent.strip(b"\r\n")), b"")
    named = b"error" in body and len(body) <= len(first) + 8
    return len(body) < _UNDECIDED or named or answer.early_error is not None


def _ended(answer: Answer, body: bytes) -> bool:
    """Whether the end mark is in so much of the body; the LF of its last CRLF may be missing."""
    whole = answer.body
    last = whole[:-1] if whole.endswith(b"\r\n\r\n") else whole
    return answer.ended and len(body) >= len(last)


def _is_ending(got: bytes, shown: bytes) -> bool:
    """Whether a body is a beginning of what was to be shown, and then an error of ours."""
    at = max(got.rfind(b"\n\ndata: {"), got.rfind(b"\n\nevent: error\ndata: {"))
    if at < 0 or not shown.startswith(got[:at]):
        return False
    event = got[at + 2 :].removeprefix(b"event: error\n")
    data, _, rest = event.removeprefix(b"data: ").partition(b"\n\n")
    return _is_error(data) and rest in (b"", b"data: [DONE]\n\n")


def _is_error(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except ValueError:
        return False
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def _named(lines: Lines) -> frozenset[str]:
    return frozenset(
        token.strip().lower()
        for name, value in lines
        if name.lower() == "connection"
        for token in value.split(",")
    )


def _passes(name: str, dropped: frozenset[str]) -> bool:
    lowered = name.lower()
    return lowered not in dropped and not lowered.startswith(_OWN)


def _difference(got: Lines, wanted: Lines) -> str:
    missing = [line for line in wanted if line not in got]
    extra = [line for line in got if line not in wanted]
    if not missing and not extra:
        return f"in another order or number: {got}, not {wanted}"
    return f"without {missing}, with {extra}"


def _first_difference(got: bytes, wanted: bytes) -> str:
    at = next(
        (index for index, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]),
        min(len(got), len(wanted)),
    )
    return (
        f"differs at byte {at} of {len(wanted)} (got {len(got)}): "
        f"{got[max(0, at - 20) : at + 60]!r}, not {wanted[max(0, at - 20) : at + 60]!r}"
    )
