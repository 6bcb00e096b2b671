"""Measures what it costs to watch a stream, and to set one member of a body.

Usage: python -m bench.harvest

Beside each figure stands its ratio to parsing the same event with orjson, measured in the same run.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import orjson

from router.endpoints.dialect import Dialect
from router.endpoints.table import ANTHROPIC, OPENAI, RESPONSES
from router.engines.base import EngineAdapter
from router.engines.llamacpp import LlamaCpp
from router.engines.sglang import Sglang
from router.engines.splice import set_member
from router.engines.vllm import Vllm
from router.relay.harvest import StreamHarvest

ROUNDS = 5
BURST = 64

VLLM_CHAT = (
    b'data: {"id":"chatcmpl-b78b00854bce6ad3","object":"chat.completion.chunk",'
    b'"created":1795969683,"model":"smollm2-135m-instruct","choices":[{"index":0,'
    b'"delta":{"content":" capital"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
)
LLAMA_CHAT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" capital"}}],'
    b'"created":1795968314,"id":"chatcmpl-Le2F1UJYelFcwskCiuWiWJTuqq82qgCR",'
    b'"model":"smollm2-135m-instruct","system_fingerprint":"b1-7e4c0a9",'
    b'"object":"chat.completion.chunk"}\n\n'
)
VLLM_RESPONSES = (
    b"event: response.output_text.delta\n"
    b'data: {"content_index":0,"delta":" capital","item_id":"msg_845a018a723985f0","logprobs":[],'
    b'"output_index":0,"sequence_number":5,"type":"response.output_text.delta"}\n\n'
)
VLLM_MESSAGES = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" capital"},'
    b'"index":0}\n\n'
)
SGLANG_CHAT = (
    b'data: {"id":"035460f92df4417f965a42a09f299f5c","object":"chat.completion.chunk",'
    b'"created":1795972000,"model":"smollm2-135m-instruct","choices":[{"index":0,'
    b'"delta":{"reasoning_content":null,"content":" capital"},"logprobs":null,'
    b'"finish_reason":null,"matched_stop":null}]}\n\n'
)
STREAMS: tuple[tuple[str, Dialect, EngineAdapter, bytes, bool], ...] = (
    ("chat, vLLM", OPENAI, Vllm(), VLLM_CHAT, False),
    ("chat, vLLM, usage taken out", OPENAI, Vllm(), VLLM_CHAT, True),
    ("chat, SGLang, all taken out", OPENAI, Sglang(), SGLANG_CHAT, True),
    ("chat, llama.cpp", OPENAI, LlamaCpp(), LLAMA_CHAT, False),
    ("Responses, vLLM", RESPONSES, Vllm(), VLLM_RESPONSES, False),
    ("Messages, vLLM", ANTHROPIC, Vllm(), VLLM_MESSAGES, False),
)


def nanoseconds(call: Callable[[], object], number: int) -> float:
    """The best round, for one call."""
    return min(timeit.repeat(call, number=number, repeat=ROUNDS)) / number * 1e9


def numbered(event: bytes) -> list[bytes]:
    """Events that follow each other; where they are numbered no two are alike."""
    number = b'"sequence_number":'
    return [event.replace(number + b"5", number + str(at).encode()) for at in range(BURST)]


def watch(dialect: Dialect, adapter: EngineAdapter, event: bytes, *, strip: bool) -> list[float]:
    """One event a piece; with a quote in its text; halves; many a piece; a whole answer in one."""

    def made() -> StreamHarvest:
        return StreamHarvest(
            adapter.markers,
            strip_usage=strip,
            strip_record=b"sglext" if strip and adapter.name == "sglang" else None,
            strip_nulls=adapter.name != "sglang",
            dialect=dialect,
            rule=adapter.step_rule if dialect is OPENAI else None,
        )

    harvest = made()
    harvest.feed(event, 0.0)
    quoted = event.replace(b" capital", b' \\"capital\\"')
    burst = event * BURST
    half = len(event) // 2
    first, second = event[:half], event[half:]

    def halves() -> None:
        harvest.feed(first, 1.0)
        harvest.feed(second, 1.0)

    def one_by_one(events: list[bytes]) -> float:
        fresh = made()

        def feed_all() -> None:
            for item in events:
                fresh.feed(item, 1.0)

        return nanoseconds(feed_all, 500) / len(events)

    answer = burst + b"data: [DONE]\n\n"
    return [
        one_by_one(numbered(event)),
        one_by_one(numbered(quoted)),
        nanoseconds(halves, 10_000),
        nanoseconds(lambda: harvest.feed(burst, 1.0), 500) / BURST,
        nanoseconds(lambda: made().feed(answer, 1.0), 500) / BURST,
    ]


def bodies() -> dict[str, bytes]:
    """Bodies of a megabyte and more, the member to be set at their end."""
    code = 'def f(x):\n    return "%s"\n' * 38_000
    options = {"stream": True, "stream_options": {"include_usage": False}}
    turns = [{"role": "user", "content": "x" * 20}] * 20_000
    return {
        "one text, 1 MB": _chat([{"role": "user", "content": "hello world " * 87_000}], options),
        "code, 1 MB": _chat([{"role": "user", "content": code}], options),
        "20,000 turns, 1 MB": _chat(turns, options),
        "a million brackets": b'{"x":[' + b"[]," * 1_000_000 + b'1],"stream_options":{"a":1}}',
    }


def _chat(messages: list[dict[str, str]], options: dict[str, object]) -> bytes:
    return orjson.dumps({"model": "m", "messages": messages, **options})


def main() -> None:
    """Print both tables."""
    print(
        "| stream, ns for one event | alone | with a quote | in halves | of 64 | whole | orjson |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, dialect, adapter, event, strip in STREAMS:
        data = event[event.index(b"{") : -2]
        parse = nanoseconds(lambda data=data: orjson.loads(data), 20_000)  # type: ignore[misc]
        figures = watch(dialect, adapter, event, strip=strip)
        shown = " | ".join(f"{figure:,.0f} ({figure / parse:.1f})" for figure in figures)
        print(f"| {name} | {shown} | {parse:,.0f} |")
    print("\n| body, ms | member there | in front | not there | orjson |")
    print("|---|---|---|---|---|")
    for name, body in bodies().items():
        front = b'{"model":"m",' + body[1:]
        calls: list[Callable[[], object]] = [
            lambda body=body: set_member(body, "stream_options", b"1", present=True),  # type: ignore[misc]
            lambda front=front: set_member(front, "model", b'"x"', present=True),  # type: ignore[misc]
            lambda body=body: set_member(body, "new", b"1", present=False),  # type: ignore[misc]
        ]
        taken = [nanoseconds(call, 20) / 1e6 for call in calls]
        parse = nanoseconds(lambda body=body: orjson.loads(body), 1) / 1e6  # type: ignore[misc]
        print(f"| {name} | {' | '.join(f'{ms:.3f}' for ms in taken)} | {parse:.2f} |")


if __name__ == "__main__":
    main()
