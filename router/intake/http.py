"""The data port: what is served where, bodies read within limits, and errors of our own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from policies.values import value
from router.admission.memory import BodyMemory, HeldBody
from router.clock import Clock
from router.endpoints.cors import Cors
from router.endpoints.names import ModelNames
from router.endpoints.table import (
    EndpointFacts,
    MethodNotAllowedError,
    ServedBy,
    dialect_of,
    look_up,
    part_of,
)
from router.endpoints.upgrade import refused_upgrade
from router.errors import LONGEST_QUOTE, Reason, RequestError
from router.intake.request_ids import request_ids
from router.intake.server import STALLED_S, ClientSink, Server, may_hold_trailers
from router.pipeline import RawRequest
from router.relay.sink import ResponseSink
from router.types import Endpoint, Headers

BODY_S = 600.0
"""For a whole body to arrive: half a megabit a second carries the largest accepted by default."""

_LAST_WORDS_S = 1.0
_UNDONE = frozenset(("gzip", "deflate", "br", "zstd"))
"""Content codings of requests that aiohttp's server undoes."""

_log = logging.getLogger("specroute.http")


class Readiness(Protocol):
    """Whether this process can serve."""

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""

    def store_says(self) -> str:
        """How the store does, which traffic need not mind."""


class Serves(Protocol):
    """Whoever serves requests."""

    @property
    def names(self) -> ModelNames:
        """What clients may call models."""

    @property
    def response_headers(self) -> bool:
        """Whether replies carry headers of ours."""

    def welcome(self, headers: Headers) -> None:
        """Looks whether whoever sends these header lines is served at all; must not wait.

        Raises:
            RequestError: The request would be refused, whatever its body is.
        """

    def handle(self, raw: RawRequest, sink: ResponseSink) -> Awaitable[None]:
        """Serves one request; see `Pipeline.handle`."""


class RunningAnswers:
    """Requests being answered now, so that a drain can end those that take too long."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ended = False
        """No more time is given."""

    def enter(self, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Task[Any]:
        """Counts the current task, until it is given to `leave`.

        Args:
            loop: The one that runs, where it is known: to ask is a system call before Python 3.12.
        """
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a request is answered inside a task")
        self._tasks.add(task)
        return task

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Its request is over."""
        self._tasks.discard(task)

    def end(self) -> None:
        """Interrupts all of them."""
        self.ended = True
        for task in tuple(self._tasks):
            task.cancel()


def data_server(
    pipeline: Serves,
    readiness: Readiness,
    clock: Clock,
    *,
    max_body_bytes: int,
    memory: BodyMemory,
    keepalive_s: float,
    refused: Callable[[Reason], None],
    running: RunningAnswers,
    shutdown_s: float,
    cors: Cors | None = None,
) -> web.BaseRunner:
    """The server of the data port, not listening yet.

    Args:
        pipeline: Serves what goes to engines.
        readiness: Answers for this process.
        clock: For arrival times.
        max_body_bytes: Largest body accepted.
        memory: Counts what is held of bodies, over all requests.
        keepalive_s: After which an idle client connection is closed.
        refused: Told about every error reply of ours.
        running: Told about every request that goes to an engine.
        shutdown_s: How long connections have when the server closes.
        cors: Which web pages may call; None where nothing is said about it.
    """
    edge = _Edge(
        pipeline,
        readiness,
        clock,
        max_body_bytes=max_body_bytes,
        memory=memory,
        refused=refused,
        running=running,
        cors=cors,
    )
    return web.ServerRunner(
        Server(edge.answered, keepalive_s=keepalive_s), shutdown_timeout=shutdown_s
    )


