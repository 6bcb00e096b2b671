"""One small real request, sent and read exactly as the proxy would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from router import __version__
from router.clock import Clock
from router.endpoints.dialect import json_object
from router.endpoints.table import FACTS
from router.engines.base import Reading, member
from router.fleet.model import PoolFacts, Replica
from router.intake.parse import parse_request
from router.relay.harvest import Harvest, harvest_for
from router.relay.headers import header, to_upstream
from router.relay.measured import reading_of
from router.relay.sse import EventSplitter, EventTooLargeError, event_data
from router.relay.told import EngineError
from router.relay.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from router.types import UNCLASSIFIED, Endpoint, Headers, ParsedRequest, RequestContext

TOKENS = 16
"""Asked for: enough to tell models apart, few enough to cost nothing."""
_PROMPT = "Count from one to five in words. Then count from one to five in words again."
_OK = 200
_MOST_BYTES = 4 * 1024 * 1024
_LONGEST_MESSAGE = 160
_NOTHING = Reading()
_TEXTS = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the request."""

    status: int | None = None
    """None where no answer came."""
    failure: str | None = None
    """Why it is no good answer, in words that quote nothing of the prompt."""
    headers: Headers = ()
    text: str = field(default="", repr=False)
    """What the model said; compared, never shown."""
    reading: Reading = _NOTHING
    ttft_s: float | None = None
    e2e_s: float = 0.0
    skew_s: float | None = None
    """How far the server's clock is ahead of ours, by its `Date`."""

    @property
    def good(self) -> bool:
        """Whether it is a whole answer."""
        return self.failure is None


class _TooMuchError(Exception):
    pass


@dataclass(slots=True)
class _Collected:
    """The pieces of an answer."""

    harvest: Harvest
    clock: Clock
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def receive(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > _MOST_BYTES:
            raise _TooMuchError
        self.parts.append(piece)
        self.harvest.feed(piece, self.clock.monotonic())


def question(model: str, **more: Any) -> ParsedRequest:
    """The request: greedy, streamed and short."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
        **more,
    }
    return parse_request(Endpoint.CHAT, orjson.dumps(body))


class Asker:
    """Sends requests to servers, one by one.

    Args:
        upstream: The proxy's own way to servers.
        clock: Time.
        limit_s: For a whole answer.
        api_key: What a client would send, where a pool has no key.
    """

    def __init__(
        self, upstream: Upstream, clock: Clock, *, limit_s: float, api_key: str | None = None
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._limit_s = limit_s
        self._own: list[tuple[str, str]] = [
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            ("User-Agent", f"specroute/{__version__} (doctor)"),
        ]
        if api_key is not None:
            self._own.append(("Authorization", f"Bearer {api_key}"))

    async def ask(self, pool: PoolFacts, replica: Replica, request: ParsedRequest) -> Answer:
        """Sends a request as `question` makes it; whatever goes wrong is in the answer."""
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._exchange(pool, replica, request)
        except UpstreamError as error:
            why = str(error)
        except TimeoutError:
            why = f"no whole answer within {self._limit_s:g} s"
        except _TooMuchError:
            why = f"the answer is longer than {_MOST_BYTES} bytes"
        return Answer(failure=why, e2e_s=self._clock.monotonic() - began)

    async def _exchange(self, pool: PoolFacts, replica: Replica, request: ParsedRequest) -> Answer:
        clock = self._clock
        ask = pool.adapter.prepare(request)
        began = clock.monotonic()
        response = await self._upstream.send(
            replica,
            UpstreamRequest(
                method="POST",
                path_qs=Endpoint.CHAT.value,
                headers=to_upstream(tuple(self._own), api_key=replica.api_key, identity=ask.strips),
                body=ask.body,
                header_s=self._limit_s,
                idle_s=self._limit_s,
            ),
        )
        try:
            skew_s = _skew(header(response.headers, "date"), clock.wall())
            harvest = harvest_for(
                FACTS[Endpoint.CHAT].dialect,
                content_type=header(response.headers, "content-type") or "",
                content_encoding=header(response.headers, "content-encoding") or "",
                markers=pool.adapter.markers,
                ask=ask,
                rule=pool.adapter.step_rule,
            )
            collected = _Collected(harvest, clock)
            await response.copy_to(collected.receive)
        finally:
            response.close()
        harvest.finish()
        first, body = harvest.first_content_s, b"".join(collected.parts)
        answer = Answer(
            status=response.status,
            failure=_failure(response, harvest, body),
            headers=response.headers,
            ttft_s=None if first is None else first - began,
            e2e_s=clock.monotonic() - began,
            skew_s=skew_s,
        )
        if not answer.good:
            return answer
        reading = reading_of(pool, _context(request, began), harvest)
        return replace(answer, text=_text(body), reading=reading)


def _context(request: ParsedRequest, arrival_s: float) -> RequestContext:
    return RequestContext(
        request_id="doctor",
        request=request,
        classification=UNCLASSIFIED,
        arrival_s=arrival_s,
        path_qs=Endpoint.CHAT.value,
        headers=(),
    )


def _failure(response: UpstreamResponse, harvest: Harvest, body: bytes) -> str | None:
    status, kind = response.status, header(response.headers, "content-type") or ""
    if status != _OK:
        said = EngineError(status, body)
        code = "" if said.code == str(status) else f" {said.code}"
        return f"it answered {status}{code}: {_safe(said.message)}"
    if kind.partition(";")[0].strip().lower() != "text/event-stream":
        return f"asked for a stream, it sent {_safe(kind) or 'no content type'}"
    if harvest.broken:
        return "the stream broke off, or ended with an error"
    return None


def _safe(text: str) -> str:
    """What may be shown of a server's words: nothing of the prompt, nothing for the terminal."""
    if _PROMPT[:20] in text:
        return "(it quotes the request)"
    clean = "".join(character for character in text if character.isprintable())
    return clean if len(clean) <= _LONGEST_MESSAGE else clean[:_LONGEST_MESSAGE] + "…"


def _text(body: bytes) -> str:
    """What the model said over all events."""
    splitter = EventSplitter(_MOST_BYTES)
    try:
        events = splitter.feed(body)
    except EventTooLargeError:
        return ""
    return "".join(
        _said(json_object(data) or {}) for event in events if (data := event_data(event))
    )


def _said(members: Mapping[str, Any]) -> str:
    choices = members.get("choices")
    if not isinstance(choices, list) or not choices:
        return ""
    delta = member(choices[0], "delta")
    texts = (member(delta, name) for name in _TEXTS)
    return "".join(text for text in texts if isinstance(text, str))


def _skew(date: str | None, now: float) -> float | None:
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError, TypeError):
        return None
