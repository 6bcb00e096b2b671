"""Reads figures out of an answer while its bytes pass, and takes out what only we asked for.

No I/O and no clock: bytes and times come in, bytes to forward go out. What cannot be read is
forwarded all the same and shows as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from router.endpoints.dialect import CONTENT, DONE, END, ERROR, MORE, Dialect, json_object
from router.endpoints.table import OPENAI
from router.engines.base import NOTHING_ASKED, Ask
from router.engines.rule import StepRule, StreamCount
from router.engines.splice import cut_member
from router.errors import RequestError
from router.relay.sse import EventSplitter, EventTooLargeError, event_data, event_end
from router.relay.tally import STOP, TOLD, Tally
from router.relay.whole import HeldHarvest, PassThrough, WholeHarvest, holds_record_alone

_MAX_MARKED_EVENTS = 4
_LONGEST_EVENT = 8 * 1024 * 1024
_EVENT_STREAM = "text/event-stream"
_USAGE = b'"usage"'
_NULL_USAGE = b',"usage":null'
_SPACED_NULL_USAGE = b', "usage": null'
_LAST_NULL_USAGE = b',"usage":null}\n\n'
_NOTHING = b"\xff"  # stands at neither end of any text
_MOST_LESSONS = 16
_BYTES_PER_TOKEN = 5
"""Of text in a stream. Judgement: English has four to five letters to a token, and others fewer."""
_TEXT = re.compile(
    rb'("(?:content|text|reasoning_content|reasoning|thinking|partial_json|arguments|delta)":")'
    rb'[^"\\]*+(?:\\.[^"\\]*+)*+"'
)
"""A string that holds output. Inside a string its quotes would be escaped, so it is a member."""
_SEQUENCE_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')


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
    def seen_tokens(self) -> int:
        """Tokens of the answer that have passed at least; 0 where that cannot be seen."""

    @property
    def may_add(self) -> bool:
        """Whether an event of ours could follow what the client has now, and be read as one."""

    def feed(self, data: bytes, now: float) -> bytes:
        """Takes bytes from the engine; returns the bytes for the client."""

    def finish(self) -> bytes:
        """The engine's answer ended; returns bytes for the client that were still held back."""

    def answer(self) -> Mapping[str, Any] | None:
        """Members with figures; None if the answer could not be read."""

    def counted(self) -> StreamCount | None:
        """What its events show of the engine's steps; None where they were not counted."""

    def ending(self, error: RequestError, request_id: str | None = None) -> bytes:
        """What ends an answer that cannot go on, where `may_add`."""


