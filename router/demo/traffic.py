"""Sends the demo's prompts through the official OpenAI client, as an application would.

It knows the proxy's URL and nothing of what stands behind it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import openai

from router.demo.prompts import DemoPrompt
from router.simfleet.prompts import CLASS_HEADER

STREAMED_SHARE = 0.85
_RECENT = 6


@dataclass(frozen=True, slots=True)
class Answered:
    """One request that came back, as the client saw it."""

    label: str
    """Kind of prompt, by its author."""
    class_id: str
    """Class that the proxy gave it."""
    pool: str
    streamed: bool
    seconds: float
    pieces: int
    """Events with text; 1 for an answer that came whole."""


class Traffic:
    """A few applications in one: each sends a prompt, waits for its answer, sends the next."""

    def __init__(
        self,
        base_url: str,
        model: str,
        prompts: Sequence[DemoPrompt],
        *,
        seed: int,
        hints: bool = False,
    ) -> None:
        """`hints` tells simulated engines the kind of a prompt; the proxy does not look at it."""
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key="demo", max_retries=0, timeout=120
        )
        self._model = model
        self._hints = hints
        self._random = random.Random(seed)  # noqa: S311 - picks prompts, guards nothing
        self._queue = self._endless(list(prompts))
        self.answered = 0
        self.failed = 0
        self.last_error: str | None = None
        self.recent: deque[Answered] = deque(maxlen=_RECENT)

    def _endless(self, prompts: list[DemoPrompt]) -> Iterator[DemoPrompt]:
        """All prompts in a new order each round, so that no class ever has a rush hour."""
        while True:
            self._random.shuffle(prompts)
            yield from prompts

    async def run(self, workers: int) -> None:
        """Sends until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._worker())
        finally:
            await self._client.close()

    async def _worker(self) -> None:
        while True:
            prompt = next(self._queue)
            streamed = self._random.random() < STREAMED_SHARE
            try:
                answered = await self._send(prompt, streamed=streamed)
            except openai.OpenAIError as error:
                self.failed += 1
                self.last_error = f"{type(error).__name__}: {error}"
                # Not to turn a proxy that is down into a busy loop.
                await asyncio.sleep(0.5)
            else:
                self.answered += 1
                self.recent.append(answered)

    async def _send(self, prompt: DemoPrompt, *, streamed: bool) -> Answered:
        began = time.monotonic()
        arguments: dict[str, Any] = {**prompt.body, "model": self._model}
        create = self._client.chat.completions.with_raw_response.create
        headers = {CLASS_HEADER: prompt.label} if self._hints else {}
        raw = await create(**arguments, stream=streamed, extra_headers=headers)
        reply = raw.parse()
        pieces = 1
        if isinstance(reply, openai.AsyncStream):
            pieces = 0
            async for event in reply:
                pieces += bool(event.choices and event.choices[0].delta.content)
        return Answered(
            label=prompt.label,
            class_id=raw.headers.get("x-specroute-class", "?"),
            pool=raw.headers.get("x-specroute-pool", "?"),
            streamed=streamed,
            seconds=time.monotonic() - began,
            pieces=pieces,
        )