class _Edge:
    """Handlers of the data port."""

    def __init__(
        self,
        pipeline: Serves,
        readiness: Readiness,
        clock: Clock,
        *,
        max_body_bytes: int,
        memory: BodyMemory,
        refused: Callable[[Reason], None],
        running: RunningAnswers,
        cors: Cors | None,
    ) -> None:
        self._cors = cors
        self._memory = memory
        self._pipeline = pipeline
        self._readiness = readiness
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._refused = refused
        self._running = running
        self._ids = request_ids()

    async def answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves a request; whatever goes wrong, the client gets an answer it can parse."""
        head = _head(request, next(self._ids))
        sink = ClientSink(request, head.headers, self._cors)
        try:
            return await self._answer(request, head, sink)
        except RequestError as error:
            return self._refuse(error, head)
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything.
            named = {"request_id": head.request_id, "path": head.path[:LONGEST_QUOTE]}
            _log.exception("request failed", extra=named)
            flaw = RequestError(Reason.INTERNAL, "Internal error.")
            if not sink.started:
                return self._refuse(flaw, head)
            # A second answer must not follow into the first one, nor an error a whole one.
            return await self._end_with(sink, head, flaw)

    async def _answer(
        self, request: web.BaseRequest, head: _Head, sink: ClientSink
    ) -> web.StreamResponse:
        if "Upgrade" in request.headers and (refused := refused_upgrade(head.headers)):
            raise refused
        if self._cors is not None:
            leave = self._cors.preflight(head.method, head.headers)
            if leave is not None:
                return _ended(web.Response(status=204, headers=CIMultiDict(leave)), head.headers)
        facts = look_up(head.method, head.path)
        if facts.served_by is ServedBy.HERE:
            return self._here(facts, head)
        with self._memory.body() as held:
            raw = RawRequest(
                request_id=head.request_id,
                facts=facts,
                method=head.method,
                path_qs=head.target,
                path=head.path,
                headers=head.headers,
                body=await self._body(request, head, held),
                # Only now: how long a client takes to send a body says nothing about pools or us.
                arrival_s=self._clock.monotonic(),
            )
            return await self._serve(raw, head, sink)

    async def _serve(self, raw: RawRequest, head: _Head, sink: ClientSink) -> web.StreamResponse:
        task = self._running.enter(sink.loop)
        try:
            await self._pipeline.handle(raw, sink)
        except asyncio.CancelledError:
            if not self._running.ended:
                raise
            stopping = RequestError(Reason.DRAINING, "The proxy is stopping.")
            return await self._end_with(sink, head, stopping)
        finally:
            self._running.leave(task)
        return sink.response

    async def _end_with(
        self, sink: ClientSink, head: _Head, error: RequestError
    ) -> web.StreamResponse:
        """Ends an answer that cannot go on, so that nobody takes it for a whole one.

        As `Transfer.break_off` does: by an event where one can be read, else by cutting it. Of one
        that has come to its own end mark nothing is missing.

        Raises:
            RequestError: It has not begun; the error is the answer.
        """
        if not sink.started:
            raise error
        if sink.ended:
            return sink.response
        left = sink.left
        if not sink.takes_events or (left is not None and not left.may_add):
            sink.abort()
            return sink.response
        if left is None:  # only comments have been sent
            dialect = dialect_of(head.path, head.headers)
            sink.write(dialect.error_ending(error, request_id=head.request_id))
        elif not left.complete:
            sink.write(left.ending(error, head.request_id))
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await sink.close()
        except TimeoutError:
            sink.abort()
        return sink.response

    async def _body(self, request: web.BaseRequest, head: _Head, held: HeldBody) -> bytes:
        content = request.content
        if not content.is_eof():
            # Nobody waits for the body of a stranger, nor holds it. One that is here already is
            # looked at when it is served, as all are: a key may be revoked meanwhile.
            self._pipeline.welcome(head.headers)
        self._welcome(request)
        try:
            if content.is_eof():  # it came with the head, as most do
                body = content.read_nowait()
                if len(body) > self._max_body_bytes:
                    raise _too_large()
                held.grow(len(body))
                return body
            return await self._slow_body(content, held)
        except TimeoutError:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body stopped coming before its end."
            ) from None
        except web.RequestPayloadError as error:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body cannot be decoded."
            ) from error

    async def _slow_body(self, content: Any, held: HeldBody) -> bytes:
        """Reads a body that comes in pieces, none of which may keep us waiting for too long."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + BODY_S
        parts: list[bytes] = []
        left = self._max_body_bytes
        # One timer that is put off, instead of one for each piece.
        async with asyncio.timeout(STALLED_S) as patience:
            while True:
                part = await content.readany()
                if not part:
                    return b"".join(parts)
                left -= len(part)
                if left < 0:
                    raise _too_large()
                held.grow(len(part))
                parts.append(part)
                patience.reschedule(min(loop.time() + STALLED_S, ends))

    def _welcome(self, request: web.BaseRequest) -> None:
        """Gives a client that waits for it leave to send its body, unless that is too large."""
        declared = request.content_length or 0
        if declared > self._max_body_bytes:
            raise _too_large()
        self._memory.check(declared)
        expected = request.headers.get("Expect")
        if expected is None or request.version < HttpVersion11:
            return  # to a client of HTTP/1.0 the leave would be the answer (RFC 9110, 10.1.1)
        if expected.lower() != "100-continue":
            raise RequestError(Reason.EXPECTATION_FAILED, "Only `100-continue` can be expected.")
        if request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- What is answered here -------------------------------------------------------------------

    def _here(self, facts: EndpointFacts, head: _Head) -> web.Response:
        names = self._pipeline.names
        match facts.endpoint:
            case Endpoint.MODELS:
                return self._json(200, names.list_body(head.headers), head)
            case Endpoint.MODEL:
                model = part_of(facts, head.path)
                return self._json(200, names.one_body(model, head.headers), head)
            case Endpoint.READY if (reason := self._readiness.not_ready()) is not None:
                body = {"status": "not ready", "reason": reason}
                return self._json(503, orjson.dumps(body), head)
            case Endpoint.READY:
                body = {"status": "ready", "store": self._readiness.store_says()}
                return self._json(200, orjson.dumps(body), head)
            case _:
                # Whether the process is alive; says nothing about engines.
                return self._json(200, b'{"status":"ok"}', head)

    def _refuse(self, error: RequestError, head: _Head) -> web.Response:
        self._refused(error.reason)
        named = self._pipeline.response_headers
        dialect = dialect_of(head.path, head.headers)
        body = dialect.error_body(error, head.request_id if named else None)
        reply = self._json(error.http_status, body, head)
        if named:
            reply.headers["x-specroute-request-id"] = head.request_id
            reply.headers["x-specroute-reason"] = error.reason.value
        if error.retry_after_s is not None:
            reply.headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error, MethodNotAllowedError):
            reply.headers["Allow"] = error.allowed
        return reply

    def _json(self, status: int, body: bytes, head: _Head) -> web.Response:
        headers = () if self._cors is None else self._cors.answered(head.headers, ())
        reply = web.Response(
            status=status,
            body=body,
            content_type="application/json",
            headers=CIMultiDict(headers),
        )
        return _ended(reply, head.headers)


