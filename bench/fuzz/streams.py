"""Event streams in each dialect and in every legal form, and what a client has to get of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

from bench.fuzz.model import Part

_ENDS = ("\n", "\n", "\n", "\r\n", "\r")
_WORDS = (
    *("word", " two", "слово", "کلمه", "字", "🙂", "", " ", "data: x", '{"usage":{}}', "\n\n"),
    *('"usage":null', ',"usage":null', '"', "\\", "\\\\", '\\"', "[DONE]", "data: [DONE]\n\n"),
    *("é\u2028", "\x7f", "event: error", '"error"', '"choices":[]', "\r\n\r\n", "x" * 300),
)
_USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}


def text(rng: Random) -> str:
    """What a model might say, and what it hardly would."""
    return "".join(rng.choice(_WORDS) for _ in range(rng.randrange(4)))


class Writer:
    """Writes events in one way, or in ways that change from event to event."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._end = rng.choice(_ENDS)
        self._space = rng.choice((" ", " ", ""))
        self.plain = False
        """Whether events have no other fields than their name and their data."""
        self._mixed = rng.random() < 0.2
        self._ascii = rng.random() < 0.5
        self._separators = rng.choice(((",", ":"), (",", ":"), (", ", ": ")))

    def dump(self, value: Any) -> str:
        """JSON."""
        return json.dumps(value, ensure_ascii=self._ascii, separators=self._separators)

    def event(self, data: Any, name: str | None = None) -> bytes:
        """An event; `data` is JSON unless it is text."""
        rng = self._rng
        if self._mixed:
            self._end = rng.choice(_ENDS)
            self._space = rng.choice((" ", ""))
        dumped = data if isinstance(data, str) else self.dump(data)
        fields = [] if name is None else [("event", name)]
        if not self.plain and rng.random() < 0.05:
            fields.append(("id", "7"))
        if rng.random() < 0.05 and not isinstance(data, str):
            # A line may end wherever JSON may hold a blank.
            half = dumped.index(":") + 1
            fields += [("data", dumped[:half]), ("data", dumped[half:])]
        else:
            fields.append(("data", dumped))
        if rng.random() < 0.03 and not self.plain:
            fields.append(("retry", "10"))
        lines = [f"{name}:{self._space}{value}" for name, value in fields]
        if not self.plain and rng.random() < 0.03:
            lines.insert(0, ": beside")
        return (self._end.join(lines) + self._end * 2).encode("utf-8", "surrogatepass")

    def other(self) -> bytes:
        """What is no output: comments, blank lines, empty data, other events."""
        end = self._end
        kind = self._rng.randrange(5)
        if kind == 0:
            return f": keep-alive{end}{end}".encode()
        if kind == 1:
            return end.encode()
        if kind == 2:
            return f"event: ping{end}id: 7{end}data:{end}{end}".encode()
        if kind == 3:
            return f"data{end}{end}".encode()
        return f"unknown: x{end}:{end}data: not json{end}{end}".encode()

    @property
    def between(self) -> str:
        """The end of a line, as of the last event."""
        return self._end


