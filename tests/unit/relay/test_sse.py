"""Cutting a byte stream into events."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.relay.sse import EventSplitter, EventTooLargeError, event_data
from tests.support.splits import cut, points

LINES = st.sampled_from(
    [
        b"",
        b"",
        b"data: a",
        b"data:b",
        b"data:  two spaces",
        b"data",
        b"data: [DONE]",
        "data: سلام 世界".encode(),
        b": comment",
        b":",
        b"event: delta",
        b"id: 1",
        b"retry: 5",
        b"dataset: no",
    ]
)
ENDINGS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(LINES, ENDINGS).map(b"".join), max_size=25).map(b"".join),
    st.sampled_from([b"", b"data: unfinished", b"\r", b"\n"]),
).map(b"".join)


def split(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    """All events of a stream, and what is left."""
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events, splitter.rest()


def by_the_standard(stream: bytes) -> list[bytes]:
    """Data of the events, by the algorithm of section 9.2.6, on the whole stream at once."""
    found: list[bytes] = []
    data: list[bytes] = []
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if not line:
            found.append(b"\n".join(data))
            data = []
        elif line.partition(b":")[0] == b"data":
            value = line.partition(b":")[2]
            data.append(value[1:] if value.startswith(b" ") else value)
    return [item for item in found if item]


@given(STREAMS, points())
def test_no_byte_is_changed_lost_or_moved(stream: bytes, at: list[int]) -> None:
    """Whatever comes out, put together, is what went in, however the network cut it."""
    events, rest = split(cut(stream, at))
    assert b"".join(events) + rest == stream


@given(STREAMS, points())
def test_any_split_gives_the_events_of_the_standard(stream: bytes, at: list[int]) -> None:
    """Line endings may be mixed, comments and a byte order mark are no data."""
    events, _ = split(cut(stream, at))
    assert [data for data in map(event_data, events) if data] == by_the_standard(stream)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r", b"\n\r", b"\r\n\n"])
def test_an_event_is_given_as_soon_as_it_is_complete(end: bytes) -> None:
    """The last byte that decides is enough; nothing waits for the next event."""
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1" + end[:-1]) == []
    assert splitter.feed(end[-1:]) == [b"data: 1" + end]


def test_a_late_second_half_of_a_terminator_is_no_event() -> None:
    """A CR ends an event at once; the LF that may follow comes by itself."""
    assert split([b"data: 1\r\n\r", b"\ndata: 2\n\n"])[0] == [
        b"data: 1\r\n\r",
        b"\n",
        b"data: 2\n\n",
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\r\n\r\n", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data\n\n", b""),
        (b": ping\n\n", b""),
        (b"event: x\ndata: a\nid: 3\n\n", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"\n", b""),
    ],
)
def test_data_is_that_of_the_data_fields(event: bytes, expected: bytes) -> None:
    """Several are joined by LF, one space after the colon is dropped, other fields are left out."""
    assert event_data(event) == expected


@given(STREAMS.filter(len), points(), st.integers(1, 40))
def test_too_large_an_event_is_an_error_that_loses_nothing(
    stream: bytes, at: list[int], limit: int
) -> None:
    """Events completed by the same bytes come back with the rest."""
    splitter, out = EventSplitter(limit), b""
    for piece in (pieces := iter(cut(stream, at))):
        try:
            out += b"".join(splitter.feed(piece))
        except EventTooLargeError:
            out += splitter.rest() + b"".join(pieces)
            break
    assert out + splitter.rest() == stream


def test_an_event_within_the_limit_may_come_in_many_pieces() -> None:
    """The limit is on what waits, not on the stream."""
    splitter = EventSplitter(limit=8)
    events = [
        event for _ in range(100) for event in splitter.feed(b"data: 1") + splitter.feed(b"\n\n")
    ]
    assert events == [b"data: 1\n\n"] * 100
