"""Draws a dialogue from a seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from bench.fuzz import bodies, streams
from bench.fuzz.bodies import Body, Wanted
from bench.fuzz.model import (
    Answer,
    Chunking,
    Damage,
    Dialogue,
    Exchange,
    Framing,
    How,
    Leave,
    Lines,
    Part,
    Request,
    answer_bytes,
    coded,
    request_bytes,
)
from router.endpoints.table import FACTS, TABLE, EndpointFacts, ModelIn, ServedBy
from router.types import Endpoint

ENGINES = ("vllm", "llamacpp", "generic", "sglang")
_ASKING = ("vllm", "sglang")
ALIAS = "other-"
"""Before the name of a route it is the route's other name."""

_ASKED_FOR_USAGE = (Endpoint.CHAT, Endpoint.COMPLETIONS)
_SERVED = [facts for facts in TABLE if facts.served_by is not ServedBy.HERE] + [
    FACTS[Endpoint.OTHER]
]
_WEIGHTS = [6 if facts.served_by is ServedBy.POLICY else 1 for facts in _SERVED]
_REQUEST_LINES: Lines = (
    ("Accept", "*/*"),
    ("ACCEPT", "text/event-stream"),
    ("accept-encoding", "gzip, br"),
    ("Authorization", "Bearer a"),
    ("x-api-key", "b"),
    ("anthropic-version", "2023-06-01"),
    ("Cookie", "a=1"),
    ("Cookie", "b=2; c=\xe9"),
    ("X-Empty", ""),
    ("X-Name", "caf\xc3\xa9"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("X-Forwarded-For", "10.0.0.1"),
    ("x-specroute-pool", "forged"),
    ("X-Specroute-Class", "forged"),
    ("TE", "trailers"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Connection", "keep-alive"),
    ("Proxy-Authorization", "Basic x"),
    ("Connection", "keep-alive, X-Hop"),
    ("X-Hop", "1"),
    ("x-hop", "2"),
    ("X-Long", "v" * 5000),
    ("If-None-Match", '"x"'),
    ("Range", "bytes=0-1"),
    ("Origin", "https://page.example"),
    ("a!#$%&'*+-.^_`|~9", "odd, but a name"),
)
_OFFER: Lines = (
    ("Connection", "Upgrade, HTTP2-Settings"),
    ("Upgrade", "h2c"),
    ("HTTP2-Settings", "AAEAAEAAAAIAAAAA"),
)
"""As some clients begin every request; it is answered as it stands."""
_ANSWER_LINES: Lines = (
    ("Server", "engine"),
    ("Date", "Sun, 29 Nov 2026 16:28:03 GMT"),
    ("Set-Cookie", "a=1; Path=/"),
    ("Set-Cookie", "b=2; HttpOnly"),
    ("set-cookie", "c=3"),
    ("X-Name", "caf\xe9"),
    ("X-Empty", ""),
    ("ETag", 'W/"abc"'),
    ("Content-MD5", "x"),
    ("Cache-Control", "no-store"),
    ("Vary", "Accept"),
    ("vary", "Origin"),
    ("Access-Control-Allow-Origin", "*"),
    ("x-request-id", "from-engine"),
    ("x-specroute-pool", "forged"),
    ("Connection", "X-Hop"),
    ("X-Hop", "1"),
    ("Keep-Alive", "timeout=5, max=100"),
    ("Trailer", "X-Trailer"),
    ("Proxy-Authenticate", "Basic"),
    ("X-Long", "v" * 3000),
    ("Retry-After", "0"),
    ("Location", "/elsewhere"),
    ("X-Accel-Buffering", "yes"),
)
_INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\nContent-Length: 3\r\n\r\n",
)
_FINE = ((200, "OK"), (200, ""), (201, "Created"), (202, "Accept\xe9d, more or less"))
_OTHER_STATUSES = (
    *((204, "No Content"), (304, "Not Modified"), (307, "Temporary Redirect")),
    *((400, "Bad Request"), (401, "Unauthorized"), (404, "Not Found"), (422, "?"), (429, "Busy")),
    *((500, "Internal Server Error"), (501, "x"), (502, "Bad Gateway"), (503, "Loading")),
    *((504, "Late"), (529, "Overloaded"), (599, "x")),
)
_ODD = (
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"\r\n\r\n", b"\xff", b"0", b"fffffffff"),
    *(b"\r\nContent-Length: 3", b"\r\nTransfer-Encoding: chunked", b"\r\nTransfer-Encoding: gzip"),
    *(b"\r\nContent-Length: 3\r\nContent-Length: 4", b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n folded"),
    *(b"\r\nContent-Length: -1", b"\r\nContent-Encoding: gzip", b"\r\nUpgrade: websocket"),
    *(b"\r\nConnection: upgrade", b"\r\nExpect: else", b"5\r\nabcde\r\n0\r\n\r\n", b"x" * 70_000),
)
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_TYPES = ("text/html", "text/plain; charset=utf-8", "audio/wav", "application/problem+json")
_WAYS: tuple[How, ...] = ("close", "reset", "half")
_QUERIES = ("", "", "", "?", "?a=1&b=%20&c=+", "?q=%C3%A9&&=", "?a=/../b?c", "?api-version=%2e%2E")


def dialogue(seed: str) -> Dialogue:
    """A dialogue, always the same for a seed."""
    rng = Random(seed)
    pipelined = rng.random() < 0.1
    count = rng.choice((2, 3)) if pipelined else rng.choice((1, 1, 2, 3, 4))
    engine = rng.choices(ENGINES, (3, 1, 1, 3))[0]
    exchanges = [_exchange(rng, engine, calm=pipelined) for _ in range(count)]
    if pipelined and rng.random() < 0.2:
        exchanges[-1] = _with_end(rng, exchanges[-1])
    return Dialogue(engine, tuple(exchanges), pipelined)


def _exchange(rng: Random, engine: str, *, calm: bool) -> Exchange:
    """One exchange; a calm one ends neither connection and waits for nothing."""
    facts = rng.choices(_SERVED, _WEIGHTS)[0]
    request = _request(rng, facts, engine, calm=calm)
    answer = _answer(rng, facts, request, calm=calm)
    exchange = Exchange(request, answer, marked=facts.dialect.ends_marked)
    if rng.random() < 0.05:
        exchange = replace(exchange, slow=rng.randrange(1, 30))
    chance = 1.0 if calm else rng.random()
    if chance < 0.25:
        return _with_end(rng, exchange)
    if chance < 0.29 and not request.expects:
        return replace(exchange, request_damage=_damage(rng))
    if chance < 0.33:
        return replace(exchange, answer_damage=_damage(rng))
    return exchange


# --- Requests -------------------------------------------------------------------------------------


def _request(rng: Random, facts: EndpointFacts, engine: str, *, calm: bool) -> Request:
    method = rng.choice(sorted(facts.methods))
    stream = facts.served_by is ServedBy.POLICY and rng.random() < 0.7
    alias = rng.random() < 0.2
    wanted = Wanted(
        name=(ALIAS if alias else "") + engine,
        route=engine,
        stream=stream,
        asks_usage=engine in _ASKING and facts.endpoint in _ASKED_FOR_USAGE,
        asks_record=engine == "sglang" and facts.endpoint in _ASKED_FOR_USAGE,
    )
    lines, body = _body(rng, facts, method, wanted)
    coding = ""
    if body.sent and rng.random() < 0.08:
        coding = rng.choice(("gzip", "deflate", "GZIP", "identity", "x-custom"))
    lines += rng.sample(_REQUEST_LINES, rng.randrange(8))
    if not calm and rng.random() < 0.03:
        lines += _OFFER
    rng.shuffle(lines)
    version = "HTTP/1.1"
    if not calm and rng.random() < 0.06:
        version = "HTTP/1.0"
        if rng.random() < 0.5:
            lines.append(("Connection", "keep-alive"))
    elif not calm and rng.random() < 0.05:
        lines.append(("Connection", "close"))
    has_body = bool(body.sent) or method in {"POST", "PUT", "PATCH"}
    chunking = None
    if has_body and version == "HTTP/1.1" and rng.random() < 0.2:
        chunking = _chunking(rng, len(body.sent))
    request = Request(
        method=method,
        target=_target(rng, facts),
        version=version,
        lines=tuple(lines),
        body=body.sent,
        forwarded=body.forwarded,
        coding=coding,
        chunking=chunking,
        expects=bool(body.sent) and not calm and version == "HTTP/1.1" and rng.random() < 0.05,
        strips=body.strips,
        record=body.record,
        announces=body.strips and engine == "vllm",
    )
    return replace(request, cuts=_cuts(rng, len(request_bytes(request, "0123456")[0])))


def _body(
    rng: Random, facts: EndpointFacts, method: str, wanted: Wanted
) -> tuple[list[tuple[str, str]], Body]:
    """What is sent, and the header that says what it is."""
    if method in {"GET", "HEAD", "DELETE"} and rng.random() < 0.9:
        return [], Body(b"", b"")
    if facts.model_in is ModelIn.NOWHERE:
        wanted = replace(wanted, route=wanted.name or "")
    elif facts.model_in is ModelIn.BODY_IF_ANY and rng.random() < 0.2:
        wanted = replace(wanted, name=None)
    kind = facts.body
    if kind == "any":
        kind = rng.choice(("json", "multipart", "any"))
    if kind == "any":
        data = rng.randbytes(rng.choice((0, 1, 500)))
        return [("Content-Type", "application/octet-stream")], Body(data, data)
    if kind == "multipart":
        form, content_type = bodies.form_body(rng, wanted)
        return [("Content-Type", content_type)], form
    content_type = rng.choice(("application/json", "Application/JSON; charset=utf-8"))
    return [("Content-Type", content_type)], bodies.json_body(rng, wanted)


def _target(rng: Random, facts: EndpointFacts) -> str:
    path = rng.choice(facts.paths)
    if "{rest}" in path:
        rest = rng.choice(
            ("files", "a/b/c", "files/", "caf%C3%A9", "x%2Fy", "%E9", "~a!$'()*,;=:@")
        )
        path = path.replace("{rest}", rest)
    elif "{" in path:
        before, _, after = path.partition("{")
        name = rng.choice(("resp_1", "a%20b", "%ff", "r-1.2"))
        path = before + name + after.partition("}")[2]
    return path + rng.choice(_QUERIES)


# --- Answers --------------------------------------------------------------------------------------


def _answer(rng: Random, facts: EndpointFacts, request: Request, *, calm: bool) -> Answer:
    dialect = facts.dialect.name
    if facts.endpoint is Endpoint.COMPLETIONS:
        dialect = "completions"
    answer = _content(rng, dialect, request)
    readable = facts.dialect.ends_marked and answer.event_stream and request.method != "HEAD"
    if readable and rng.random() < 0.05:
        answer = _early(rng, dialect, answer)
    lines = [*answer.lines, *rng.sample(_ANSWER_LINES, rng.randrange(7))]
    rng.shuffle(lines)
    size = len(answer.body)
    answer = replace(
        answer,
        lines=tuple(lines),
        framing=_framing(rng, answer, calm=calm, record=request.record),
        chunking=_chunking(rng, size, [len(part.sent) for part in answer.parts]),
        interim=tuple(rng.sample(_INTERIM, rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 2)))),
    )
    if answer.framing == "close":
        answer = replace(answer, closes=True)
        if rng.random() < 0.3:
            answer = replace(answer, version="HTTP/1.0")
    elif rng.random() < 0.1:
        answer = replace(answer, closes=True)
        if rng.random() < 0.5:
            answer = replace(answer, lines=(*answer.lines, ("Connection", "close")))
    whole = answer_bytes(answer, bodiless=request.method == "HEAD")
    cuts = _cuts(rng, len(whole)) if rng.random() < 0.7 else _between(rng, whole, answer.parts)
    return replace(answer, cuts=cuts)


