"""Reading what routing needs from a body."""

from __future__ import annotations

import gc

import pytest

from router.errors import Reason, RequestError
from router.intake.parse import MOST_CONTAINERS, MOST_MEMBERS, MOST_VALUES, parse_request
from router.types import Endpoint


def parse(body: bytes) -> tuple[str, bool]:
    """Model and stream."""
    request = parse_request(Endpoint.CHAT, body)
    assert request.body is body
    return request.model, request.stream


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"m"}', ("m", False)),
        (b'{"model":"m","stream":true}', ("m", True)),
        (b'{"model":"m","stream":null}', ("m", False)),
        (b'{"model":"m","stream":false}', ("m", False)),
        (b' {"model" : "m" , "unknown": [1]} \n', ("m", False)),
        (b'{"model":"a","model":"b"}', ("b", False)),
        ('{"model":"سلام"}'.encode(), ("سلام", False)),
        (b'{"model":""}', ("", False)),
    ],
)
def test_only_model_and_stream_are_looked_at(body: bytes, expected: tuple[str, bool]) -> None:
    """Everything else is for the engine to judge, and the bytes are kept as they are."""
    assert parse(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","temperature":NaN}',
        b'{"model":"m","temperature":-Infinity}',
        b'{"model":"m","messages":[{"content":"\\ud83d"}]}',
        b'{"model":"m","messages":[{"content":"\xed\xa0\xbd"}]}',
        b'{"model":"m","seed":123456789012345678901234567890}',
        b'\xef\xbb\xbf{"model":"m"}',
    ],
    ids=["nan", "inf", "surrogate", "raw surrogate", "large integer", "byte order mark"],
)
def test_what_engines_in_python_accept_is_accepted(body: bytes) -> None:
    """A proxy that is stricter than what stands behind it breaks its clients."""
    assert parse(body) == ("m", False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b'{"model":"m"', "not valid JSON"),
        (b'{"model":"\xff"}', "not valid JSON"),
        ('{"model":"m"}'.encode("utf-16"), "not valid JSON"),
        (b'{"n":' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "must be a JSON object"),
        (b'"model"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"{}", "`model` must be given"),
        (b'{"model":null}', "`model` must be given"),
        (b'{"model":5}', "`model` must be given"),
    ],
)
def test_a_body_that_names_no_model_is_refused(body: bytes, message: str) -> None:
    """With what is wrong, as a client error."""
    with pytest.raises(RequestError, match=message) as caught:
        parse(body)
    assert (caught.value.reason, caught.value.http_status) == (Reason.INVALID_REQUEST, 400)


def test_the_place_of_a_mistake_is_told() -> None:
    """Line and column, and nothing of the body itself."""
    with pytest.raises(RequestError, match="line 2, column 12") as caught:
        parse(b'{"model":"m",\n "secret": sk-123}')
    assert "sk-123" not in caught.value.message


def test_a_missing_model_is_told_as_a_parameter() -> None:
    """OpenAI clients show `param`."""
    with pytest.raises(RequestError) as caught:
        parse(b"{}")
    assert caught.value.param == "model"


def test_the_client_s_headers_come_along() -> None:
    """As they were sent; none where none were given."""
    headers = (("X-A", "1"), ("x-a", "2"))
    assert parse_request(Endpoint.CHAT, b'{"model":"m"}', headers).headers == headers
    assert parse_request(Endpoint.CHAT, b'{"model":"m"}').headers == ()


ABSURD = {
    "arrays": b"[]," * MOST_CONTAINERS + b"1",
    "members": b'{"a":0' + b',"b":1' * MOST_MEMBERS + b"}",
    "spaced members": b'{"a":0' + b',"b"\n:1' * MOST_MEMBERS + b"}",
    "numbers": b"0" + b",1" * MOST_VALUES + b",1",
    "numbers that are none": b"0,1.5," * 500_000 + b"1,NaN",
}


@pytest.mark.parametrize("values", ABSURD.values(), ids=ABSURD)
def test_a_body_of_absurdly_many_parts_is_refused(values: bytes) -> None:
    """A few megabytes of them would hold up everybody else for seconds."""
    with pytest.raises(RequestError) as caught:
        parse(b'{"model":"m","x":[' + values + b"]}")
    assert (caught.value.reason, caught.value.message) == (
        Reason.INVALID_REQUEST,
        "The request body holds too many values.",
    )


def test_a_long_prompt_of_tokens_is_not_absurd() -> None:
    """A million of them, as numbers."""
    assert parse(b'{"model":"m","prompt":[' + b"12345," * 1_000_000 + b"1]}") == ("m", False)


@pytest.mark.parametrize("end", [b"1]}", b"NaN]}", b"x"])
def test_the_garbage_collector_is_back_after_a_large_body(end: bytes) -> None:
    """It is off only while the body is read, however that ends."""
    body = b'{"model":"m","x":[' + b"[]," * 100_000 + end
    try:
        assert parse(body) == ("m", False)
    except RequestError:
        assert end == b"x"
    assert gc.isenabled()
