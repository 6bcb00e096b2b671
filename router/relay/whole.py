"""Answers that are no streams: forwarded as they come, or held where a member has to be cut out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.endpoints.dialect import json_object
from router.engines.rule import StreamCount
from router.engines.splice import cut_member
from router.errors import RequestError

MAX_WHOLE_BYTES = 4 * 1024 * 1024
"""A whole answer beyond this size is forwarded without being read."""

_BLANKS = b" \t\r\n"


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
    def seen_tokens(self) -> int:
        """Nothing shows before the end."""
        return 0

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

    def counted(self) -> StreamCount | None:
        """These are not events."""
        return None

    def ending(self, error: RequestError, request_id: str | None = None) -> bytes:
        """Nothing can be added."""
        del error, request_id
        return b""


class WholeHarvest:
    """A whole JSON answer: forwarded as it comes, read once at its end."""

    def __init__(self, limit: int = MAX_WHOLE_BYTES) -> None:
        self.first_content_s: float | None = None
        self.last_content_s: float | None = None
        self.broken = False
        self.complete = False
        self._parts: list[bytes] | None = []
        self._left = limit
        self._read: Mapping[str, Any] | None = None

    @property
    def seen_tokens(self) -> int:
        """Nothing shows before the end."""
        return 0

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
        """Nothing was held back; a body that is no JSON object is no answer, perhaps cut."""
        self.complete = True
        if self._parts:
            self._read = json_object(b"".join(self._parts))
            self.broken = self._read is None
        return b""

    def answer(self) -> Mapping[str, Any] | None:
        """The body's top-level object."""
        return self._read

    def counted(self) -> StreamCount | None:
        """These are not events."""
        return None

    def ending(self, error: RequestError, request_id: str | None = None) -> bytes:
        """Nothing can be added."""
        del error, request_id
        return b""


class HeldHarvest(WholeHarvest):
    """A whole JSON answer out of which a member has to go: held until its end.

    One beyond the limit is forwarded as it is, unread.
    """

    def __init__(self, record: bytes, limit: int = MAX_WHOLE_BYTES) -> None:
        """Args: `record` names the member."""
        super().__init__(limit)
        self._record = record
        self._members: Mapping[str, Any] | None = None
        self.changed = False
        """Whether it was there, so that the body has become a shorter one."""

    def hold(self, data: bytes) -> bytes:
        """Takes bytes of the body; returns nothing until the limit is passed, then all there is.

        After that they go the way of all bodies, by `feed`.
        """
        held = self._parts or ()
        super().feed(data, 0.0)
        return b"" if self._parts is not None else b"".join((*held, data))

    def finish(self) -> bytes:
        """The body without the member.

        One that is no JSON object is broken. It may have been cut where it is empty or begins as
        one; what begins in another way came as it was meant, and is passed on.
        """
        if self._parts is None:
            self.complete = True
            return b""
        body = b"".join(self._parts)
        self._members = json_object(body)
        self.broken = self._members is None
        self.complete = not (self.broken and (body.lstrip(_BLANKS) or b"{").startswith(b"{"))
        self._parts = []
        if not holds_record_alone(self._members, self._record):
            return body
        shown = cut_member(body, self._record.decode())
        self.changed = shown != body
        return shown

    def answer(self) -> Mapping[str, Any] | None:
        """The body's top-level object, the member included."""
        return self._members


def holds_record_alone(members: Mapping[str, Any] | None, record: bytes) -> bool:
    """Whether a member is there that holds one thing: the one for which only we have asked."""
    held = None if members is None else members.get(record.decode())
    return isinstance(held, dict) and len(held) == 1
