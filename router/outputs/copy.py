"""Keeps what a stream says while it passes, to be looked at once it is over.

Bytes are only put aside; events are taken apart a slice at a time, after they have been passed on.
"""

from __future__ import annotations

from router.endpoints.dialect import DONE, Dialect, json_object
from router.outputs.said import MOST_SAID, Said, Words, hear
from router.relay.sse import EventSplitter, EventTooLargeError, event_data

_SLICE = 8 * 1024
"""Bytes of events that are taken apart at a time: some 30 events, a fifth of a millisecond."""

_LONGEST_EVENT = 512 * 1024
"""The event that ends a stream of Responses holds the whole answer, and the request's tools."""


class StreamCopy:
    """Of one stream."""

    __slots__ = ("_dialect", "_lost", "_pieces", "_size", "_splitter", "_words")

    def __init__(self, dialect: Dialect, most: int = MOST_SAID) -> None:
        """Args: `most` is how many characters of what is said are kept."""
        self._dialect = dialect
        self._words = Words(most)
        self._splitter = EventSplitter(_LONGEST_EVENT)
        self._pieces: list[bytes] = []
        self._size = 0
        self._lost = False

    def take(self, piece: bytes) -> None:
        """Takes bytes that have been passed on; never raises."""
        if self._lost:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _SLICE:
            self._read()

    def said(self) -> Said | None:
        """What the stream has said; None where it is not known. Called at its end."""
        if not self._lost:
            self._pieces.append(b"\n\n")  # the last event may lack its blank line
            self._read()
        return None if self._lost else self._words.said()

    def _read(self) -> None:
        data, self._pieces, self._size = b"".join(self._pieces), [], 0
        try:
            events = self._splitter.feed(data)
        except EventTooLargeError:
            self._lose()
            return
        for event in events:
            found = event_data(event)
            if found and found != DONE:
                hear(self._dialect, self._words, json_object(found) or {})
        if self._words.beyond:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._words, self._splitter = Words(), EventSplitter()
