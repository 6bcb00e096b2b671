"""The seam to dialects: how events, figures and errors are written in each API.

A dialect is pure: no I/O, no clock, nothing kept between calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from router.errors import RequestError

CONTENT = 1
"""The event carries output of the model."""
MORE = 2
"""The event belongs to the output, though it may carry none: it counts once output has begun."""
END = 4
"""The answer is complete with this event."""
ERROR = 8
"""The event says that the answer failed."""

DONE = b"[DONE]"
"""Data of the event that ends a stream in OpenAI's older dialects; an end in every dialect."""


class Dialect(Protocol):
    """One API's way to write streams and errors."""

    @property
    def name(self) -> str:
        """Name for documents and logs."""

    @property
    def ends_marked(self) -> bool:
        """Whether a stream that ends without an end mark was cut."""

    @property
    def heads(self) -> tuple[bytes, ...]:
        """What an ordinary event with output begins with, up to a LF or a colon."""

    @property
    def stops(self) -> tuple[bytes, ...]:
        """An event that is more than ordinary output holds one of these members, or `[DONE]`.

        Each begins with the quote of its name.
        """

    def look(self, members: Mapping[str, Any]) -> int:
        """What an event is, by its data's members: `CONTENT`, `MORE`, `END`, `ERROR` added up."""

    def figures(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """Members with figures, of an event or of a whole answer, under their plain names."""

    def error_body(self, error: RequestError, request_id: str | None = None) -> bytes:
        """Body of an error of ours."""

    def error_ending(
        self, error: RequestError, *, request_id: str | None = None, sequence: int = 0
    ) -> bytes:
        """Ends a stream that has begun, so that nobody takes it for a whole one.

        Args:
            error: What happened.
            request_id: Name of the request, where the dialect has a place for it.
            sequence: Number of the event, where the dialect numbers them.
        """


def json_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that a text is; None for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def event(data: bytes, name: bytes | None = None) -> bytes:
    r"""The text of an event.

    A blank line stands before it, which ends an event that may have been cut in the middle.

    >>> event(b"{}", b"error")
    b'\n\nevent: error\ndata: {}\n\n'
    """
    named = b"" if name is None else b"event: " + name + b"\n"
    return b"\n\n" + named + b"data: " + data + b"\n\n"
