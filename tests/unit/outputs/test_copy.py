"""What a stream has said, kept while it passed."""

from __future__ import annotations

import json

from hypothesis import given

from router.endpoints.table import OPENAI
from router.outputs.copy import StreamCopy
from router.outputs.said import Said
from tests.support.splits import cut, points


def event(text: str, finish: str | None = None, end: str = "\n\n") -> bytes:
    """A chunk of a chat."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}{end}".encode()


STREAM = event("Hél") + b": comment\n\n" + event("lo") + event("", "stop") + b"data: [DONE]\n\n"


def copied(*pieces: bytes, most: int = 1000) -> Said | None:
    """What is known of a stream that came in these pieces."""
    copy = StreamCopy(OPENAI, most)
    for piece in pieces:
        copy.take(piece)
    return copy.said()


@given(points(len(STREAM)))
def test_it_does_not_matter_how_bytes_are_cut(at: list[int]) -> None:
    """Nor whether an event begins in one piece and ends in another."""
    assert copied(*cut(STREAM, at)) == Said("Héllo", finish="stop")


def test_lines_may_end_as_they_like() -> None:
    """In CRLF too, and the last event need not be closed."""
    stream = event("a", end="\r\n\r\n") + event("b", "stop", end="")
    assert copied(stream) == Said("ab", finish="stop")


def test_a_long_stream_is_taken_apart_as_it_comes() -> None:
    """Nothing of it is lost between the slices."""
    pieces = [event(f"{number} ") for number in range(500)]
    found = copied(*pieces, event("", "stop"), most=10_000)
    assert found == Said("".join(f"{number} " for number in range(500)), finish="stop")


def test_too_long_an_answer_is_unknown() -> None:
    """None, not the beginning of it."""
    assert copied(*[event("x" * 100)] * 11, event("", "stop")) is None


def test_an_event_without_end_is_unknown() -> None:
    """It is not gathered for ever."""
    assert copied(b"data: {", *[b"x" * 10_000] * 60) is None


def test_rubbish_says_nothing() -> None:
    """Bytes that are no JSON are no answer."""
    assert copied(b"data: {\n\ndata: 7\n\n\xff\xfe\n\n") == Said()
