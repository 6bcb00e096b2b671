"""How events and JSON are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from router.simfleet.answer import Answer, Choice, Piece

DONE = b"data: [DONE]\n\n"

Object = dict[str, Any]


class Mouth(Protocol):
    """One engine's way of telling an answer."""

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """What a step adds to a stream, as the HTTP chunks it comes in.

        The piece has been added to its choice. With the last piece of the last choice comes the
        end of the stream.
        """

    def whole(self, answer: Answer) -> bytes:
        """The answer that is not streamed."""


def dump(item: Mapping[str, Any]) -> bytes:
    """JSON as engines write it: no spaces, text as UTF-8."""
    return orjson.dumps(item)


def event(item: Mapping[str, Any]) -> bytes:
    """An event that is only data."""
    return b"data: " + orjson.dumps(item) + b"\n\n"


def named(name: str, item: Mapping[str, Any]) -> bytes:
    """An event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(item) + b"\n\n"
