"""Errors the program makes itself, and how each is shown; errors of engines pass through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import orjson


class Reason(StrEnum):
    """The closed list of reasons for which a request is refused or fails here."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_PATH = "unknown_path"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    DRAINING = "draining"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class _Shape:
    http_status: int
    error_type: str


_SHAPES: dict[Reason, _Shape] = {
    Reason.INVALID_REQUEST: _Shape(400, "invalid_request_error"),
    Reason.UNKNOWN_MODEL: _Shape(404, "invalid_request_error"),
    Reason.UNKNOWN_PATH: _Shape(404, "invalid_request_error"),
    Reason.METHOD_NOT_ALLOWED: _Shape(405, "invalid_request_error"),
    Reason.BODY_TOO_LARGE: _Shape(413, "invalid_request_error"),
    Reason.UPSTREAM_UNAVAILABLE: _Shape(502, "server_error"),
    Reason.UPSTREAM_TIMEOUT: _Shape(504, "server_error"),
    Reason.UPSTREAM_PROTOCOL: _Shape(502, "server_error"),
    Reason.DRAINING: _Shape(503, "server_error"),
    Reason.INTERNAL: _Shape(500, "server_error"),
}

_CODES: dict[Reason, str] = {Reason.UNKNOWN_MODEL: "model_not_found"}
"""Where OpenAI's own API has a code for the case, clients get that one."""


class RequestError(Exception):
    """A request that this program answers itself, with an OpenAI error body."""

    def __init__(self, reason: Reason, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.param = param

    @property
    def http_status(self) -> int:
        """Status of the reply."""
        return _SHAPES[self.reason].http_status

    def body(self) -> bytes:
        """The reply's body in the shape OpenAI clients parse."""
        return orjson.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": _SHAPES[self.reason].error_type,
                    "param": self.param,
                    "code": _CODES.get(self.reason, self.reason.value),
                }
            }
        )


class ConfigError(Exception):
    """A configuration that cannot be used; the message names the key and the remedy."""


class StartError(Exception):
    """Workers do not come up, for a reason that the configuration has no part in."""


class StoreError(Exception):
    """The store did not do what it was asked to; nothing on the request path depends on it."""