def stream(
    rng: Random, dialect: str, *, strips: bool, announces: bool, record: bool, ended: bool
) -> tuple[Part, ...]:
    """A stream of some dialect.

    Args:
        rng: Of all choices.
        dialect: By its name in the table of endpoints.
        strips: Whether an event of usage is there that only the proxy has asked for.
        announces: Whether nulls in other events are there for the same reason.
        record: Whether an event is there that only the proxy has asked for, with a record.
        ended: Whether it comes to its end mark.
    """
    writer = Writer(rng)
    parts: list[Part] = []
    if rng.random() < 0.05:
        parts.append(_same(b"\xef\xbb\xbf: bom" + writer.between.encode() * 2))
    output = _OUTPUT.get(dialect, _other)(rng, writer)
    # Where a record is asked for, nulls are there for everybody.
    nulls = record and rng.random() < 0.4
    announces = nulls or (announces and rng.random() < 0.2)
    for event in output:
        if rng.random() < 0.15:
            parts.append(_same(writer.other()))
        if announces and b'"choices":[{' in event and b'"choices":[],' not in event:
            announcing = _announcing(event)
            parts.append(_same(announcing.sent) if nulls else announcing)
        else:
            parts.append(_same(event))
    if record and rng.random() < 0.8:
        extension = {"spec_tokens_details": {"spec_verify_ct": 2, "x": text(rng)}}
        chunk: dict[str, Any] = {"id": "x", "choices": [], "usage": None, "sglext": extension}
        parts.append(Part(writer.event(chunk), b""))
    if strips:
        parts += _usage(rng, writer, output)
    writer.plain = True  # a mark is the last that its event has to say
    if ended:
        parts += map(_same, _END.get(dialect, _done)(writer))
    elif rng.random() < 0.3:
        parts.append(_same(b"data: {"))
    return _with_whole_ends(parts)


def early_error(rng: Random, dialect: str) -> tuple[Part, int, bytes]:
    """An event that is an error, its status, and the body that it becomes without a stream."""
    writer = Writer(rng)
    writer.plain = True  # anything else that comes first may have reached the client
    status = rng.choice((400, 404, 413, 500, 502, 504))
    if dialect == "anthropic":
        error = {"type": "error", "error": {"type": "overloaded_error", "message": text(rng)}}
        event = writer.event(error, "error")
        status = 503
    else:
        error = {"error": {"message": text(rng), "type": "x", "param": None, "code": status}}
        event = writer.event(error)
    body = b"\n".join(
        line.partition(b":")[2].removeprefix(b" ")
        for line in event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if line.startswith(b"data:")
    )
    return _same(event), status, body


def whole(rng: Random, dialect: str) -> bytes:
    """A whole answer in JSON."""
    if dialect == "anthropic":
        content = [{"type": "text", "text": text(rng)}]
        value: dict[str, Any] = {"type": "message", "content": content, "usage": _USAGE}
    elif dialect == "responses":
        value = {"object": "response", "output": [text(rng)], "usage": _USAGE}
    else:
        choice = {"index": 0, "message": {"role": "assistant", "content": text(rng)}}
        value = {"choices": [choice], "usage": _USAGE, "more": 1.0}
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def with_record(rng: Random, body: bytes) -> bytes:
    """A whole answer with one member more, at its beginning or at its end."""
    member = json.dumps({"spec_tokens_details": {"x": text(rng)}})
    added = f'"sglext":{member}'.encode("utf-8", "surrogatepass")
    if rng.random() < 0.5:
        return b"{" + added + b"," + body[1:]
    return body[:-1] + b"," + added + b"}"


def _with_whole_ends(parts: Sequence[Part]) -> tuple[Part, ...]:
    r"""A LF behind a CR is the second half of one line's end: it goes where the event before goes.

    >>> _with_whole_ends([Part(b"data: 1\r\r", b""), _same(b"\n")])[1]
    Part(sent=b'\n', shown=b'')
    """
    whole = list(parts)
    for index, (before, part) in enumerate(pairwise(parts), 1):
        if not before.shown and before.sent.endswith(b"\r") and part.shown.startswith(b"\n"):
            whole[index] = Part(part.sent, part.shown[1:])
    return tuple(whole)


def _same(event: bytes) -> Part:
    return Part(event, event)


def _usage(rng: Random, writer: Writer, output: Sequence[bytes]) -> list[Part]:
    """Usage that only the proxy has asked for, or that the server sends to everybody."""
    chance = rng.random()
    if chance < 0.1:
        return []
    if chance < 0.2:
        # It comes beside output too: then it is the client's.
        beside = {"id": "x", "choices": [{"index": 0, "delta": {}}], "usage": _USAGE}
        return [_same(writer.event(beside)), _same(writer.event(_usage_chunk(rng)))]
    parts = [Part(writer.event(_usage_chunk(rng)), b"")]
    if rng.random() < 0.15:
        parts.insert(0, _same(writer.between.encode()))
    if rng.random() < 0.3:
        parts += map(_same, output[-2:])
    return parts


