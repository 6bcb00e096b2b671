"""Bytes as llama.cpp and vLLM send them; the shapes were taken from recordings of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

MODEL = "tiny"

DONE = b"data: [DONE]\n\n"


def dump(value: Any) -> bytes:
    """JSON as engines write it: no spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def chat(
    *, stream: bool = False, prompt: str = "Name the capital of France.", **more: Any
) -> bytes:
    """A chat request."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    return dump(body | {"stream": True} if stream else body)


def whole(
    body: bytes,
    status: str = "200 OK",
    headers: Sequence[str] = ("Content-Type: application/json; charset=utf-8",),
) -> bytes:
    """A response with its length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(events: Iterable[bytes], head: bytes = STREAM_HEAD) -> bytes:
    """A whole response of events, each in a chunk of its own."""
    return head + b"".join(chunk(event) for event in events) + END


def event(value: Any) -> bytes:
    """One event."""
    return b"data: " + dump(value) + b"\n\n"


# --- llama.cpp --------------------------------------------------------------------------------

_LLAMA = {
    "created": 1795971015,
    "id": "chatcmpl-1JcEwxI9cPEnza2h9er8S8xWfwOB50dK",
    "model": MODEL,
    "system_fingerprint": "b0-unknown",
}


def llama_timings(tokens: int, accepted: int = 0) -> dict[str, Any]:
    """Its figures; those of drafts are left out when nothing was drafted."""
    figures: dict[str, Any] = {
        "cache_n": 0,
        "prompt_n": 40,
        "prompt_ms": 78.814,
        "predicted_n": tokens,
        "predicted_ms": 308.876,
        "predicted_per_token_ms": 44.125142857142855,
    }
    drafts = {"draft_n": accepted + 2, "draft_n_accepted": accepted} if accepted else {}
    return figures | drafts


def llama_usage(tokens: int) -> dict[str, Any]:
    """Its usage."""
    return {
        "completion_tokens": tokens,
        "prompt_tokens": 40,
        "total_tokens": 40 + tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def llama_chat(text: str = "Paris.", tokens: int = 8, accepted: int = 0, **message: Any) -> bytes:
    """A whole answer."""
    choice = {
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
    }
    return whole(
        dump(
            {
                "choices": [choice],
                **_LLAMA,
                "object": "chat.completion",
                "usage": llama_usage(tokens),
                "timings": llama_timings(tokens, accepted),
            }
        )
    )


def llama_chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a chat stream."""
    choices = [{"finish_reason": finish, "index": 0, "delta": delta}]
    return event({"choices": choices, **_LLAMA, "object": "chat.completion.chunk", **more})


def llama_events(
    pieces: Sequence[str] = ("The", " capital", " is", " Paris", "."),
    *,
    accepted: int = 0,
    tokens: int | None = None,
) -> list[bytes]:
    """The events of a chat stream whose client did not ask for usage."""
    count = len(pieces) if tokens is None else tokens
    return [
        llama_chunk({"role": "assistant", "content": None}),
        *(llama_chunk({"content": piece}) for piece in pieces),
        llama_chunk({}, "stop", timings=llama_timings(count, accepted)),
        DONE,
    ]


# --- vLLM -------------------------------------------------------------------------------------

_VLLM = {
    "id": "chatcmpl-b78b00854bce6ad3",
    "object": "chat.completion.chunk",
    "created": 1795969683,
    "model": MODEL,
}
VLLM_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 16:28:03 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
VLLM_METRICS = {
    "time_to_first_token_ms": 135.80306399944675,
    "speculative_decoding": {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 0.2,
        "acceptance_histogram": [0, 1, 0, 0, 0, 0],
        "num_spec_steps": 1,
        "num_accepted_draft_tokens": 1,
        "num_draft_tokens": 5,
        "num_spec_tokens": 5,
    },
}


def vllm_chunk(content: str, finish: str | None = None, **delta: Any) -> bytes:
    """One event of a chat stream."""
    choice = {
        "index": 0,
        "delta": {**delta, "content": content},
        "logprobs": None,
        "finish_reason": finish,
        "token_ids": None,
    }
    return event({**_VLLM, "choices": [choice]})


def vllm_usage_event(tokens: int = 8) -> bytes:
    """The event that comes only when it is asked for."""
    usage = {"prompt_tokens": 40, "total_tokens": 40 + tokens, "completion_tokens": tokens}
    return event({**_VLLM, "choices": [], "usage": usage, "metrics": VLLM_METRICS})


def vllm_events(*, usage: bool) -> list[bytes]:
    """A chat stream."""
    return [
        vllm_chunk("", role="assistant"),
        vllm_chunk("The capital"),
        vllm_chunk(" of France is"),
        vllm_chunk(" Paris."),
        vllm_chunk("", "stop"),
        *([vllm_usage_event()] if usage else []),
        DONE,
    ]


def vllm_chat(tokens: int = 8) -> bytes:
    """A whole answer."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Paris.", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 40, "total_tokens": 40 + tokens, "completion_tokens": tokens}
    body = {**_VLLM, "object": "chat.completion", "choices": [choice], "usage": usage}
    return whole(
        dump(body | {"metrics": VLLM_METRICS}), headers=("content-type: application/json",)
    )


def completions(text: str = "Paris.", *, streamed: bool = False) -> bytes:
    """An answer of the legacy endpoint."""
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": "stop"}
    body = {"choices": [choice], **_LLAMA, "object": "text_completion"}
    figures = {"usage": llama_usage(8), "timings": llama_timings(8)}
    if not streamed:
        return whole(dump(body | figures))
    started = body | {"choices": [choice | {"finish_reason": None}]}
    ended = body | {"choices": [choice | {"text": ""}]} | figures
    return stream([event(started), event(ended), DONE])
