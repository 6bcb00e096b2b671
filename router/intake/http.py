"""The data port: what is served where, bodies read within limits, and errors of our own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import orjson
from aiohttp import web

from router.clock import Clock
from router.errors import Reason, RequestError
from router.intake.server import STALLED_S, ClientSink, Server
from router.pipeline import Pipeline, RawRequest
from router.relay.sink import error_ending
from router.types import Endpoint, Headers

BODY_S = 600.0
"""For a whole body to arrive: half a megabit a second carries the largest accepted by default."""

_LAST_WORDS_S = 1.0
_EVENT_STREAM = "text/event-stream"
_GET = frozenset(("GET", "HEAD"))

_log = logging.getLogger("specroute.http")


class Readiness(Protocol):
    """Whether this process can serve."""

    def models(self) -> tuple[str, ...]:
        """Names clients may ask for."""

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""


class RunningAnswers:
    """Requests being answered now, so that a drain can end those that take too long."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.ended = False
        """No more time is given."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Counts the current task for as long as the block runs."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is answered inside a task")
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        """Interrupts all of them."""
        self.ended = True
        for task in tuple(self._tasks):
            task.cancel()


def data_server(
    pipeline: Pipeline,
    readiness: Readiness,
    clock: Clock,
    *,
    max_body_bytes: int,
    keepalive_s: float,
    refused: Callable[[Reason], None],
    running: RunningAnswers,
    shutdown_s: float,
) -> web.BaseRunner:
    """The server of the data port, not listening yet.

    Args:
        pipeline: Serves what goes to engines.
        readiness: Answers for this process.
        clock: For arrival times.
        max_body_bytes: Largest body accepted.
        keepalive_s: After which an idle client connection is closed.
        refused: Told about every error reply of ours.
        running: Told about every request that goes to an engine.
        shutdown_s: How long connections have when the server closes.
    """
    edge = _Edge(
        pipeline, readiness, clock, max_body_bytes=max_body_bytes, refused=refused, running=running
    )
    return web.ServerRunner(
        Server(edge.answered, keepalive_s=keepalive_s), shutdown_timeout=shutdown_s
    )


class _Edge:
    """Handlers of the data port."""

    def __init__(
        self,
        pipeline: Pipeline,
        readiness: Readiness,
        clock: Clock,
        *,
        max_body_bytes: int,
        refused: Callable[[Reason], None],
        running: RunningAnswers,
    ) -> None:
        self._pipeline = pipeline
        self._readiness = readiness
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._refused = refused
        self._running = running

    async def answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves a request; whatever goes wrong, the client gets an answer it can parse."""
        sink = ClientSink(request)
        try:
            return await self._answer(request, sink)
        except RequestError as error:
            return self._refuse(error)
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything.
            _log.exception("request failed", extra={"path": request.path})
            flaw = RequestError(Reason.INTERNAL, "Internal error.")
            if not sink.started:
                return self._refuse(flaw)
            # A second answer must not follow into the first one.
            return await self._end_with(sink, flaw)

    async def _answer(self, request: web.BaseRequest, sink: ClientSink) -> web.StreamResponse:
        path = request.path
        endpoint = _GENERATING.get(path)
        if endpoint is not None:
            if request.method != "POST":
                raise _not_allowed(request, "POST")
            return await self._generate(request, endpoint, sink)
        local = self._local(path)
        if local is None:
            raise RequestError(Reason.UNKNOWN_PATH, f"Unknown path: {path[:128]}.")
        if request.method not in _GET:
            raise _not_allowed(request, "GET, HEAD")
        return local()

    async def _generate(
        self, request: web.BaseRequest, endpoint: Endpoint, sink: ClientSink
    ) -> web.StreamResponse:
        """Requests that can speculate."""
        body = await self._body(request)
        raw = RawRequest(
            endpoint=endpoint,
            method=request.method,
            path_qs=_target(request),
            headers=_headers(request),
            body=body,
            # Only now: how long a client takes to send a body says nothing about pools or about us.
            arrival_s=self._clock.monotonic(),
        )
        try:
            with self._running.entered():
                await self._pipeline.handle(raw, sink)
        except asyncio.CancelledError:
            if not self._running.ended:
                raise
            return await self._end_with(
                sink, RequestError(Reason.DRAINING, "The proxy is stopping.")
            )
        return sink.response

    async def _end_with(self, sink: ClientSink, error: RequestError) -> web.StreamResponse:
        """Ends an answer that cannot go on, so that nobody takes it for a whole one.

        Raises:
            RequestError: It has not begun; the error is the answer.
        """
        if not sink.started:
            raise error
        if not sink.event_stream:
            sink.abort()
            return sink.response
        sink.write(error_ending(error))
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await sink.close()
        except TimeoutError:
            sink.abort()
        return sink.response

    async def _body(self, request: web.BaseRequest) -> bytes:
        await self._welcome(request)
        content = request.content
        try:
            if content.is_eof():  # it came with the head, as most do
                body = content.read_nowait()
                if len(body) > self._max_body_bytes:
                    raise _too_large()
                return body
            async with asyncio.timeout(BODY_S):
                return await self._slow_body(content)
        except TimeoutError:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body stopped coming before its end."
            ) from None
        except web.RequestPayloadError as error:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body cannot be decoded."
            ) from error

    async def _slow_body(self, content: Any) -> bytes:
        parts: list[bytes] = []
        left = self._max_body_bytes
        while True:
            async with asyncio.timeout(STALLED_S):
                part = await content.readany()
            if not part:
                return b"".join(parts)
            left -= len(part)
            if left < 0:
                raise _too_large()
            parts.append(part)

    async def _welcome(self, request: web.BaseRequest) -> None:
        """Gives a client that waits for it leave to send its body, unless that is too large."""
        if (request.content_length or 0) > self._max_body_bytes:
            raise _too_large()
        expected = request.headers.get("Expect")
        if expected is None:
            return
        if expected.lower() != "100-continue":
            raise RequestError(Reason.EXPECTATION_FAILED, "Only `100-continue` can be expected.")
        if request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- What is answered here -------------------------------------------------------------------

    def _local(self, path: str) -> Callable[[], web.Response] | None:
        match path:
            case "/v1/models":
                return self._models
            case "/health":
                return self._health
            case "/ready":
                return self._ready
            case _ if path.startswith("/v1/models/"):
                return lambda: self._model(path.removeprefix("/v1/models/"))
        return None

    def _models(self) -> web.Response:
        data = [_model(name) for name in self._readiness.models()]
        return _json(200, {"object": "list", "data": data})

    def _model(self, name: str) -> web.Response:
        if name not in self._readiness.models():
            raise RequestError(
                Reason.UNKNOWN_MODEL, f"The model {name[:128]!r} is not served here.", param="model"
            )
        return _json(200, _model(name))

    def _health(self) -> web.Response:
        """Whether the process is alive; says nothing about engines."""
        return _json(200, {"status": "ok"})

    def _ready(self) -> web.Response:
        """Whether the process can serve."""
        reason = self._readiness.not_ready()
        if reason is not None:
            return _json(503, {"status": "not ready", "reason": reason})
        return _json(200, {"status": "ready"})

    def _refuse(self, error: RequestError) -> web.Response:
        self._refused(error.reason)
        reply = web.Response(
            status=error.http_status,
            body=error.body(),
            content_type="application/json",
            headers={"x-specroute-reason": error.reason.value},
        )
        if error.allow is not None:
            reply.headers["Allow"] = error.allow
        return reply


_GENERATING = {endpoint.value: endpoint for endpoint in Endpoint}


def _not_allowed(request: web.BaseRequest, allowed: str) -> RequestError:
    return RequestError(
        Reason.METHOD_NOT_ALLOWED,
        f"{request.method} is not allowed on {request.path[:128]}; allowed: {allowed}.",
        allow=allowed,
    )


def _too_large() -> RequestError:
    return RequestError(Reason.BODY_TOO_LARGE, "The request body is too large.")


def _target(request: web.BaseRequest) -> str:
    # In the absolute form the target names a host too, which decides nothing here.
    target = request.raw_path
    return target if target.startswith("/") else request.rel_url.raw_path_qs


def _headers(request: web.BaseRequest) -> Headers:
    # aiohttp has undone a content coding of the body by the time it is read.
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in request.raw_headers
        if name.lower() != b"content-encoding"
    )


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specroute"}


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
