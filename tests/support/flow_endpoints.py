"""One request and one answer of each endpoint, streamed and not, for tests that go through all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import flow_wire as wire
from tests.support.flow_client import request_bytes

_FORM = (
    b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\x01\r\n'
    b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny\r\n--B--\r\n'
)
_USAGE = {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43}
_ANTHROPIC_USAGE = {"input_tokens": 40, "output_tokens": 3}


def named(data: Mapping[str, Any]) -> bytes:
    """An event that is named after the type of its data."""
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + wire.dump(data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """An endpoint as a client and its engine use it."""

    target: str
    body: Mapping[str, Any] | bytes
    events: tuple[bytes, ...]
    """Of a stream, the end mark included."""
    answer: bytes
    """The body of an answer that is no stream."""
    dialect: str | None
    """Whose shape errors and endings have; None where nothing is read, and nothing can be added."""

    @property
    def decided(self) -> bool:
        """Whether the policy has a say."""
        return self.dialect is not None

    def request(self, *, streamed: bool) -> bytes:
        """The whole request."""
        if isinstance(self.body, bytes):
            head = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
            kind = "multipart/form-data; boundary=B"
            return head.format(self.target, kind, len(self.body)).encode() + self.body
        body = {"model": wire.MODEL, **self.body}
        return request_bytes(wire.dump(body | {"stream": True} if streamed else body), self.target)


def _chat(index: int, text: str) -> bytes:
    return wire.event({"id": "x", "choices": [{"index": index, "delta": {"content": text}}]})


def _completion(text: str) -> bytes:
    return wire.event({"id": "x", "choices": [{"index": 0, "text": text}]})


def _responses(number: int, kind: str, **more: Any) -> bytes:
    return named({"type": f"response.{kind}", "sequence_number": number, **more})


def _block(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return named({"type": "content_block_delta", "index": 0, "delta": delta})


_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "usage": _ANTHROPIC_USAGE}
_RESPONSE = {"id": "r", "object": "response", "usage": _ANTHROPIC_USAGE}
_PROGRESS = tuple(wire.event({"type": "progress", "part": part}) for part in "abc")

ENDPOINTS: dict[str, Asked] = {
    "chat": Asked(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hello"}]},
        (_chat(0, "one"), _chat(0, " two"), _chat(0, " three"), wire.DONE),
        wire.dump({"choices": [{"message": {"content": "one two three"}}], "usage": _USAGE}),
        "openai",
    ),
    "completions": Asked(
        "/v1/completions",
        {"prompt": "Hello"},
        (_completion("one"), _completion(" two"), _completion(" three"), wire.DONE),
        wire.dump({"choices": [{"text": "one two three"}], "usage": _USAGE}),
        "openai",
    ),
    "responses": Asked(
        "/v1/responses",
        {"input": "Hello"},
        (
            _responses(0, "created", response=_RESPONSE),
            _responses(1, "output_text.delta", delta="one"),
            _responses(2, "output_text.delta", delta=" two"),
            _responses(3, "completed", response=_RESPONSE),
        ),
        wire.dump({**_RESPONSE, "output": [{"text": "one two"}]}),
        "responses",
    ),
    "messages": Asked(
        "/v1/messages",
        {"max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]},
        (
            named({"type": "message_start", "message": _MESSAGE}),
            _block("one"),
            _block(" two"),
            named({"type": "message_stop"}),
        ),
        wire.dump({**_MESSAGE, "content": [{"type": "text", "text": "one two"}]}),
        "anthropic",
    ),
    "llama": Asked(
        "/completion",
        {"prompt": "Hello"},
        (
            wire.event({"content": "one", "stop": False}),
            wire.event({"content": " two", "stop": False}),
            wire.event({"content": "", "stop": True, "timings": wire.llama_timings(2)}),
        ),
        wire.dump({"content": "one two", "stop": True, "timings": wire.llama_timings(2)}),
        "openai",
    ),
    "embeddings": Asked(
        "/v1/embeddings",
        {"input": "Hello"},
        _PROGRESS,
        wire.dump({"data": [{"embedding": [0.1, 0.2, 0.3]}], "usage": _USAGE}),
        None,
    ),
    "audio": Asked(
        "/v1/audio/transcriptions", _FORM, _PROGRESS, wire.dump({"text": "one two three"}), None
    ),
    "unknown path": Asked(
        "/v1/things/new", {"a": 1}, _PROGRESS, wire.dump({"thing": "one two three"}), None
    ),
}
