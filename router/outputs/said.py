"""What an answer says: its text, its calls and why it ended, in whichever dialect it is written.

Pure. What is said is text: whoever holds it compares or judges it, and lets it go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from policies.values import value
from router.endpoints.dialect import Dialect

MOST_SAID = 64 * 1024
"""Characters of an answer that are kept; what a longer one says is unknown."""

_CALL_COSTS = 64
"""Characters that a call counts for by itself, so that empty ones find an end too."""

CUT = frozenset(
    (
        *("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"),
        "limit",  # llama.cpp's own
    )
)
"""Words for an end at the limit of length."""

NATURAL = frozenset(
    (
        *("stop", "tool_calls", "function_call"),
        *("end_turn", "tool_use", "stop_sequence"),
        *("completed", "eos", "word"),
    )
)
"""Words for the end of an answer that has said all it wanted to."""


@value
class Call:
    """A call of a tool."""

    name: str
    arguments: str | None
    """As it was written; None where a tool takes free text."""


@value
class Said:
    """What one answer says."""

    text: str = ""
    """Without what was thought."""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    """Why it ended, in its engine's word."""

    @property
    def truncated(self) -> bool | None:
        """Whether it was cut at the limit of length; None if nobody told how it ended."""
        return None if self.finish is None else self.finish in CUT


@dataclass(slots=True)
class _Calling:
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    given: object = None
    """Arguments that came as a value, where no pieces follow."""
    free: bool = False

    def call(self) -> Call:
        if self.free:
            return Call(self.name, None)
        given = {} if self.given is None and not self.pieces else self.given
        written = "" if given is None else orjson.dumps(given).decode()
        return Call(self.name, "".join(self.pieces) or written)


class Words:
    """Gathers what an answer says, event by event or all at once, up to a limit."""

    def __init__(self, most: int = MOST_SAID) -> None:
        self._left = most
        self._text: list[str] = []
        self._calls: dict[object, _Calling] = {}
        self.finish: str | None = None

    @property
    def beyond(self) -> bool:
        """Whether the answer says more than is kept; then nothing of it is."""
        return self._left < 0

    def said(self) -> Said | None:
        """All of it; None where that is more than is kept."""
        if self.beyond:
            return None
        calls = tuple(calling.call() for calling in self._calls.values())
        return Said("".join(self._text), calls, self.finish)

    def add(self, text: object) -> None:
        """Takes a piece of text; anything else says nothing."""
        if isinstance(text, str) and text and self._room(len(text)):
            self._text.append(text)

    def end(self, finish: object) -> None:
        """Takes why the answer ended."""
        if isinstance(finish, str) and finish:
            self.finish = finish

    def call(
        self, key: object, *, name: object = None, given: object = None, free: bool = False
    ) -> None:
        """Takes that a tool is called, or is called still.

        Args:
            key: Which call of the answer it is.
            name: Of the tool, where it is told.
            given: Its arguments as a value, where they come so.
            free: Its argument is free text.
        """
        calling = self._calls.get(key)
        if calling is None:
            if not self._room(_CALL_COSTS):
                return
            calling = self._calls[key] = _Calling()
        if isinstance(name, str) and name and not calling.name and self._room(len(name)):
            calling.name = name
        calling.free = calling.free or free
        if given is not None:
            calling.given = given

    def arguments(self, key: object, piece: object) -> None:
        """Takes a piece of a call's arguments."""
        self.call(key)
        calling = self._calls.get(key)
        if calling is not None and isinstance(piece, str) and piece and self._room(len(piece)):
            calling.pieces.append(piece)

    def last_call(self) -> object:
        """The call that came last; 0 before any."""
        return next(reversed(self._calls), 0)

    def _room(self, characters: int) -> bool:
        self._left -= characters
        if self._left < 0:
            self._text, self._calls = [], {}
        return self._left >= 0


def _openai(words: Words, members: Mapping[str, Any]) -> None:
    """Chat and completions: the first choice of an event or of a whole answer."""
    for choice in _objects(members.get("choices")):
        if choice.get("index") not in (None, 0):
            continue
        words.end(choice.get("finish_reason"))
        words.add(choice.get("text"))
        part = choice.get("delta", choice.get("message"))
        if not isinstance(part, Mapping):
            continue
        words.add(part.get("content"))
        for call in _objects(part.get("tool_calls")):
            _openai_call(words, call)
        function = part.get("function_call")
        if isinstance(function, Mapping):
            _function(words, 0, function)


