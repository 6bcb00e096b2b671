"""Reading requests to any endpoint, and renaming their model."""

from __future__ import annotations

import json

import pytest

from router.endpoints.table import FACTS
from router.errors import Reason, RequestError
from router.intake.reading import NO_MODEL, read_request, with_model
from router.types import Endpoint, Headers

JSON = (("Content-Type", "application/json; charset=utf-8"),)
FORM = (("content-type", "multipart/form-data; boundary=B"),)
AUDIO = (
    b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n\xff\x00\r\n'
    b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--B--\r\n'
)


@pytest.mark.parametrize(
    ("endpoint", "body", "headers", "model"),
    [
        (Endpoint.CHAT, b'{"model":"m"}', (), "m"),
        (Endpoint.RESPONSES, b'{"model":"m","input":"x"}', (), "m"),
        (Endpoint.TOKENIZE, b'{"prompt":"x"}', JSON, NO_MODEL),
        (Endpoint.TOKENIZE, b'{"model":"m","prompt":"x"}', JSON, "m"),
        (Endpoint.LLAMA_COMPLETION, b'{"prompt":"x"}', JSON, NO_MODEL),
        (Endpoint.TRANSCRIPTIONS, AUDIO, FORM, "whisper"),
        (Endpoint.TRANSCRIPTIONS, b"no form", FORM, NO_MODEL),
        (Endpoint.TRANSCRIPTIONS, b'{"model":"m"}', JSON, "m"),
        (Endpoint.STORED_RESPONSE, b"", (), NO_MODEL),
        (Endpoint.OTHER, b"", (), NO_MODEL),
        (Endpoint.OTHER, b'{"model":"m"}', JSON, "m"),
        (Endpoint.OTHER, b'{"model":"m"}', (("Content-Type", "application/x+json"),), "m"),
        (Endpoint.OTHER, b'{"model":"m"}', (), NO_MODEL),
        (Endpoint.OTHER, b'{"model":', JSON, NO_MODEL),
        (Endpoint.OTHER, b'{"model":5}', JSON, NO_MODEL),
        (Endpoint.OTHER, b"[1]", JSON, NO_MODEL),
        (Endpoint.OTHER, AUDIO, FORM, "whisper"),
    ],
)
def test_where_the_model_is_named(
    endpoint: Endpoint, body: bytes, headers: Headers, model: str
) -> None:
    """In each kind of body; what is passed on without being known is never refused."""
    request = read_request(FACTS[endpoint], body, headers)
    assert (request.endpoint, request.model, request.body) == (endpoint, model, body)
    assert request.headers == headers


def test_the_model_may_stand_in_the_path() -> None:
    """As it does where one asks about a model."""
    request = read_request(FACTS[Endpoint.MODEL], b"", path="/v1/models/a%2Fb")
    assert request.model == "a/b"


@pytest.mark.parametrize("endpoint", [Endpoint.EMBEDDINGS, Endpoint.MESSAGES, Endpoint.RESPONSES])
def test_what_must_name_a_model_is_refused_without_one(endpoint: Endpoint) -> None:
    """Before any server is asked."""
    with pytest.raises(RequestError, match="`model` must be given"):
        read_request(FACTS[endpoint], b"{}", JSON)


def test_a_model_that_is_no_text_is_refused_everywhere() -> None:
    """Optional is not arbitrary."""
    with pytest.raises(RequestError) as caught:
        read_request(FACTS[Endpoint.TOKENIZE], b'{"model":5}', JSON)
    assert caught.value.reason is Reason.INVALID_REQUEST


def test_a_stream_is_seen_in_every_dialect() -> None:
    """It decides what is asked of engines."""
    for endpoint in (Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.MESSAGES):
        assert read_request(FACTS[endpoint], b'{"model":"m","stream":true}').stream


@pytest.mark.parametrize(
    ("endpoint", "body", "headers", "expected"),
    [
        (
            Endpoint.CHAT,
            b'{ "model" : "big", "x": {"model":"big"}}',
            (),
            b'{ "model" : "gr\xc3\xb6\xc3\x9fe", "x": {"model":"big"}}',
        ),
        (Endpoint.TRANSCRIPTIONS, AUDIO, FORM, AUDIO.replace(b"whisper", "größe".encode())),
        (Endpoint.OTHER, b'{"model":"big"}', JSON, '{"model":"größe"}'.encode()),
        (Endpoint.TOKENIZE, b'{"prompt":"x"}', JSON, b'{"prompt":"x"}'),
        (Endpoint.STORED_RESPONSE, b"", (), b""),
    ],
)
def test_a_model_is_renamed_in_place(
    endpoint: Endpoint, body: bytes, headers: Headers, expected: bytes
) -> None:
    """Nothing but the name changes; a request that names none stays without."""
    renamed = with_model(read_request(FACTS[endpoint], body, headers), "größe")
    assert renamed.body == expected
    assert renamed.model == "größe"
    if "model" in renamed.fields:
        assert renamed.fields == json.loads(expected)
