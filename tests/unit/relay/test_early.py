"""Errors that come in place of a stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.relay.early import LONGEST_EARLY, early_error, undecided
from tests.support.recordings import OWN

CHUNK = b'data: {"choices":[{"delta":{"content":"no \\"error\\" here"}}]}\n\n'


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ('{"error": {"message": "x", "type": "InternalServerError", "code": 500}}', 500),
        ('{"error":{"code":400,"message":"x","type":"exceed_context_size_error"}}', 400),
        ('{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', 503),
        ('{"error":{"message":"x","type":"exceed_context_size_error"}}', 400),
        ('{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}', 400),
        ('{"error":{"object":"error","message":"x","code":503}}', 503),
        ('{"error":{"message":"x","code":"429"}}', 429),
        ('{"error":{"message":"x","code":"rate_limit_exceeded"}}', 429),
        ('{"error":{"message":"x","code":200}}', 500),
        ('{"error":{"message":"x","code":true}}', 500),
        ('{"error":{"message":"x","code":"99999999999999999999"}}', 500),
        ('{"error":{"message":"x"}}', 500),
        ('{"error":"Unauthorized"}', 500),
        ('{"type":"error","error":{"type":"overloaded_error","message":"x"}}', 503),
        ('{"type":"error","error":{"type":"not_found_error","message":"x"}}', 404),
    ],
)
@pytest.mark.parametrize("named", ["", "event: error\n", ": hello\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_engine_s_status_and_words(data: str, status: int, named: str, end: str) -> None:
    """The status is the one it would have had without a stream, the body is its own."""
    piece = f"{named}data: {data}\n\ndata: [DONE]\n\n".replace("\n", end).encode()
    found = early_error(piece)
    assert found is not None
    assert (found.status, found.body.decode()) == (status, data)


@pytest.mark.parametrize(
    ("members", "status", "error"),
    [
        (
            {"type": "error", "code": "server_error", "message": "x", "sequence_number": 0},
            500,
            {"message": "x", "param": None, "code": "server_error", "type": "server_error"},
        ),
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "x", "param": "p"},
            429,
            {
                "message": "x",
                "param": "p",
                "code": "rate_limit_exceeded",
                "type": "invalid_request_error",
            },
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "x", "message": "y"}}},
            500,
            {"message": "y", "param": None, "code": "x", "type": "server_error"},
        ),
        (
            {"type": "response.failed", "response": {"error": None}},
            500,
            {"message": None, "param": None, "code": None, "type": "server_error"},
        ),
    ],
)
def test_events_of_responses_become_a_body(
    members: dict[str, object], status: int, error: dict[str, object]
) -> None:
    """As a whole answer would have had them: a stream's event is no body."""
    piece = b"event: x\ndata: " + json.dumps(members).encode() + b"\n\n"
    found = early_error(piece)
    assert found is not None
    assert (found.status, json.loads(found.body)) == (status, {"error": error})


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        CHUNK,
        CHUNK + b'data: {"error":{"code":500}}\n\n',
        b": error\n\n",
        b'data: {"error":null}\n\n',
        b'data: {"error":{"code":500},"choices":[]}\n\n',
        b'data: {"error":{"code":500}}',
        b'data: {"error":\n\n',
        b"data: error\n\n",
        b'data: ["error"]\n\n',
        b'event: response.created\ndata: {"type":"response.created","response":{"error":null}}\n\n',
        b'data: {"error":{"x":"' + b"a" * LONGEST_EARLY + b'"}}\n\n',
    ],
)
def test_everything_else_is_a_stream(piece: bytes) -> None:
    """It is passed on as it comes."""
    assert early_error(piece) is None


def test_the_recorded_death_of_an_engine_is_seen() -> None:
    """The server had sent status 200 before its engine died at the first token."""
    recorded = (OWN / "vllm-0.32.0/lifecycle/stream_engine_dies.http").read_bytes()
    piece = recorded[recorded.index(b"data: ") :].partition(b"\r\n")[0]
    found = early_error(piece)
    assert found is not None
    assert found.status == 500
    assert b"EngineCore" in found.body


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(piece: bytes) -> None:
    """The first bytes of a stream may be anything."""
    early_error(piece)
    early_error(b'data: {"error":' + piece + b"\n\n")
    undecided(piece)


@given(st.integers(0, 60))
def test_a_cut_event_is_waited_for(at: int) -> None:
    """Until it is whole nobody can tell; then it is told."""
    piece = b'event: error\ndata: {"error":{"message":"x","code":400}}\n\n'
    part = piece[:at]
    assert undecided(part) is (at < len(piece))
    assert (early_error(part) is not None) is (at >= len(piece))


@pytest.mark.parametrize(
    "piece", [b": ping\n\n", b": ping", b"<html>", b"id: 1\n", CHUNK, b"data:" + b"a" * 70_000]
)
def test_nothing_else_is_waited_for(piece: bytes) -> None:
    """A comment keeps a connection alive only if it passes at once."""
    assert not undecided(piece)
