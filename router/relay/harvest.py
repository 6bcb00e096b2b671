"""Reads figures out of an answer while its bytes pass, and takes out what only we asked for.

No I/O and no clock: bytes and times come in, bytes to forward go out. What cannot be read is
forwarded all the same and shows as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from router.relay.sse import EventSplitter, EventTooLargeError, event_data

MAX_WHOLE_BYTES = 4 * 1024 * 1024
"""A whole answer beyond this size is forwarded without being read."""

_MAX_MARKED_EVENTS = 4
_DONE = b"[DONE]"
_NULL_USAGE = b',"usage":null'
_DELTA_CONTENT = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function_call",
    "refusal",
)


class Harvest(Protocol):
    """Watches one answer."""

    first_content_s: float | None
    """When the first bytes with model output came."""
    last_content_s: float | None
    """When the last ones came."""
    broken: bool
    """The answer itself says that it failed, or ended before its end mark."""
    complete: bool
    """All that matters has come, even if the connection has not been closed yet."""

    @property
    def may_add(self) -> bool:
        """Whether an event of ours could follow what the client has now, and be read as one."""

    def feed(self, data: bytes, now: float) -> bytes:
        """Takes bytes from the engine; returns the bytes for the client."""

    def finish(self) -> bytes:
        """The engine's answer ended; returns bytes for the client that were still held back."""

    def answer(self) -> Mapping[str, Any] | None:
        """Members with figures; None if the answer could not be read."""


class PassThrough:
    """Forwards what cannot be read: compressed content, or what no engine says.

    A page in HTML that comes with status 200 is no answer, whoever sent it.
    """

    def __init__(self, *, foreign: bool = False) -> None:
        self.first_content_s: float | None = None
        self.last_content_s: float | None = None
        self.broken = foreign
        self.complete = False

    @property
    def may_add(self) -> bool:
        """Never: these are not events."""
        return False

    def feed(self, data: bytes, now: float) -> bytes:
        """The same bytes."""
        del now
        return data

    def finish(self) -> bytes:
        """Nothing was held back."""
        self.complete = True
        return b""

    def answer(self) -> Mapping[str, Any] | None:
        """Nothing is known."""
        return None


class WholeHarvest:
    """A whole JSON answer: forwarded as it comes, read once at its end."""

    def __init__(self, limit: int = MAX_WHOLE_BYTES) -> None:
        self.first_content_s: float | None = None
        self.last_content_s: float | None = None
        self.broken = False
        self.complete = False
        self._parts: list[bytes] | None = []
        self._left = limit

    @property
    def may_add(self) -> bool:
        """Never: these are not events."""
        return False

    def feed(self, data: bytes, now: float) -> bytes:
        """The same bytes; a copy is kept up to the limit."""
        del now  # an answer that comes whole shows neither TTFT nor TPOT
        if self._parts is not None:
            self._left -= len(data)
            if self._left < 0:
                self._parts = None
            else:
                self._parts.append(data)
        return data

    def finish(self) -> bytes:
        """Nothing was held back."""
        self.complete = True
        return b""

    def answer(self) -> Mapping[str, Any] | None:
        """The body's top-level object."""
        return _json_object(b"".join(self._parts)) if self._parts else None


class StreamHarvest:
    """A stream of events: times of content, marked events kept for reading, usage taken out."""

    def __init__(self, markers: Sequence[bytes], *, strip_usage: bool) -> None:
        self.first_content_s: float | None = None
        self.last_content_s: float | None = None
        self.broken = False
        self.complete = False
        self._markers = tuple(markers)
        self._whole_events = strip_usage
        self._strip = strip_usage
        self._splitter: EventSplitter | None = EventSplitter()
        self._marked: list[bytes] = []
        self._stripped_previous = False

    @property
    def may_add(self) -> bool:
        """Between events; where whole events are forwarded, always."""
        return self._splitter is not None and (self._whole_events or self._splitter.between_events)

    def feed(self, data: bytes, now: float) -> bytes:
        """Takes bytes of the stream.

        Nothing is delayed, with one exception: while an event has to be taken out, the bytes of
        an unfinished event wait until it is complete.
        """
        if self._splitter is None:
            return data
        try:
            events = self._splitter.feed(data)
        except EventTooLargeError:
            rest, self._splitter = self._splitter.rest(), None
            return rest if self._whole_events else data
        if not self._whole_events:
            for event in events:
                self._observe(event, now)
            return data
        return b"".join([self._forward(event, now) for event in events])

    def finish(self) -> bytes:
        """Ends the stream; one that never said `[DONE]` is broken."""
        rest = self._splitter.rest() if self._splitter else b""
        self.complete = self.complete or event_data(rest) == _DONE  # without its blank line
        self.broken = self.broken or (not self.complete and self._splitter is not None)
        return rest if self._whole_events else b""

    def answer(self) -> Mapping[str, Any] | None:
        """Members of the marked events, later ones over earlier ones; nulls say nothing."""
        merged: dict[str, Any] = {}
        for data in self._marked:
            members = (_json_object(data) or {}).items()
            merged.update((key, value) for key, value in members if value is not None)
        return merged or None

    def _observe(self, event: bytes, now: float) -> bytes:
        data = event_data(event)
        if not data:
            return data
        if data == _DONE:
            self.complete = True
            return data
        if self.first_content_s is None:
            self._look_for_content(data, now)
        elif b'"choices":[]' not in data:
            self.last_content_s = now
        if any(marker in data for marker in self._markers):
            self._marked = [*self._marked[1 - _MAX_MARKED_EVENTS :], data]
        if b'"error"' in data and b'"choices"' not in data:
            members = _json_object(data) or {}
            self.broken |= bool(members.get("error")) or members.get("object") == "error"
        return data

    def _look_for_content(self, data: bytes, now: float) -> None:
        choices = (_json_object(data) or {}).get("choices")
        if isinstance(choices, list) and any(_has_content(choice) for choice in choices):
            self.first_content_s = self.last_content_s = now

    def _forward(self, event: bytes, now: float) -> bytes:
        if event == b"\n":  # the second half of the previous event's terminator
            return b"" if self._stripped_previous else event
        self._stripped_previous = False
        data = self._observe(event, now)
        if not self._strip or b'"usage":' not in data:
            return event
        chunk = _json_object(data) or {}
        if chunk.get("usage") is not None:
            if chunk.get("choices"):
                # Usage beside content was not asked for by us: the server sends it to everyone,
                # so the last one belongs to the client too.
                self._strip = False
            else:
                self._stripped_previous = True
                return b""
        elif event.count(_NULL_USAGE) == 1 and "usage" in chunk:
            # Some servers announce a usage event by a null in every other one.
            return event.replace(_NULL_USAGE, b"")
        return event


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(key) for key in _DELTA_CONTENT)
    return bool(choice.get("text"))
