"""OpenAI's older dialects: chat, completions, and what engines built in their likeness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.endpoints.dialect import CONTENT, DONE, END, ERROR, MORE, event
from router.errors import RequestError

_DELTA_CONTENT = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function_call",
    "refusal",
)


@dataclass(frozen=True, slots=True)
class OpenAI:
    """Chat and completions: chunks with `choices`, then `[DONE]`."""

    name: str = "openai"
    ends_marked: bool = True
    heads: tuple[bytes, ...] = (b"data:",)
    stops: tuple[bytes, ...] = (b'"error"', b'"choices":[]')

    def look(self, members: Mapping[str, Any]) -> int:
        """Output is text, reasoning, a refusal or a call in any choice."""
        choices = members.get("choices")
        if choices is None:
            return ERROR if members.get("error") or members.get("object") == "error" else MORE
        if not isinstance(choices, list) or not choices:
            return 0
        return CONTENT | MORE if any(map(_has_content, choices)) else MORE

    def figures(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """They stand at the top."""
        return members

    def error_body(self, error: RequestError, request_id: str | None = None) -> bytes:
        """OpenAI's shape has no place for the request's name."""
        del request_id
        return error.body()

    def error_ending(
        self, error: RequestError, *, request_id: str | None = None, sequence: int = 0
    ) -> bytes:
        """An error, which clients raise, and the end mark for those that wait for it."""
        del request_id, sequence
        return event(error.body()) + event(DONE)[2:]


@dataclass(frozen=True, slots=True)
class Llama(OpenAI):
    """llama.cpp's own `/completion` and `/infill`: the last event says `"stop":true`."""

    name: str = "llamacpp"
    stops: tuple[bytes, ...] = (b'"error"', b'"stop":true', b'"stop_type"')

    def look(self, members: Mapping[str, Any]) -> int:
        """Output is text."""
        if members.get("error"):
            return ERROR
        found = CONTENT | MORE if members.get("content") else MORE
        return found | END if members.get("stop") is True else found


@dataclass(frozen=True, slots=True)
class Other(OpenAI):
    """Answers of which nothing is read; errors of ours have OpenAI's shape."""

    name: str = "other"
    ends_marked: bool = False

    def look(self, members: Mapping[str, Any]) -> int:
        """Nothing is known about the events."""
        del members
        return 0


def _has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(key) for key in _DELTA_CONTENT)
    return bool(choice.get("text"))