class StreamHarvest:
    """A stream of events: times of content, marked events kept for reading, ours taken out.

    Nearly every piece of a stream is one whole event with some output, so that case is decided by
    a few byte searches. Anything else is taken apart event by event.
    """

    def __init__(
        self,
        markers: Sequence[bytes],
        *,
        strip_usage: bool,
        strip_record: bytes | None = None,
        strip_nulls: bool = True,
        dialect: Dialect = OPENAI,
        rule: StepRule | None = None,
    ) -> None:
        """Args: see `harvest_for`."""
        self.first_content_s: float | None = None
        self.last_content_s: float | None = None
        self.broken = False
        self.complete = False
        self._dialect = dialect
        self._marks = _stop_pattern(tuple(markers)) if markers else None
        self._heads = dialect.heads
        self._tally = None if rule is None else Tally()
        self._wary = rule is not None and rule.skips_empty
        """Whether it matters that text lies beyond ASCII, and none has yet."""
        self._events = self._text_bytes = 0
        more: tuple[bytes, ...] = (_USAGE,) if strip_usage and strip_nulls else ()
        if rule is not None and STOP not in markers:
            more = (*more, STOP)
        self._stops: tuple[bytes, ...] = (*dialect.stops, *markers, *more)
        self._stop = _stop_pattern(self._stops)
        self._whole_events = strip_usage or strip_record is not None
        self._strip = strip_usage
        self._strip_nulls = strip_usage and strip_nulls
        self._record = strip_record
        self._unread = False
        self._ordinary = False
        """Output has begun and no event is unfinished."""
        self._before = self._after = _NOTHING
        """What stood around the text of the last ordinary event."""
        self._text_at, self._text_end = len(_NOTHING), -len(_NOTHING)
        self._lessons = _MOST_LESSONS
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._splitter: EventSplitter | None = None
        """Takes over at the first CR."""
        self._marked: list[bytes] = []
        self._stripped_previous = False
        self._latest = b""

    @property
    def seen_tokens(self) -> int:
        """An event with output has one at least; one of a speculating engine has several."""
        return max(self._events, self._text_bytes // _BYTES_PER_TOKEN)

    @property
    def may_add(self) -> bool:
        """Between events; where whole events are forwarded, always."""
        if self._unread:
            return False
        if self._whole_events:
            return True
        return self._splitter.between_events if self._splitter else not self._pending

    def feed(self, data: bytes, now: float) -> bytes:
        """Takes bytes of the stream.

        Nothing is delayed, with one exception: while an event has to be taken out, the bytes of
        an unfinished event wait until it is complete.
        """
        if self._ordinary and data.startswith(self._before) and data.endswith(self._after):
            text = data[self._text_at : self._text_end]
            # With no quote but escaped ones it is one string: the same event with another text.
            if b'"' not in text or (b"\\\\" not in text and text.count(b'"') == text.count(b'\\"')):
                self.last_content_s = now
                self._latest = data
                self._events += 1
                self._text_bytes += len(text)
                if self._wary:
                    self._look_wide(text)
                return data
        if self._unread or not data:
            return data
        if self._ordinary and data.endswith(b"\n\n") and self._is_output(data):
            self.last_content_s = now
            self._count(data)
            self._latest = data
            if self._lessons:
                self._learn(data)
            return data
        return self._feed(data, now)

    def finish(self) -> bytes:
        """Ends the stream; one that never came to its end mark is broken."""
        rest = self._rest()
        data = event_data(rest)  # an end mark may come without its blank line
        if data == DONE or (data and self._dialect.look(json_object(data) or {}) & END):
            self.complete = True
        if self._dialect.ends_marked and not self._unread:
            self.broken = self.broken or not self.complete
        return rest if self._whole_events else b""

    def answer(self) -> Mapping[str, Any] | None:
        """Figures of the marked events, later ones over earlier ones; nulls say nothing."""
        merged: dict[str, Any] = {}
        for data in self._marked:
            _merge(merged, self._dialect.figures(json_object(data) or {}))
        return merged or None

    def counted(self) -> StreamCount | None:
        """What its events show, unless some were passed on unread."""
        if self._tally is None or self._unread:
            return None
        return self._tally.counted(self._events)

    def ending(self, error: RequestError, request_id: str | None = None) -> bytes:
        """An error event of ours, numbered after the last one seen."""
        seen = _SEQUENCE_NUMBER.findall(self._latest)
        sequence = int(seen[-1]) + 1 if seen else 0
        return self._dialect.error_ending(error, request_id=request_id, sequence=sequence)

    def _rest(self) -> bytes:
        if self._splitter:
            return self._splitter.rest()
        rest, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        return rest

    def _feed(self, data: bytes, now: float) -> bytes:
        if self._splitter is None:
            if b"\r" not in data:
                return self._feed_plain(data, now)
            held = self._rest()
            self._splitter = EventSplitter(_LONGEST_EVENT)
            self._ordinary = False
        else:
            held = b""
        try:
            events = self._splitter.feed(held + data)
        except EventTooLargeError:
            return self._give_up(self._splitter.rest(), data)
        if self._whole_events:
            return b"".join([self._forward(event, now) for event in events])
        for event in events:
            self._observe(event, now)
        return data

    def _give_up(self, held: bytes, data: bytes) -> bytes:
        """An event beyond all limits: from here on the stream passes unread."""
        self._unread, self._ordinary = True, False
        self._pending, self._splitter = [], None
        return held if self._whole_events else data

    def _feed_plain(self, data: bytes, now: float) -> bytes:
        """Bytes of a stream in which every line ends in LF, as all engines write them."""
        pending = self._pending
        if pending:
            # The blank line may have begun at the end of what came before.
            joint = pending[-1].endswith(b"\n") and data.startswith(b"\n")
            if not joint and b"\n\n" not in data:
                return self._hold(data)
            data, fed = b"".join((*pending, data)), data
            self._pending, self._pending_bytes = [], 0
        else:
            fed = data
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            return self._hold(data)
        whole, rest = (data, b"") if end == len(data) else (data[:end], data[end:])
        shown = self._block(whole, now)
        self._latest = whole
        self._ordinary = not rest and self.first_content_s is not None
        if rest and len(rest) > _LONGEST_EVENT:
            return self._give_up(shown + rest, fed)
        if rest:
            self._pending, self._pending_bytes = [rest], len(rest)
        return shown if self._whole_events else fed

    def _hold(self, data: bytes) -> bytes:
        self._ordinary = False
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > _LONGEST_EVENT:
            return self._give_up(b"".join(self._pending), data)
        return b"" if self._whole_events else data

    def _block(self, whole: bytes, now: float) -> bytes:
        """Whole events; returns what the client gets of them where that may differ.

        A read may hold all of a short answer, so runs of output in it are passed over as one: only
        what stands before the first content, between runs and at the end is taken apart.
        """
        shown: list[bytes] = []
        at, size = 0, len(whole)
        while at < size:
            end = at if self.first_content_s is None else self._run_end(whole, at)
            if end > at:
                run = whole[at:end]
                self.last_content_s = now
                self._count(run)
                shown.append(run.replace(_LAST_NULL_USAGE, b"}\n\n") if self._strip_nulls else run)
            else:
                end = event_end(whole, at)
                event = whole[at:end]
                shown.append(
                    self._forward(event, now) if self._whole_events else self._observe(event, now)
                )
            at = end
        return b"".join(shown) if self._whole_events else whole

    def _run_end(self, whole: bytes, at: int) -> int:
        """Where the run of events ends that begins at a place and is all output; there if none."""
        if not whole.startswith(self._heads, at):
            return at
        stop, begin = len(whole), at
        while (found := self._stop(whole, begin)) is not None:
            begin = found.end()
            if not (self._strip_nulls and _announces(whole, found.start(), at)):
                stop = found.start()
                break
        done = whole.find(DONE, at, stop)
        if done >= 0:
            stop = done
        if stop == len(whole):
            return stop
        cut = whole.rfind(b"\n\n", at, stop)
        return at if cut < 0 else cut + 2

    def _count(self, whole: bytes) -> None:
        """Counts whole events that are all output, comments between them aside."""
        self._events += whole.count(b"\n\ndata:") + 1
        if self._wary:
            self._look_wide(whole)

    def _look_wide(self, data: bytes) -> None:
        """Looks for text beyond ASCII, written plainly or by its number."""
        if self._tally is not None and not (data.isascii() and b"\\u" not in data):
            self._tally.wide = True
            self._wary = False

    def _see(self, members: Mapping[str, Any], data: bytes) -> None:
        """Counts one event that was taken apart."""
        tally = self._tally
        if tally is None:
            return
        self._events += tally.see(members)
        if self._wary:
            self._look_wide(data)
        if tally.ids and TOLD not in self._stops:
            self._stops = (*self._stops, TOLD)
            self._stop = _stop_pattern(self._stops)

    def _is_output(self, whole: bytes) -> bool:
        """Whether whole events begin with output and hold nothing else that matters."""
        return (
            whole.startswith(self._heads)
            and not self._stop(whole)
            and DONE not in whole
            and b"\r" not in whole
        )

    def _learn(self, whole: bytes) -> None:
        """Keeps what stands around the text of a single event, to know the next ones by."""
        if whole.find(b"\n\n") + 2 != len(whole):
            return
        found = _TEXT.search(whole)
        if found is None:
            return
        if self._tally is not None:
            self._tally.glance(whole)
        self._lessons -= 1
        self._before, self._after = whole[: found.end(1)], whole[found.end() - 1 :]
        self._text_at, self._text_end = len(self._before), -len(self._after)

    def _observe(self, event: bytes, now: float) -> bytes:
        data = event_data(event)
        if not data:
            return data
        if data == DONE:
            self.complete = True
            return data
        members = json_object(data) or {}
        found = self._dialect.look(members)
        self._see(members, data)
        if self._tally is None and found & (CONTENT | MORE):
            self._events += 1
        if self.first_content_s is None:
            if found & CONTENT:
                self.first_content_s = self.last_content_s = now
        elif found & MORE:
            self.last_content_s = now
        if found & END:
            self.complete = True
        if found & ERROR:
            self.broken = True
        if self._marks is not None and self._marks(data):
            self._marked = [*self._marked[1 - _MAX_MARKED_EVENTS :], data]
        return data

    def _forward(self, event: bytes, now: float) -> bytes:
        if event == b"\n" and self._splitter:  # the second half of the last event's terminator
            return b"" if self._stripped_previous else event
        self._stripped_previous = False
        data = self._observe(event, now)
        if self._record is not None and self._record in data:
            event = self._without_record(event, data)
            if self._stripped_previous:
                return event
        if not self._strip or b'"usage":' not in data:
            return event
        chunk = json_object(data) or {}
        if chunk.get("usage") is not None:
            if chunk.get("choices"):
                # Usage beside content was not asked for by us: the server sends it to everyone,
                # so the last one belongs to the client too.
                self._strip = self._strip_nulls = False
            else:
                self._stripped_previous = True
                return _blank_start(event)
        elif self._strip_nulls and "usage" in chunk:
            # Some servers announce a usage event by a null in every other one.
            for null in (_NULL_USAGE, _SPACED_NULL_USAGE):
                if event.count(null) == 1:
                    return event.replace(null, b"")
        return event

    def _without_record(self, event: bytes, data: bytes) -> bytes:
        """The event without the record that only we have asked for, or nothing of it.

        It comes in an event of its own. Should it ever stand beside other figures, those stay.
        """
        members = json_object(data)
        record = self._record or b""
        if not holds_record_alone(members, record) or members is None:
            return event
        if not members.get("choices") and members.get("usage") is None:
            self._stripped_previous = True
            return _blank_start(event)
        return event.replace(data, cut_member(data, record.decode()))


def _merge(merged: dict[str, Any], figures: Mapping[str, Any]) -> None:
    for key, value in figures.items():
        before = merged.get(key)
        if key == "usage" and isinstance(value, dict) and isinstance(before, dict):
            # Anthropic's dialect counts the prompt in its first event, the answer in its last.
            merged[key] = {**before, **{k: v for k, v in value.items() if v is not None}}
        elif value is not None and not (key == "choices" and before and not value):
            merged[key] = value


@cache
def _stop_pattern(stops: tuple[bytes, ...]) -> Callable[..., re.Match[bytes] | None]:
    """Finds any of some members. One pattern that begins with a quote is the fastest way to look.

    >>> bool(_stop_pattern((b'"error"', b'"usage":{'))(b'{"usage":{}}'))
    True
    """
    names = [
        re.escape(stop.removeprefix(b'"')).replace(b'":', b'": ?') for stop in stops
    ]  # some servers write a blank after each colon
    return re.compile(b'"(?:' + b"|".join(names) + b")").search


def _announces(whole: bytes, found: int, at: int) -> bool:
    """Whether a mention of usage is the null by which some servers announce it, and no more.

    Args:
        whole: Events.
        found: Where its name begins.
        at: Where its event begins, or one before it.
    """
    if found == 0 or not whole.startswith(_LAST_NULL_USAGE, found - 1):
        return False
    begun = whole.rfind(b"\n\n", at, found)
    return whole.startswith(b"data: {", at if begun < 0 else begun + 2)


def _blank_start(event: bytes) -> bytes:
    """Blank lines before an event are not part of it."""
    return event[: len(event) - len(event.lstrip(b"\r\n"))]


def harvest_for(
    dialect: Dialect,
    *,
    content_type: str,
    content_encoding: str,
    markers: Sequence[bytes] = (),
    ask: Ask = NOTHING_ASKED,
    rule: StepRule | None = None,
) -> Harvest:
    """What watches an answer, by what it says about itself.

    Args:
        dialect: Of the endpoint that was asked.
        content_type: Header of the answer; empty where it has none.
        content_encoding: Header of the answer; empty where it has none.
        markers: What events with figures contain, by the engine's adapter.
        ask: What was asked for by us alone.
        rule: How the engine's steps show in its events; None where nothing is to be counted.
    """
    if content_encoding.strip().lower() not in {"", "identity"}:
        return PassThrough()
    kind = content_type.partition(";")[0].strip().lower()
    if not dialect.ends_marked:
        # Sound, pictures, vectors: nothing is read, and nothing is foreign.
        return PassThrough()
    if kind == _EVENT_STREAM:
        return StreamHarvest(
            markers,
            strip_usage=ask.strip_usage,
            strip_record=ask.strip_record,
            strip_nulls=ask.nulls_are_ours,
            dialect=dialect,
            rule=rule if dialect is OPENAI else None,
        )
    if kind == "application/json" or kind.endswith("+json"):
        return WholeHarvest() if ask.strip_record is None else HeldHarvest(ask.strip_record)
    return PassThrough(foreign=True)