def _between(rng: Random, whole: bytes, parts: Sequence[Part]) -> tuple[int, ...]:
    """Cuts between some of the parts, as engines write them."""
    cuts: list[int] = []
    at = 0
    for part in parts:
        found = whole.find(part.sent, at)
        if found >= 0:
            at = found + len(part.sent)
            cuts += [found] * (rng.random() < 0.6)
    return tuple(cuts)


def _content(rng: Random, dialect: str, request: Request) -> Answer:
    chance = rng.random()
    status, reason = rng.choice(_FINE) if rng.random() < 0.3 else _FINE[0]
    json_type = rng.choice(("application/json", "application/json; charset=utf-8"))
    wants_stream = _STREAM.search(request.body) is not None
    if chance < 0.08:
        status, reason = rng.choice(_OTHER_STATUSES)
        body = b"" if status in {204, 304} else streams.whole(rng, dialect)
        if rng.random() < 0.3:
            body = b""
        return _plain(status, reason, json_type, body)
    if chance < 0.13:
        body = rng.randbytes(rng.choice((0, 1, 300, 200_000)))
        return _plain(status, reason, rng.choice(_TYPES), body)
    if chance < (0.95 if wants_stream else 0.3):
        return _stream(rng, dialect, request, status, reason)
    body = streams.whole(rng, dialect)
    answer = _plain(status, reason, json_type, body)
    if request.record and rng.random() < 0.8:
        body = streams.with_record(rng, body)
        answer = replace(answer, parts=(Part(body, answer.body),))
    if rng.random() < 0.1:
        packed = coded(body, "gzip")
        answer = replace(
            answer,
            lines=(*answer.lines, ("Content-Encoding", "gzip")),
            parts=(Part(packed, packed),),
        )
    return answer


