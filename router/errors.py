"""Errors the program makes itself, and how each is shown; errors of engines pass through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import orjson


class Reason(StrEnum):
    """The closed list of reasons for which a request is refused or fails here."""

    UNAUTHENTICATED = "unauthenticated"
    KEYS_UNREAD = "keys_unread"
    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_PATH = "unknown_path"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    EXPECTATION_FAILED = "expectation_failed"
    UPGRADE_REFUSED = "upgrade_refused"
    TENANT_SATURATED = "tenant_saturated"
    SATURATED = "saturated"
    BUFFERS_FULL = "buffers_full"
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
    Reason.UNAUTHENTICATED: _Shape(401, "invalid_request_error"),
    # Not a 401, after which clients give their key up.
    Reason.KEYS_UNREAD: _Shape(503, "server_error"),
    Reason.INVALID_REQUEST: _Shape(400, "invalid_request_error"),
    Reason.UNKNOWN_MODEL: _Shape(404, "invalid_request_error"),
    Reason.UNKNOWN_PATH: _Shape(404, "invalid_request_error"),
    Reason.METHOD_NOT_ALLOWED: _Shape(405, "invalid_request_error"),
    Reason.BODY_TOO_LARGE: _Shape(413, "invalid_request_error"),
    Reason.EXPECTATION_FAILED: _Shape(417, "invalid_request_error"),
    # Not a 5xx: clients would try again, and it is no fault of the servers.
    Reason.UPGRADE_REFUSED: _Shape(400, "invalid_request_error"),
    # Both 429: a balancer in front that counts 5xx against a server would take one that is merely
    # full for a broken one, and send its load to the others.
    Reason.TENANT_SATURATED: _Shape(429, "rate_limit_error"),
    Reason.SATURATED: _Shape(429, "rate_limit_error"),
    Reason.BUFFERS_FULL: _Shape(503, "server_error"),
    Reason.UPSTREAM_UNAVAILABLE: _Shape(502, "server_error"),
    Reason.UPSTREAM_TIMEOUT: _Shape(504, "server_error"),
    Reason.UPSTREAM_PROTOCOL: _Shape(502, "server_error"),
    Reason.DRAINING: _Shape(503, "server_error"),
    Reason.INTERNAL: _Shape(500, "server_error"),
}

_CODES: dict[Reason, str] = {
    Reason.UNKNOWN_MODEL: "model_not_found",
    Reason.UNAUTHENTICATED: "invalid_api_key",
}
"""Where OpenAI's own API has a code for the case, clients get that one."""


LONGEST_QUOTE = 128
"""Characters of a client's text that an error repeats."""


def quoted(text: str) -> str:
    """A client's text as an error shows it: the beginning, where it is long.

    >>> quoted("gpt"), len(quoted("x" * 1_000_000))
    ("'gpt'", 131)
    """
    return repr(text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…")


class RequestError(Exception):
    """A request that this program answers itself; how it is written is the dialect's business."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        """When to try again; None where we cannot tell."""

    @property
    def http_status(self) -> int:
        """Status of the reply."""
        return _SHAPES[self.reason].http_status

    @property
    def error_type(self) -> str:
        """OpenAI's word for this kind of error."""
        return _SHAPES[self.reason].error_type

    @property
    def code(self) -> str:
        """OpenAI's code where it has one, else the reason."""
        return _CODES.get(self.reason, self.reason.value)

    def body(self) -> bytes:
        """The reply's body in the shape OpenAI clients parse."""
        return orjson.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": self.error_type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )


class ConfigError(Exception):
    """A configuration that cannot be used; the message names the key and the remedy."""


class StartError(Exception):
    """Workers do not come up, for a reason that the configuration has no part in."""


class StoreError(Exception):
    """The store did not do what it was asked to; nothing on the request path depends on it."""
