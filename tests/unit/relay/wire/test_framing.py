"""Where answers begin and end, however a network cuts them."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.relay.wire.framing import HEAD_LIMIT, Framing, Head, Stage
from router.types import Headers
from tests.support.splits import SIZES, cut, pieces, points

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of one answer, and what they say."""

    raw: bytes
    body: bytes
    status: int = 200
    reason: str = "OK"
    headers: Headers = ()
    reusable: bool = True
    needs_end: bool = False
    """Complete only with the connection's end."""
    bodiless: bool = False


LENGTH_5 = (("Content-Length", "5"),)
IN_CHUNKS = (("Transfer-Encoding", "chunked"),)

ANSWERS: dict[str, Answer] = {
    "length": Answer(OK + b"Content-Length: 5\r\n\r\nhello", b"hello", headers=LENGTH_5),
    "no body": Answer(OK + b"Content-Length: 0\r\n\r\n", b"", headers=(("Content-Length", "0"),)),
    "chunks": Answer(CHUNKED + b"2\r\nhe\r\n003\r\nllo\r\n0\r\n\r\n", b"hello", headers=IN_CHUNKS),
    "capitals": Answer(
        OK + b"TRANSFER-ENCODING: Chunked \r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
        b"0123456789",
        headers=(("TRANSFER-ENCODING", "Chunked"),),
    ),
    "extensions and trailers": Answer(
        CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0;e\r\nX-T: 1\r\nX-U: 9\r\n\r\n',
        b"hello",
        headers=IN_CHUNKS,
    ),
    "newlines in the body": Answer(
        CHUNKED + b"6\r\n\r\n0\r\n\r\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n",
        b"\r\n0\r\n\r\r\n\r\n",
        headers=IN_CHUNKS,
    ),
    "until the end": Answer(OK + b"\r\nhello", b"hello", reusable=False, needs_end=True),
    "HTTP/1.0": Answer(b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello", reusable=False, needs_end=True),
    "HTTP/1.0 with length": Answer(
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        headers=LENGTH_5,
        reusable=False,
    ),
    "HTTP/1.0 that stays": Answer(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        headers=(("Connection", "keep-alive"), *LENGTH_5),
    ),
    "closes": Answer(
        OK + b"Connection: foo, Close\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        headers=(("Connection", "foo, Close"), *LENGTH_5),
        reusable=False,
    ),
    "interim answers": Answer(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length:"
        b" 3\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        b"hello",
        headers=LENGTH_5,
    ),
    "an interim answer with a body": Answer(
        b"HTTP/1.1 199 Odd\r\nContent-Length: 3\r\n\r\nodd" + CHUNKED + b"1\r\nx\r\n0\r\n\r\n",
        b"x",
        headers=IN_CHUNKS,
    ),
    "204": Answer(b"HTTP/1.1 204 No Content\r\n\r\n", b"", 204, "No Content"),
    "304": Answer(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        b"",
        304,
        "Not Modified",
        LENGTH_5,
    ),
    "304 in chunks": Answer(
        b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"",
        304,
        "Not Modified",
        IN_CHUNKS,
    ),
    "to HEAD": Answer(
        OK + b"Content-Length: 5\r\n\r\n", b"", headers=LENGTH_5, reusable=False, bodiless=True
    ),
    "to HEAD, until the end": Answer(OK + b"\r\n", b"", reusable=False, bodiless=True),
    "to HEAD, in chunks": Answer(CHUNKED, b"", headers=IN_CHUNKS, reusable=False, bodiless=True),
    "no reason": Answer(
        b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello", reason="", headers=LENGTH_5
    ),
    "latin-1": Answer(
        b"HTTP/1.1 599 \xe9\xff  x\r\nX-A:\xe9\xff\xc3\xbc\xa0\t|\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        599,
        "éÿ  x",
        (("X-A", "éÿÃ¼\xa0\t|"), *LENGTH_5),
    ),
    "odd but legal lines": Answer(
        OK + b"x-a: 1\r\nX-Empty:\r\nX-Blank: \t \r\nX-A:  2 \t\r\n!#$%&'*+-.^_`|~: 3\r\n"
        b"Content-Length: 5\r\n\r\nhello",
        b"hello",
        headers=(
            ("x-a", "1"),
            ("X-Empty", ""),
            ("X-Blank", ""),
            ("X-A", "2"),
            ("!#$%&'*+-.^_`|~", "3"),
            *LENGTH_5,
        ),
    ),
    "control characters in the reason": Answer(
        b"HTTP/1.1 200 a\x01b\tc\x7fd\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
        reason="abcd",
        headers=LENGTH_5,
    ),
}

BROKEN_HEADS: dict[str, bytes] = {
    "garbage": b"garbage",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "a version that is none": b"HTTP/1.7 200 OK\r\n\r\n",
    "bare newlines": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "short status": b"HTTP/1.1 20 OK\r\n\r\n",
    "long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status below 100": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "switch": b"HTTP/1.1 101 Switching\r\n\r\nabc",
    "switch by name": b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length list": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "length with sign": OK + b"Content-Length: +5\r\n\r\nhello",
    "empty length": OK + b"Content-Length:\r\n\r\nhello",
    "endless length": OK + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
    "length, then chunks": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks, then length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    "coding that nobody asked for": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n",
    "coding without chunks": OK + b"Transfer-Encoding: gzip\r\n\r\nx",
    "identity": OK + b"Transfer-Encoding: identity\r\n\r\nx",
    "chunked twice": OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n1\r\nx\r\n",
    "chunked on two lines": CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    "folded line": OK + b"X-A: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "blank before the colon": OK + b"X-A : a\r\nContent-Length: 0\r\n\r\n",
    "no name": OK + b": a\r\nContent-Length: 0\r\n\r\n",
    "no colon": OK + b"X-A\r\nContent-Length: 0\r\n\r\n",
    "NUL": OK + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n",
    "control character": OK + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
    "DEL": OK + b"X-A: a\x7fb\r\nContent-Length: 0\r\n\r\n",
    "bare CR": OK + b"X-A: a\rb\r\nContent-Length: 0\r\n\r\n",
}

BROKEN_BODIES: dict[str, tuple[bytes, bytes]] = {
    "no size": (b"5\r\nhello\r\nzz\r\n", b"hello"),
    "negative size": (b"5\r\nhello\r\n-1\r\n", b"hello"),
    "endless size": (b"FFFFFFFFFFFFFFFFFF\r\n", b""),
    "blank after the size": (b"5 \r\nhello\r\n", b""),
    "more than the size": (b"5\r\nhello!\r\n", b"hello"),
    "bare newlines": (b"5\nhello\n0\n\n", b""),
    "a length among the trailers": (b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n", b"hello"),
    "broken trailer": (b"5\r\nhello\r\n0\r\nX-T 1\r\n\r\n", b"hello"),
}


def run(framing: Framing, parts: Iterable[bytes]) -> bytes:
    """Everything that is handed over until the answer ends in some way."""
    body = b""
    for part in parts:
        body += framing.feed(part)
        if framing.stage in (Stage.COMPLETE, Stage.BROKEN):
            break
    return body


def check(framing: Framing, answer: Answer, parts: Iterable[bytes]) -> None:
    """The answer is read as what it is."""
    framing.begin(bodiless=answer.bodiless)
    body = run(framing, parts)
    if answer.needs_end:
        assert framing.stage is Stage.BODY
        assert framing.finish()
    assert (framing.stage, body) == (Stage.COMPLETE, answer.body)
    assert framing.head == Head(answer.status, answer.reason, answer.headers)
    assert framing.reusable is answer.reusable


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_is_the_same_at_every_split(answer: Answer) -> None:
    """Cut at any one place, at any two of the first, or into pieces of one size."""
    length = len(answer.raw)
    cuts = [(at,) for at in range(length)] + [*combinations(range(min(length, 60)), 2)]
    for points_ in cuts:
        check(Framing(), answer, cut(answer.raw, points_))
    for size in SIZES:
        check(Framing(), answer, pieces(answer.raw, size))


@given(st.lists(st.sampled_from([*ANSWERS.values()]), min_size=1, max_size=6), points())
def test_answers_follow_each_other_on_one_connection(
    answers: list[Answer], points_: list[int]
) -> None:
    """Nothing of an answer, its trailers least of all, is left for the next."""
    framing = Framing()
    for answer in answers:
        check(framing, answer, cut(answer.raw, points_))
        if not answer.reusable:
            framing = Framing()


@pytest.mark.parametrize(
    "answer", [x for x in ANSWERS.values() if not x.needs_end], ids=lambda x: x.reason
)
@pytest.mark.parametrize(
    "surplus", [b"x", b"\0", OK + b"Content-Length: 6\r\n\r\npoison", b"0\r\n\r\n"], ids=repr
)
def test_what_follows_an_answer_is_not_part_of_it(answer: Answer, surplus: bytes) -> None:
    """It reaches nobody, and the connection is spoilt."""
    whole = answer.raw + surplus
    for points_ in ((), *((at,) for at in range(len(answer.raw)))):
        framing = Framing()
        framing.begin(bodiless=answer.bodiless)
        assert run(framing, cut(whole, points_)) == answer.body
        assert (framing.stage, framing.reusable) == (Stage.COMPLETE, False)


@pytest.mark.parametrize("head", BROKEN_HEADS.values(), ids=BROKEN_HEADS.keys())
def test_a_head_that_cannot_be_passed_on(head: bytes) -> None:
    """No head, no body, at whatever place it is cut."""
    for at in range(len(head)):
        framing = Framing()
        assert run(framing, cut(head, (at,))) == b""
        assert (framing.stage, framing.head) == (Stage.BROKEN, None)


@pytest.mark.parametrize(("rest", "body"), BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
def test_a_body_that_is_broken(rest: bytes, body: bytes) -> None:
    """What was sound is handed over, at whatever place it is cut."""
    raw = CHUNKED + rest
    for at in range(len(raw)):
        framing = Framing()
        assert run(framing, cut(raw, (at,))) == body
        assert framing.stage is Stage.BROKEN
        assert not framing.reusable


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        OK,
        OK + b"\r",
        OK + b"Content-Length: 5\r\n\r\n",
        OK + b"Content-Length: 5\r\n\r\nhell",
        CHUNKED,
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nX-T: 1\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
def test_a_connection_that_ends_too_early(raw: bytes) -> None:
    """An answer whose end was announced is not complete without it."""
    framing = Framing()
    framing.feed(raw)
    assert not framing.finish()
    assert framing.stage is not Stage.COMPLETE


def test_chunks_of_one_read_are_one_piece() -> None:
    """However small the chunks, there is one call for each read."""
    framing = Framing()
    framing.feed(CHUNKED)
    assert framing.feed(b"1\r\na\r\n" * 3 + b"2\r\nb") == b"aaab"
    assert framing.feed(b"c\r\n0\r\n\r\n") == b"c"


@pytest.mark.parametrize("size", [100, 1000, 65536, 1 << 30])
def test_heads_have_a_limit(size: int) -> None:
    """It holds for one line, for many lines, and for interim answers; a large body is none of it."""
    line = b"X-Line: " + b"x" * 80 + b"\r\n"
    hint = b"HTTP/1.1 103 Hints\r\n" + line + b"\r\n"
    end = b"Content-Length: 100000\r\n\r\n" + bytes(100_000)
    small = OK + line * (HEAD_LIMIT // len(line) - 2) + end
    large = OK + line * (HEAD_LIMIT // len(line) + 2) + end
    one = OK + b"X-Line: " + b"x" * HEAD_LIMIT + b"\r\n" + end
    hints = hint * (HEAD_LIMIT // len(line) + 2) + OK + end
    framing = Framing()
    assert run(framing, pieces(small, size)) == bytes(100_000)
    for raw in (large, one, hints):
        framing = Framing()
        assert run(framing, pieces(raw, size)) == b""
        assert (framing.stage, framing.head) == (Stage.BROKEN, None)


@pytest.mark.parametrize("tail", [b"0\r\nX-T: ", b"0\r\nX", b"5;"], ids=["value", "name", "size"])
def test_what_is_no_body_has_a_limit_too(tail: bytes) -> None:
    """A trailer or an extension without end would be read for ever."""
    framing = Framing()
    framing.feed(CHUNKED + b"5\r\nhello\r\n" + tail)
    fed = 0
    while framing.stage is Stage.BODY:
        framing.feed(b"x" * 1000)
        fed += 1000
    assert (framing.stage, fed <= HEAD_LIMIT + 1000) == (Stage.BROKEN, True)


def test_a_trickle_of_body_has_no_limit() -> None:
    """Framing around bytes of a body does not add up."""
    framing = Framing()
    framing.feed(CHUNKED)
    for _ in range(3000):
        assert framing.feed(b"1;" + b"e" * 60 + b"\r\nx\r\n") == b"x"
    assert framing.stage is Stage.BODY


@given(st.binary(max_size=300), points(300))
def test_no_bytes_make_it_fail(noise: bytes, points_: list[int]) -> None:
    """Whatever comes first, there is no exception and no body without a head."""
    framing = Framing()
    body = run(framing, cut(noise, points_))
    assert body == b"" or framing.head is not None


@given(
    st.sampled_from([*ANSWERS.values()]),
    st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=4)), max_size=4),
    points(200),
)
def test_no_damage_makes_it_fail(
    answer: Answer, damage: list[tuple[int, bytes]], points_: list[int]
) -> None:
    """Bytes written over an answer break it or change what it says, no more."""
    raw = bytearray(answer.raw)
    for at, noise in damage:
        raw[at : at + len(noise)] = noise
    framing = Framing()
    framing.begin(bodiless=answer.bodiless)
    body = run(framing, cut(bytes(raw), points_))
    assert body == b"" or framing.head is not None
    assert len(body) <= len(raw)


@given(st.binary(max_size=2000), st.lists(st.integers(1, 300), min_size=1), points(2500))
def test_a_body_in_chunks_comes_back(body: bytes, sizes: list[int], points_: list[int]) -> None:
    """Any body, in chunks of any sizes, cut at any places."""
    raw, at, turn = CHUNKED, 0, 0
    while at < len(body):
        chunk = body[at : at + sizes[turn % len(sizes)]]
        raw += b"%x\r\n%b\r\n" % (len(chunk), chunk)
        at += len(chunk)
        turn += 1
    framing = Framing()
    assert run(framing, cut(raw + b"0\r\n\r\n", points_)) == body
    assert (framing.stage, framing.reusable) == (Stage.COMPLETE, True)


def test_it_is_gone_when_it_is_dropped() -> None:
    """The parser refers back; after `drop` nothing waits for the collector."""
    gc.collect()
    gc.disable()
    try:
        framing = Framing()
        framing.feed(CHUNKED + b"5\r\nhello\r\n")
        framing.drop()
        del framing
        assert gc.collect() == 0
    finally:
        gc.enable()