def _announcing(event: bytes) -> Part:
    """Usage announced by a null in an event of output; the proxy takes exactly that out."""
    end = event.rfind(b"}")
    return Part(event[:end] + b',"usage":null' + event[end:], event)


def _usage_chunk(rng: Random) -> dict[str, Any]:
    chunk: dict[str, Any] = {"id": "x", "choices": [], "usage": _USAGE}
    if rng.random() < 0.5:
        chunk["metrics"] = {"speculative_decoding": None}
    return chunk


def _chat(rng: Random, writer: Writer) -> Sequence[bytes]:
    events: list[bytes] = []
    if rng.random() < 0.7:
        choice: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": ""}}
        events.append(writer.event({"id": "x", "choices": [choice]}))
    key = rng.choice(("content", "content", "reasoning_content"))
    for _ in range(rng.randrange(1, 10)):
        choice = {"index": 0, "delta": {key: text(rng)}}
        if rng.random() < 0.1:
            choice["finish_reason"] = None
        events.append(writer.event({"id": "x", "choices": [choice]}))
    return events


def _completions(rng: Random, writer: Writer) -> Sequence[bytes]:
    return [
        writer.event({"id": "x", "choices": [{"index": 0, "text": text(rng)}]})
        for _ in range(rng.randrange(1, 10))
    ]


def _llama(rng: Random, writer: Writer) -> Sequence[bytes]:
    return [
        writer.event({"content": text(rng), "stop": False}) for _ in range(rng.randrange(1, 10))
    ]


def _messages(rng: Random, writer: Writer) -> Sequence[bytes]:
    message = {"type": "message", "role": "assistant", "content": [], "usage": _USAGE}
    events = [writer.event({"type": "message_start", "message": message}, "message_start")]
    for _ in range(rng.randrange(1, 10)):
        delta = {"type": "text_delta", "text": text(rng)}
        value = {"type": "content_block_delta", "index": 0, "delta": delta}
        events.append(writer.event(value, "content_block_delta"))
    return events


def _responses(rng: Random, writer: Writer) -> Sequence[bytes]:
    value: dict[str, Any] = {"type": "response.created", "response": {"id": "x"}}
    events = [writer.event(value, value["type"])]
    for number in range(rng.randrange(1, 10)):
        kind = "response.output_text.delta"
        value = {"type": kind, "delta": text(rng), "sequence_number": number}
        events.append(writer.event(value, kind))
    return events


def _other(rng: Random, writer: Writer) -> Sequence[bytes]:
    return [writer.event({"progress": text(rng)}) for _ in range(rng.randrange(1, 10))]


def _done(writer: Writer) -> list[bytes]:
    return [writer.event("[DONE]")]


def _llama_end(writer: Writer) -> list[bytes]:
    return [writer.event({"content": "", "stop": True, "timings": {"predicted_n": 3}})]


def _messages_end(writer: Writer) -> list[bytes]:
    usage = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": _USAGE}
    return [
        writer.event(usage, "message_delta"),
        writer.event({"type": "message_stop"}, "message_stop"),
    ]


def _responses_end(writer: Writer) -> list[bytes]:
    value = {"type": "response.completed", "response": {"id": "x", "usage": _USAGE}}
    return [writer.event(value, "response.completed")]


_OUTPUT = {
    "openai": _chat,
    "completions": _completions,
    "llamacpp": _llama,
    "anthropic": _messages,
    "responses": _responses,
}
_END = {
    "llamacpp": _llama_end,
    "anthropic": _messages_end,
    "responses": _responses_end,
}
