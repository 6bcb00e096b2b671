"""Tells whether a stream begins with an error, so that it can be answered with its status.

Engines that have sent status 200 before anything went wrong put the error into the first event.
Until something has reached the client it can still be answered as it would be without a stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from router.endpoints.dialect import json_object
from router.relay.sse import event_data

LONGEST_EARLY = 64 * 1024
"""A first event beyond this size is no error."""

SURE = 32
"""Bytes of an event after which one that has not named an error is none."""

_EVENT = re.compile(rb"(?:\xef\xbb\xbf)?(?:\r\n|\n|\r)*(.*?(?>\r\n|\n|\r){2})", re.DOTALL)
_CLIENT_ERROR, _BEYOND = 400, 600
_INTERNAL = 500
_NAMED = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "exceed_context_size_error": 400,
    "unavailable_error": 503,
    "overloaded_error": 503,
    "timeout_error": 504,
}
"""Statuses of the kinds of error that come without a number."""


@dataclass(frozen=True, slots=True)
class EarlyError:
    """An error that came in place of a stream."""

    status: int
    """What the engine would have answered without a stream."""
    body: bytes
    """JSON, as the engine wrote it."""


def early_error(piece: bytes) -> EarlyError | None:
    r"""The error with which a stream begins, if it does.

    Args:
        piece: The first bytes of the stream; more than one event may be in it.

    >>> early_error(b'data: {"error":{"message":"no","code":400}}\n\ndata: [DONE]\n\n')
    EarlyError(status=400, body=b'{"error":{"message":"no","code":400}}')
    """
    if b"error" not in piece[:LONGEST_EARLY]:
        return None
    found = _EVENT.match(piece, 0, LONGEST_EARLY)
    data = event_data(found.group(1)) if found else b""
    members = json_object(data) if data else None
    if members is None or "choices" in members:
        return None
    error = members.get("error")
    if isinstance(error, Mapping):
        return EarlyError(_status(error), data)
    if members.get("object") == "error" or (error and isinstance(error, str)):
        return EarlyError(_status(members), data)
    return _of_responses(members)


def undecided(piece: bytes) -> bool:
    r"""Whether the first event has not come whole, so that more bytes may show an error.

    Only an event that has begun counts: comments and blank lines are nothing to wait for. And only
    its first bytes do, unless there is an error in them.

    >>> undecided(b'data: {"er'), undecided(b": ping\n\nda"), undecided(b"data: {}\n\n")
    (True, False, False)
    """
    start = piece[:LONGEST_EARLY].removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    begun = start[:6]
    return (
        (len(start) < SURE or (b"error" in start and len(piece) < LONGEST_EARLY))
        and any(begun.startswith(name) or name.startswith(begun) for name in (b"data:", b"event:"))
        and _EVENT.match(piece) is None
    )


def _of_responses(members: Mapping[str, Any]) -> EarlyError | None:
    """Their two events of failure, whose members a whole answer would have under `error`."""
    match members.get("type"):
        case "error":
            error: object = members
        case "response.failed":
            response = members.get("response")
            error = response.get("error") if isinstance(response, Mapping) else None
        case _:
            return None
    said = error if isinstance(error, Mapping) else {}
    named = {key: said.get(key) for key in ("message", "param", "code")}
    status = _status(said)
    kind = "invalid_request_error" if status < _INTERNAL else "server_error"
    return EarlyError(status, orjson.dumps({"error": {**named, "type": kind}}))


def _status(error: Mapping[str, Any]) -> int:
    for key in ("code", "status", "status_code"):
        code = error.get(key)
        if isinstance(code, str) and code.isascii() and code.isdecimal():
            code = int(code[:4])
        if isinstance(code, int) and _CLIENT_ERROR <= code < _BEYOND:
            return code
    for key in ("type", "code"):
        kind = error.get(key)
        if isinstance(kind, str) and kind in _NAMED:
            return _NAMED[kind]
    return _INTERNAL
