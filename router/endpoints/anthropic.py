"""Anthropic's Messages: blocks of content between `message_start` and `message_stop`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from router.endpoints.dialect import CONTENT, END, ERROR, MORE, event
from router.errors import RequestError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SERVER_ERROR = 500
_OUTPUT = ("text", "thinking", "partial_json")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")  # no set: the value may be anything


def error_type(status: int) -> str:
    """Anthropic's word for the kind of error that a status stands for.

    >>> error_type(404), error_type(405), error_type(502)
    ('not_found_error', 'invalid_request_error', 'api_error')
    """
    other = "invalid_request_error" if status < _SERVER_ERROR else "api_error"
    return _TYPES.get(status, other)


@dataclass(frozen=True, slots=True)
class Anthropic:
    """Events `message_*` and `content_block_*`."""

    name: str = "anthropic"
    ends_marked: bool = True
    heads: tuple[bytes, ...] = (b"event: content_block_delta\n",)
    stops: tuple[bytes, ...] = (b'"message_', b'"error"')

    def look(self, members: Mapping[str, Any]) -> int:
        """Output is a delta with text, thinking or arguments, and a call as soon as it has a name.

        Signatures and citations come beside the output.
        """
        match members.get("type"):
            case "content_block_delta":
                return CONTENT | MORE if _says_something(members.get("delta")) else 0
            case "content_block_start":
                block = members.get("content_block")
                called = isinstance(block, dict) and block.get("type") in _CALLS
                return CONTENT | MORE if called or _says_something(block) else 0
            case "message_stop":
                return END
            case "error":
                return ERROR | END
            case None if members.get("error"):
                return ERROR | END
            case _:
                return 0

    def figures(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """`usage` stands in the message that begins, and at the top of what follows."""
        message = members.get("message")
        return {**members, **message} if isinstance(message, dict) else members

    def error_body(self, error: RequestError, request_id: str | None = None) -> bytes:
        """Anthropic's shape; the kind follows from the status, which is the same in every dialect.

        So an overloaded server answers 503, which every client and proxy knows, and not 529; what
        tells an Anthropic client is `overloaded_error`.
        """
        body: dict[str, object] = {
            "type": "error",
            "error": {"type": error_type(error.http_status), "message": error.message},
        }
        if request_id is not None:
            body["request_id"] = request_id
        return orjson.dumps(body)

    def error_ending(
        self, error: RequestError, *, request_id: str | None = None, sequence: int = 0
    ) -> bytes:
        """The event `error`, after which no `message_stop` comes."""
        del sequence
        return event(self.error_body(error, request_id), b"error")


def _says_something(part: object) -> bool:
    return isinstance(part, dict) and any(part.get(key) for key in _OUTPUT)
