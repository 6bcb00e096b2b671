"""An engine's error as an event of ours tells it."""

from __future__ import annotations

import json

import pytest

from router.endpoints.anthropic import Anthropic
from router.endpoints.openai import OpenAI
from router.relay.told import EngineError


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"error": {"message": "m", "type": "t", "param": "p", "code": "c"}},
            {"message": "m", "type": "t", "param": "p", "code": "c"},
        ),
        (
            {"error": {"message": "m", "type": "", "param": 7, "code": 400}},
            {"message": "m", "type": "invalid_request_error", "param": None, "code": "400"},
        ),
        (
            {"object": "error", "message": "m", "type": "BadRequestError"},
            {"message": "m", "type": "BadRequestError", "param": None, "code": "400"},
        ),
        (
            {"type": "error", "error": {"type": "not_found_error", "message": "m"}},
            {"message": "m", "type": "not_found_error", "param": None, "code": "400"},
        ),
        (
            {"error": "m"},
            {"message": "m", "type": "invalid_request_error", "param": None, "code": "400"},
        ),
    ],
    ids=str,
)
def test_what_the_engine_says_is_kept(body: object, expected: object) -> None:
    """Once, in the four members that clients know; what is missing follows from the status."""
    error = EngineError(400, json.dumps(body).encode())
    assert json.loads(OpenAI().error_body(error)) == {"error": expected}


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":null}', b'{"error":{}}'])
def test_what_says_nothing_is_named_by_its_status(body: bytes) -> None:
    """Whatever it is, there is a message."""
    said = json.loads(OpenAI().error_body(EngineError(503, body)))["error"]
    assert (said["type"], said["code"]) == ("server_error", "503")
    assert "status 503" in said["message"]


def test_an_answer_that_is_no_error_is_the_server_s_fault() -> None:
    """It cannot be told, however good it was."""
    error = EngineError(200, b'{"choices":[]}')
    assert (error.http_status, error.error_type) == (502, "server_error")


def test_another_dialect_s_kind_follows_from_the_status() -> None:
    """As in every error of that dialect."""
    told = Anthropic().error_body(EngineError(429, b'{"error":{"message":"m"}}'))
    assert json.loads(told)["error"] == {"type": "rate_limit_error", "message": "m"}