def _openai_call(words: Words, call: Mapping[str, Any]) -> None:
    key = call.get("index", call.get("id"))
    if not isinstance(key, (int, str)):
        key = words.last_call()
    custom, function = call.get("custom"), call.get("function")
    if isinstance(custom, Mapping):
        words.call(key, name=custom.get("name"), free=True)
    elif isinstance(function, Mapping):
        _function(words, key, function)


def _function(words: Words, key: object, function: Mapping[str, Any]) -> None:
    arguments = function.get("arguments")
    given = arguments if isinstance(arguments, Mapping) else None
    words.call(key, name=function.get("name"), given=given)
    if isinstance(arguments, str):
        words.arguments(key, arguments)


def _llama(words: Words, members: Mapping[str, Any]) -> None:
    """llama.cpp's own endpoints."""
    words.add(members.get("content"))
    words.end(members.get("stop_type"))


def _anthropic(words: Words, members: Mapping[str, Any]) -> None:
    """Messages: blocks that begin and go on, or all of them at once."""
    match members.get("type"):
        case "content_block_start":
            _block(words, members.get("index"), members.get("content_block"))
        case "content_block_delta":
            delta = members.get("delta")
            if isinstance(delta, Mapping):
                words.add(delta.get("text"))
                if "partial_json" in delta:
                    words.arguments(_key(members.get("index")), delta["partial_json"])
        case "message_delta":
            delta = members.get("delta")
            words.end(delta.get("stop_reason") if isinstance(delta, Mapping) else None)
        case "message":
            for index, block in enumerate(_objects(members.get("content"))):
                _block(words, index, block)
            words.end(members.get("stop_reason"))
        case _:
            pass


def _block(words: Words, index: object, block: object) -> None:
    if not isinstance(block, Mapping):
        return
    words.add(block.get("text"))
    if block.get("type") == "tool_use":
        words.call(_key(index), name=block.get("name"), given=block.get("input"))


def _responses(words: Words, members: Mapping[str, Any]) -> None:
    """Responses: the event that ends a stream holds the whole answer."""
    if members.get("object") == "response":
        response: object = members
    elif members.get("type") in ("response.completed", "response.incomplete"):
        response = members.get("response")
    else:
        return
    if not isinstance(response, Mapping):
        return
    for index, item in enumerate(_objects(response.get("output"))):
        match item.get("type"):
            case "message":
                for part in _objects(item.get("content")):
                    words.add(part.get("text"))
            case "function_call":
                words.call(index, name=item.get("name"))
                words.arguments(index, item.get("arguments"))
            case "custom_tool_call":
                words.call(index, name=item.get("name"), free=True)
            case _:
                pass
    details = response.get("incomplete_details")
    why = details.get("reason") if isinstance(details, Mapping) else None
    words.end(why or response.get("status"))


_READERS: Mapping[str, Callable[[Words, Mapping[str, Any]], None]] = {
    "openai": _openai,
    "llamacpp": _llama,
    "anthropic": _anthropic,
    "responses": _responses,
}


def hear(dialect: Dialect, words: Words, members: Mapping[str, Any]) -> None:
    """Takes what an event says, or a whole answer.

    Args:
        dialect: It is written in; of an unknown one nothing is understood.
        words: Takes it.
        members: Of the event's data, or of the body.
    """
    read = _READERS.get(dialect.name)
    if read is not None and not words.beyond:
        read(words, members)


def said_by(dialect: Dialect, answer: Mapping[str, Any], most: int = MOST_SAID) -> Said | None:
    """What a whole answer says; None where that is more than is kept.

    >>> from router.endpoints.table import OPENAI
    >>> said_by(OPENAI, {"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]})
    Said(text='{}', calls=(), finish='stop')
    """
    words = Words(most)
    hear(dialect, words, answer)
    return words.said()


def _objects(values: object) -> list[Mapping[str, Any]]:
    return (
        [item for item in values if isinstance(item, Mapping)] if isinstance(values, list) else []
    )


def _key(index: object) -> object:
    return index if isinstance(index, int) else 0
