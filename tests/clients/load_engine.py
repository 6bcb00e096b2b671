"""A fast engine that speaks as vLLM does and answers every prompt in one way of its own.

How many tokens an answer has, and how many of its drafts were accepted, follows from the prompt
alone. So two runs of a load tool must report the same figures, and a mixed-up, lost or doubled
answer changes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.clients.cases import VLLM

DRAFT = 5
_NOTHING = {"logprobs": None, "token_ids": None}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a prompt gets."""

    prompt_tokens: int
    accepted: tuple[int, ...]
    """Drafted tokens that each step had right; the first step has no draft."""

    @property
    def tokens(self) -> int:
        """Of the answer."""
        return 1 + len(self.accepted) + sum(self.accepted)

    def usage(self, tokens: int) -> dict[str, int]:
        """As vLLM counts them, when so many tokens have been given."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
        }

    @property
    def metrics(self) -> dict[str, Any]:
        """As vLLM gives them with `--per-request-spec-decode-metrics summary`."""
        steps, accepted = len(self.accepted), sum(self.accepted)
        histogram = [self.accepted.count(count) for count in range(DRAFT + 1)]
        return {
            "speculative_decoding": {
                "mean_acceptance_length": 1 + accepted / steps,
                "draft_acceptance_rate": accepted / (DRAFT * steps),
                "acceptance_histogram": histogram,
                "num_spec_steps": steps,
                "num_accepted_draft_tokens": accepted,
                "num_draft_tokens": DRAFT * steps,
                "num_spec_tokens": DRAFT,
            }
        }

    def texts(self) -> Iterator[str]:
        """What each step gives."""
        yield "word"
        for count in self.accepted:
            yield " word" * (count + 1)


def answer_to(body: dict[str, Any]) -> Answer:
    """What a request gets: drawn from its prompt's hash."""
    asked = orjson.dumps(body.get("messages") or body.get("prompt"))
    drawn = hashlib.sha256(asked).digest()
    accepted = tuple(byte % (DRAFT + 1) for byte in drawn[1 : 5 + drawn[0] % 8])
    return Answer(len(asked.split()), accepted)


@dataclass(slots=True)
class LoadEngine:
    """Serves, and counts what was asked of it."""

    asked: list[str] = field(default_factory=list)
    """Hash of each prompt."""

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """A chat or a completion."""
        body = orjson.loads(await request.read())
        prompt = orjson.dumps(body.get("messages") or body.get("prompt"))
        self.asked.append(hashlib.sha256(prompt).hexdigest()[:16])
        answer, chat = answer_to(body), request.path.endswith("/chat/completions")
        if not body.get("stream"):
            return web.json_response(_whole(answer, chat=chat))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in _events(answer, body.get("stream_options") or {}, chat=chat):
            await response.write(event)
        await response.write_eof()
        return response

    async def models(self, request: web.Request) -> web.Response:
        """The one model."""
        del request
        return web.json_response({"object": "list", "data": [{"id": VLLM, "object": "model"}]})

    async def health(self, request: web.Request) -> web.Response:
        """Well."""
        del request
        return web.Response()


def _whole(answer: Answer, *, chat: bool) -> dict[str, Any]:
    text = "".join(answer.texts())
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": "chatcmpl-load",
        "object": "chat.completion" if chat else "text_completion",
        "created": 1795969683,
        "model": VLLM,
        "choices": [{"index": 0, **said, **_NOTHING, "finish_reason": "stop"}],
        "usage": answer.usage(answer.tokens),
        "metrics": answer.metrics,
    }


def _events(answer: Answer, options: dict[str, Any], *, chat: bool) -> Iterator[bytes]:
    """A stream, with usage where it is asked for: at the end, or in every event."""
    usage = bool(options.get("include_usage"))
    continuous = usage and bool(options.get("continuous_usage_stats"))
    base = {
        "id": "chatcmpl-load",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1795969683,
        "model": VLLM,
    }

    def event(said: dict[str, Any], tokens: int, finish: str | None = None) -> bytes:
        choice = {"index": 0, **said, **_NOTHING, "finish_reason": finish}
        so_far = {"usage": answer.usage(tokens)} if continuous else {}
        return _event({**base, "choices": [choice], **so_far})

    if chat:
        yield event({"delta": {"role": "assistant", "content": ""}}, 0)
    tokens = 0
    for text in answer.texts():
        tokens += len(text.split())
        yield event({"delta": {"content": text}} if chat else {"text": text}, tokens)
    yield event({"delta": {"content": ""}} if chat else {"text": ""}, tokens, "stop")
    if usage:
        figures = {"usage": answer.usage(tokens), "metrics": answer.metrics}
        yield _event({**base, "choices": [], **figures})
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


@asynccontextmanager
async def load_engine() -> AsyncIterator[tuple[LoadEngine, str]]:
    """An engine and its base URL, for as long as the block runs."""
    engine = LoadEngine()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.generate)
    app.router.add_post("/v1/completions", engine.generate)
    app.router.add_get("/v1/models", engine.models)
    app.router.add_get("/health", engine.health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield engine, f"http://{host}:{port}"
    finally:
        await runner.cleanup()
