"""OpenAI's Responses: named and numbered events around one response object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from router.endpoints.dialect import CONTENT, END, ERROR, MORE, event
from router.errors import RequestError

_ENDS = {"response.completed": END, "response.incomplete": END, "response.failed": END | ERROR}
_CALLS = ("function_call", "custom_tool_call")  # no set: the value may be anything
_DELTAS = (
    "output_text",
    "reasoning_text",
    "reasoning_summary_text",
    "function_call_arguments",
    "custom_tool_call_input",
    "refusal",
)


@dataclass(frozen=True, slots=True)
class Responses:
    """Events `response.*`; the last one is `completed`, `incomplete` or `failed`."""

    name: str = "responses"
    ends_marked: bool = True
    heads: tuple[bytes, ...] = tuple(
        b"event: response." + kind.encode() + b".delta\n" for kind in _DELTAS
    )
    # Only the events that begin, end or fail hold the response itself.
    stops: tuple[bytes, ...] = (b'"response"', b'"error"')

    def look(self, members: Mapping[str, Any]) -> int:
        """Output is any delta that is not empty, and a call as soon as it has a name."""
        kind = members.get("type")
        if not isinstance(kind, str):
            return ERROR | END if members.get("error") else 0
        if kind.endswith(".delta"):
            return CONTENT | MORE if members.get("delta") else 0
        if kind == "response.output_item.added":
            item = members.get("item")
            called = isinstance(item, dict) and item.get("type") in _CALLS
            return CONTENT | MORE if called else 0
        if kind == "error":
            return ERROR | END
        return _ENDS.get(kind, 0)

    def figures(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the response, and those that llama.cpp writes beside it."""
        response = members.get("response")
        return {**members, **response} if isinstance(response, dict) else members

    def error_body(self, error: RequestError, request_id: str | None = None) -> bytes:
        """The same as in OpenAI's older dialects."""
        del request_id
        return error.body()

    def error_ending(
        self, error: RequestError, *, request_id: str | None = None, sequence: int = 0
    ) -> bytes:
        """The event `error`, flat as it is documented, and with the member that clients raise."""
        del request_id
        said = {"message": error.message, "code": error.code, "param": error.param}
        data = {
            "type": "error",
            **said,
            "sequence_number": sequence,
            "error": {**said, "type": error.error_type},
        }
        return event(orjson.dumps(data), b"error")
