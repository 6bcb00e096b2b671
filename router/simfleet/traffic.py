"""Sends a world's requests to a URL at the times the world says, however long answers take.

Open loop: a request is sent when its time has come, not when the one before is answered, so what
is slow is seen to be slow. Prompts are filler words; class and application stand in headers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import aiohttp
import orjson

from policies.sim.spec import WorldSpec
from policies.sim.traffic import Arrival, arrivals
from policies.types import ClassId
from router.lifecycle import Lifecycle
from router.simfleet.pace import Pace, RealPace
from router.simfleet.prompts import CLASS_HEADER, TEMPLATE_HEADER, TOKENS_HEADER
from router.simfleet.words import Words, digest

_PROSE = ClassId("")
ROUND = 2000
"""Requests that are drawn at a time."""
_SYSTEM_TOKENS = 12
"""By so much of a system prompt, at the least, an application is known."""
_STREAMED_OF = 4
"""One request in so many is not streamed."""


@dataclass(slots=True)
class Sent:
    """What came of it."""

    sent: int = 0
    answered: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """By status, or by the name of the error."""
    late_s: float = 0.0
    """The latest that a request was sent after its time."""


class Driver:
    """An open loop of a world's requests."""

    def __init__(
        self,
        world: WorldSpec,
        url: str,
        *,
        model: str,
        rate: float | None = None,
        seed: int = 0,
        pace: Pace | None = None,
        answered: Callable[[Arrival, float], None] | None = None,
    ) -> None:
        """`rate` in requests per second; None for the world's own.

        `answered` is called with each request that was answered, and how long that took.
        """
        self._traffic = replace(world.traffic, requests=ROUND)
        if rate is not None:
            self._traffic = replace(self._traffic, rate=rate)
        self._events = world.events
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._model = model
        self._seed = seed
        self._pace = pace or RealPace()
        self._words = Words()
        self._answered = answered
        self._ended = asyncio.Event()
        self.sent = Sent()

    async def run(self, duration_s: float | None = None) -> Sent:
        """Sends until it is cancelled, or for so long; then waits for the last answers."""
        tasks = Lifecycle()
        began = self._pace.now()
        connector = aiohttp.TCPConnector(limit=0)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                for due_s, arrival in self._requests():
                    if duration_s is not None and due_s > duration_s:
                        break
                    while (wait_s := began + due_s - self._pace.now()) > 0:
                        await self._pace.wait(wait_s)
                    self.sent.late_s = max(self.sent.late_s, -wait_s)
                    self.sent.sent += 1
                    tasks.once("request", partial(self._send, session, arrival))
                while self.sent.answered + self.sent.failed.total() < self.sent.sent:
                    self._ended.clear()
                    await self._ended.wait()
        finally:
            await tasks.stop()
        return self.sent

    def _requests(self) -> Iterator[tuple[float, Arrival]]:
        """Without an end: rounds of the world's traffic, one after the other."""
        start, number = 0.0, 0
        while True:
            last = 0.0
            for arrival in arrivals(self._traffic, self._seed + number, self._events):
                last = arrival.at_s
                yield start + arrival.at_s, arrival
            start, number = start + last, number + 1

    async def _send(self, session: aiohttp.ClientSession, arrival: Arrival) -> None:
        request = arrival.request
        headers = {
            CLASS_HEADER: request.class_id,
            TEMPLATE_HEADER: request.template,
            TOKENS_HEADER: str(request.output_tokens),
            "content-type": "application/json",
        }
        body, began = self._body(arrival), self._pace.now()
        try:
            async with session.post(self._url, data=body, headers=headers) as reply:
                await reply.read()
                if reply.status == 200:  # noqa: PLR2004
                    self.sent.answered += 1
                    if self._answered is not None:
                        self._answered(arrival, self._pace.now() - began)
                else:
                    self.sent.failed[str(reply.status)] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            self.sent.failed[type(error).__name__] += 1
        self._ended.set()

    def _body(self, arrival: Arrival) -> bytes:
        request = arrival.request
        # A token is about four bytes, and so is a filler word with its space.
        system = max(arrival.shared_tokens, _SYSTEM_TOKENS if request.template else 0)
        shared = self._filler(_number(request.template), system)
        own = self._filler(request.seed, max(request.prompt_tokens - system, 1))
        messages = [{"role": "user", "content": own}]
        if shared:
            messages.insert(0, {"role": "system", "content": shared})
        streamed = arrival.index % _STREAMED_OF != 0
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": request.output_tokens + 1,
            "temperature": 0.0 if request.greedy else 1.0,
        }
        return orjson.dumps(body | {"stream": True} if streamed else body)

    def _filler(self, seed: int, tokens: int) -> str:
        words = (self._words.piece(_PROSE, "", seed, place)[0] for place in range(tokens))
        return "".join(words)[: tokens * 4]


def _number(template: str) -> int:
    """The same for a template in every process."""
    return int(digest(template.encode())[:4], 16)
