"""An engine's error as one of ours, where it cannot be answered with its own status and body."""

from __future__ import annotations

from collections.abc import Mapping

from router.endpoints.dialect import json_object
from router.errors import Reason, RequestError

_CLIENT_ERROR, _SERVER_ERROR, _BAD_GATEWAY = 400, 500, 502


class EngineError(RequestError):
    """What an engine said instead of an answer, to be told inside a stream that has begun."""

    def __init__(self, status: int, body: bytes) -> None:
        members = json_object(body) or {}
        inner = members.get("error")
        said = inner if isinstance(inner, Mapping) else members
        message = said.get("message", inner)
        if not isinstance(message, str):
            message = f"The engine answered with status {status}, which is no stream."
        param = said.get("param")
        super().__init__(
            Reason.UPSTREAM_UNAVAILABLE, message, param=param if isinstance(param, str) else None
        )
        self._status = status if status >= _CLIENT_ERROR else _BAD_GATEWAY
        self._type, self._code = said.get("type"), said.get("code")

    @property
    def http_status(self) -> int:
        """The engine's, where that is one of an error."""
        return self._status

    @property
    def error_type(self) -> str:
        """The engine's word for it, else OpenAI's for its status."""
        if isinstance(self._type, str) and self._type not in {"", "error"}:
            return self._type
        return "invalid_request_error" if self._status < _SERVER_ERROR else "server_error"

    @property
    def code(self) -> str:
        """The engine's code, else its status."""
        known = isinstance(self._code, (str, int)) and self._code != ""
        return str(self._code if known else self._status)