def _stream(rng: Random, dialect: str, request: Request, status: int, reason: str) -> Answer:
    ended = rng.random() < 0.9
    parts = streams.stream(
        rng,
        dialect,
        strips=request.strips,
        announces=request.announces,
        record=request.record,
        ended=ended,
    )
    kind = rng.choice(("text/event-stream", "Text/Event-Stream; charset=utf-8"))
    answer = Answer(status, reason, lines=(("Content-Type", kind),), parts=parts, ended=ended)
    if rng.random() < 0.04:
        packed = coded(answer.body, "gzip")
        answer = replace(
            answer,
            lines=(*answer.lines, ("Content-Encoding", "gzip")),
            parts=(Part(packed, packed),),
        )
    return answer


def _plain(status: int, reason: str, kind: str, body: bytes) -> Answer:
    parts = (Part(body, body),) if body else ()
    return Answer(status, reason, lines=(("Content-Type", kind),), parts=parts)


def _early(rng: Random, dialect: str, answer: Answer) -> Answer:
    if answer.status != 200 or any(name == "Content-Encoding" for name, _ in answer.lines):
        return answer
    part, status, body = streams.early_error(rng, dialect)
    rest = answer.parts[-1:] if rng.random() < 0.5 else ()
    return replace(answer, parts=(part, *rest), early_error=(status, body))


