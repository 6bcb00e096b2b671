"""Bytes → ParsedRequest. It reads a copy; the bytes themselves are what is forwarded."""

from __future__ import annotations

import json
from typing import Any

import orjson

from router.errors import Reason, RequestError
from router.types import Endpoint, Headers, ParsedRequest


def parse_request(endpoint: Endpoint, body: bytes, headers: Headers = ()) -> ParsedRequest:
    """Reads what routing needs from a request body and validates nothing else.

    Raises:
        RequestError: The body is no JSON object or names no model; whatever else may be wrong with
            it is for the engine to say.
    """
    fields = _loads(body)
    if not isinstance(fields, dict):
        raise RequestError(Reason.INVALID_REQUEST, "The request body must be a JSON object.")
    model = fields.get("model")
    if not isinstance(model, str):
        raise RequestError(
            Reason.INVALID_REQUEST, "`model` must be given, as a string.", param="model"
        )
    return ParsedRequest(
        endpoint=endpoint,
        body=body,
        fields=fields,
        model=model,
        stream=fields.get("stream") is True,
        headers=headers,
    )


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        strict = error
    # Engines written in Python also take NaN and unpaired surrogates; so must we.
    try:
        return json.loads(body.decode("utf-8-sig", errors="surrogatepass"))
    except RecursionError:
        raise RequestError(
            Reason.INVALID_REQUEST, "The request body is nested too deeply."
        ) from None
    except ValueError:
        raise RequestError(
            Reason.INVALID_REQUEST,
            "The request body is not valid JSON: "
            f"{strict.msg} at line {strict.lineno}, column {strict.colno}.",
        ) from strict
