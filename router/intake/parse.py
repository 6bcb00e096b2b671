"""Bytes → ParsedRequest. It reads a copy; the bytes themselves are what is forwarded."""

from __future__ import annotations

import gc
import json
from typing import Any

import numpy as np
import orjson

from router.errors import Reason, RequestError
from router.types import Endpoint, Headers, ParsedRequest

MOST_CONTAINERS = 1_000_000
"""Brackets and braces that open in a body, in its texts too: more than any conversation holds. Two
bytes can make an object of sixty, and nobody else is served while they are made."""
MOST_MEMBERS = 1_000_000
"""Colons: a name costs as much as an object."""
MOST_VALUES = 4_000_000
"""Commas: more tokens than any prompt of their numbers has."""
_MOST_READ_SLOWLY = 1_000_000
"""Commas where the strict parser has failed; the other one takes four times as long."""

_SMALL_BODY = 64 * 1024
_BLOCK = 256 * 1024


def parse_request(
    endpoint: Endpoint, body: bytes, headers: Headers = (), *, model_required: bool = True
) -> ParsedRequest:
    """Reads what routing needs from a request body and validates nothing else.

    Raises:
        RequestError: The body is no JSON object, names no model though it must, or is made of
            absurdly many parts; whatever else may be wrong with it is for the engine to say.
    """
    if len(body) <= _SMALL_BODY:
        fields = _loads(body)
    elif _is_absurd(body):
        raise _too_many_values()
    else:
        fields = _loads_undisturbed(body)
    if not isinstance(fields, dict):
        raise RequestError(Reason.INVALID_REQUEST, "The request body must be a JSON object.")
    model = fields.get("model")
    if model is None and not model_required:
        model = ""
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


def _is_absurd(body: bytes) -> bool:
    if len(body) <= MOST_CONTAINERS:
        return False
    lists, objects, members, values = _counts(body, b"[{:,")
    return lists + objects > MOST_CONTAINERS or members > MOST_MEMBERS or values > MOST_VALUES


def _counts(body: bytes, signs: bytes) -> list[int]:
    """How often each sign stands in a body, which takes `bytes.count` several times as long."""
    found = [0] * len(signs)
    whole = np.frombuffer(body, np.uint8)
    for start in range(0, len(whole), _BLOCK):  # so that what is compared stays in the cache
        block = whole[start : start + _BLOCK]
        for index, sign in enumerate(signs):
            found[index] += int(np.count_nonzero(block == sign))
    return found


def _too_many_values() -> RequestError:
    return RequestError(Reason.INVALID_REQUEST, "The request body holds too many values.")


def _loads_undisturbed(body: bytes) -> Any:
    """Reads a large body without the garbage collector, which triples the time for nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _loads(body)
    finally:
        if collecting:
            gc.enable()


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        strict = error
    if len(body) > _MOST_READ_SLOWLY < body.count(b","):
        raise _too_many_values() from strict
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