def _ended(reply: web.Response, asked: Headers) -> web.Response:
    if may_hold_trailers(asked):
        reply.force_close()
    return reply


@value
class _Head:
    """What came before the body, and our name for the request."""

    request_id: str
    method: str
    target: str
    path: str
    headers: Headers


def _head(request: web.BaseRequest, request_id: str) -> _Head:
    target = _target(request)
    return _Head(request_id, request.method, target, target.partition("?")[0], _headers(request))


def _too_large() -> RequestError:
    return RequestError(Reason.BODY_TOO_LARGE, "The request body is too large.")


def _target(request: web.BaseRequest) -> str:
    # In the absolute form the target names a host too, which decides nothing here.
    target = request.raw_path
    return target if target.startswith("/") else request.rel_url.raw_path_qs


def _headers(request: web.BaseRequest) -> Headers:
    # From a list: a generator would be resumed for each line.
    lines = tuple(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
    )
    return _decoded(lines) if "Content-Encoding" in request.headers else lines


def _decoded(lines: Headers) -> Headers:
    """Header lines without the coding that aiohttp has undone by the time a body is read.

    That is one, the last that was applied; what it does not know it leaves alone.
    """
    last = max(at for at, (name, _) in enumerate(lines) if name.lower() == "content-encoding")
    if lines[last][1].strip().lower() not in _UNDONE:
        return lines
    return lines[:last] + lines[last + 1 :]
