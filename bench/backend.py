"""A fast stand-in for an engine: llama.cpp's wire format, any number of streams, one task each.

For load, not for truth: texts are fixed and speed is a parameter. Tests on behaviour use scripted
backends and recorded bytes instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODEL = "bench-model"


def _event(delta: dict[str, object], finish: str | None, extra: dict[str, object]) -> bytes:
    choice = {"finish_reason": finish, "index": 0, "delta": delta}
    chunk = {
        "choices": [choice],
        "created": 1795968408,
        "id": "chatcmpl-bench",
        "model": MODEL,
        "object": "chat.completion.chunk",
        **extra,
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Backend:
    """Counts what it serves; every stream has `events` tokens, one each `gap_s`."""

    def __init__(self, *, events: int, gap_s: float, tokens_per_step: float) -> None:
        self.events = events
        self.gap_s = gap_s
        self.open_streams = 0
        self.finished = 0
        self.cut = 0
        accepted = round(events * (1 - 1 / tokens_per_step))
        timings: dict[str, object] = {"prompt_n": 20, "predicted_n": events, "predicted_ms": 1.0}
        if accepted:
            timings |= {"draft_n": 2 * accepted, "draft_n_accepted": accepted}
        self._first = _chunk(_event({"role": "assistant", "content": None}, None, {}))
        self._token = _chunk(_event({"content": " word"}, None, {}))
        self._last = _chunk(_event({}, "length", {"timings": timings}) + b"data: [DONE]\n\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, any number of requests."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                if length:
                    await reader.readexactly(length)
                if head.startswith(b"GET"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                else:
                    await self._stream(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        self.open_streams += 1
        complete = False
        try:
            writer.write(_HEAD + self._first)
            for _ in range(self.events):
                writer.write(self._token)
                await writer.drain()
                if self.gap_s:
                    await asyncio.sleep(self.gap_s)
            writer.write(self._last + b"0\r\n\r\n")
            complete = True
        finally:
            self.open_streams -= 1
            self.finished += complete
            self.cut += not complete


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[str]:
    """Runs a backend on a free port; yields its URL."""
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