def _framing(rng: Random, answer: Answer, *, calm: bool, record: bool) -> Framing:
    if answer.status in {204, 304}:
        return "bare"
    chance = rng.random()
    if answer.event_stream:
        return "close" if chance < 0.1 and not calm else "length" if chance < 0.2 else "chunked"
    # An answer that is held and ended by its connection may be whole or cut: a matter of its own.
    closes = 0.5 if record else 0.08
    return "close" if chance < closes and not calm else "chunked" if chance < 0.3 else "length"


# --- Ends and cuts --------------------------------------------------------------------------------


def _with_end(rng: Random, exchange: Exchange) -> Exchange:
    """One side goes before its time."""
    answer = exchange.answer
    out = len(answer_bytes(answer, bodiless=exchange.request.method == "HEAD"))
    kind = rng.randrange(5)
    if kind <= 1:
        broken = replace(answer, breaks_at=_place(rng, out), resets=rng.random() < 0.4)
        return replace(exchange, answer=broken)
    how = rng.choice(_WAYS)
    if kind == 2:
        sent = len(request_bytes(exchange.request, "0123456")[0])
        return replace(exchange, leave=Leave("sent", _place(rng, sent), how))
    if kind == 3:
        holding = replace(answer, holds_at=_place(rng, out))
        return replace(exchange, answer=holding, leave=Leave("held", how=how))
    return replace(exchange, leave=Leave("got", _place(rng, out + 300), how))


def _damage(rng: Random) -> tuple[Damage, ...]:
    """A few bytes amiss, most of them near the beginning, where the heads are."""
    return tuple(
        Damage(
            at=rng.randrange(rng.choice((40, 200, 400, 2000))),
            left_out=rng.choice((0, 1, 1, 2, 10)),
            put_in=rng.choice((b"", rng.randbytes(1), rng.choice(_ODD))),
        )
        for _ in range(rng.choice((1, 1, 2, 5)))
    )


def _place(rng: Random, size: int) -> int:
    """Somewhere in so many bytes; the ends are likelier than what lies between."""
    chance = rng.random()
    if chance < 0.1:
        return 0
    if chance < 0.25:
        return max(0, size - rng.randrange(12))
    return rng.randrange(size + 1)


def _cuts(rng: Random, size: int) -> tuple[int, ...]:
    chance = rng.random()
    if chance < 0.4 or size < 2:
        return ()
    if chance < 0.45 and size < 400:
        return tuple(range(1, size))
    return tuple(sorted(rng.randrange(size) for _ in range(rng.randrange(1, 7))))


def _chunking(rng: Random, size: int, parts: list[int] | None = None) -> Chunking:
    cuts: list[int] = []
    if parts and rng.random() < 0.6:
        at = 0
        for part in parts:
            at += part
            cuts.append(at)
    elif size > 1:
        cuts = [rng.randrange(1, size) for _ in range(rng.choice((0, 1, 2, 5, 20)))]
    return Chunking(
        cuts=tuple(sorted(cuts)),
        extension=rng.choice(("", "", "", "", ";x", ';name="va lue"')),
        trailers=(("X-Trailer", "1"), ("x-other", "")) if rng.random() < 0.05 else (),
    )
