"""Errors of our own, as clients see them."""

from __future__ import annotations

import json

import pytest

from router.errors import LONGEST_QUOTE, Reason, RequestError, quoted


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_status_and_an_openai_body(reason: Reason) -> None:
    """Clients parse the same four members whatever went wrong."""
    error = RequestError(reason, "what happened", param="model")
    body = json.loads(error.body())["error"]
    assert 400 <= error.http_status < 600
    limited = "rate_limit_error" if error.http_status == 429 else "invalid_request_error"
    assert body["type"] == (limited if error.http_status < 500 else "server_error")
    assert (body["message"], body["param"], sorted(body)) == (
        "what happened",
        "model",
        ["code", "message", "param", "type"],
    )
    assert str(error) == "what happened"
    assert error.retry_after_s is None


def test_an_unknown_model_has_the_code_that_clients_know() -> None:
    """Where OpenAI's own API has a code, it is used."""
    assert json.loads(RequestError(Reason.UNKNOWN_MODEL, "x").body())["error"]["code"] == (
        "model_not_found"
    )
    assert json.loads(RequestError(Reason.DRAINING, "x").body())["error"]["code"] == "draining"


def test_a_client_s_text_is_quoted_up_to_a_limit() -> None:
    """And can break no line."""
    assert quoted("gpt-9") == "'gpt-9'"
    assert quoted("x" * LONGEST_QUOTE) == repr("x" * LONGEST_QUOTE)
    assert quoted("x" * 1_000_000) == repr("x" * LONGEST_QUOTE + "…")
    assert quoted("a\r\nb") == "'a\\r\\nb'"
