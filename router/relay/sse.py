"""Cuts a byte stream into server-sent events. No I/O, and no byte is ever changed.

The grammar is that of the HTML standard, section 9.2.6: lines end in LF, CR or CRLF, an empty
line ends an event. Any split of the bytes over calls gives the same events.
"""

from __future__ import annotations

import re

_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """One event grew beyond the limit without ending."""


class EventSplitter:
    r"""Incremental splitter; concatenating all it returns gives back what was fed.

    >>> splitter = EventSplitter()
    >>> splitter.feed(b"data: 1\n\nda")
    [b'data: 1\n\n']
    >>> splitter.feed(b"ta: 2\r\n\r"), splitter.feed(b"\ndata: 3")
    ([b'data: 2\r\n\r'], [b'\n'])
    >>> splitter.rest()
    b'data: 3'
    """

    def __init__(self, limit: int = 8 * 1024 * 1024) -> None:
        self._limit = limit
        self._pending = b""
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        r"""Takes the next bytes; returns the events that they complete, terminators included.

        A LF that belongs to the CR which ended the previous event comes as a piece of its own.

        Raises:
            EventTooLargeError: The pending event exceeds the limit; what was fed is kept and can
                be had from `rest`.
        """
        events: list[bytes] = []
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                events.append(b"\n")
                data = data[1:]
        # A terminator has up to four bytes, so one may have begun in the last three.
        scanned = max(0, len(self._pending) - 3)
        buffer = self._pending + data if self._pending else data
        start = 0
        if b"\r" not in buffer:
            end = buffer.find(b"\n\n", scanned)
            while end >= 0:
                events.append(buffer[start : end + 2])
                start = end + 2
                end = buffer.find(b"\n\n", start)
        else:
            start = self._cut_any(buffer, scanned, events)
        self._pending = buffer[start:] if start else buffer
        if len(self._pending) > self._limit:
            self._pending = b"".join(events) + self._pending
            raise EventTooLargeError
        return events

    def _cut_any(self, buffer: bytes, scanned: int, events: list[bytes]) -> int:
        start = 0
        for match in _EVENT_END.finditer(buffer, scanned):
            # At the very end a CR may turn out to be half of a CRLF. As the first half of the
            # terminator it decides nothing yet; as the second half the event is complete.
            events.append(buffer[start : match.end()])
            start = match.end()
            self._after_cr = start == len(buffer) and buffer.endswith(b"\r")
        return start

    @property
    def between_events(self) -> bool:
        """Whether the last event is complete and no other has begun."""
        return not self._pending

    def rest(self) -> bytes:
        """What is left when the stream has ended; empty after a complete event."""
        rest, self._pending = self._pending, b""
        return rest


def event_end(block: bytes, at: int) -> int:
    r"""Where the event ends that begins at a place, in events without any CR.

    >>> event_end(b"data: 1\n\ndata: 2\n\n", 0), event_end(b"data: 1\n\n: rest", 9)
    (9, 15)
    """
    blank = block.find(b"\n\n", at)
    return len(block) if blank < 0 else blank + 2


def event_data(event: bytes) -> bytes:
    r"""The event's data: the values of its `data` fields, joined by LF; empty if it has none.

    >>> event_data(b": ping\ndata: a\ndata:b\n\n")
    b'a\nb'
    """
    if event.startswith(b"data: ") and event.endswith(b"\n\n"):
        data = event[6:-2]
        if b"\n" not in data and b"\r" not in data:
            return data
    lines = []
    for line in _LINE_END.split(event.removeprefix(_BOM)):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines)
