"""The data port: paths, error replies, and the client's side of the relay over aiohttp."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from router.clock import Clock
from router.errors import Reason, RequestError
from router.pipeline import RawRequest
from router.relay.sink import ClientGoneError, ResponseSink, error_ending
from router.types import Endpoint, Headers

STALLED_S = 60.0
"""A client that takes or sends nothing for so long has gone, even if its connection has not; what
nginx's `send_timeout` is by default. For taking it only begins once all buffers are full."""

_NEVER_WAITS = 32 * 1024
"""Bytes that a transport takes at once: below asyncio's high-water mark of 64 KiB."""

_LAST_WORDS_S = 1.0
_EVENT_STREAM = "text/event-stream"

_log = logging.getLogger("specroute.http")


class _Discreet(logging.Filter):
    """aiohttp quotes what it could not read of a request, keys and prompts included."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets everything else pass."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
            return True
        _log.info("request is not readable as HTTP", extra={"error": type(error).__name__})
        return False


SERVER_LOG = logging.getLogger("specroute.server")
"""What aiohttp's server itself has to say."""
SERVER_LOG.addFilter(_Discreet())

MAX_HEADER_BYTES = 64 * 1024
"""Of a header's value and of the request line: as much as engines take."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Readiness(Protocol):
    """Whether this process can serve."""

    def models(self) -> tuple[str, ...]:
        """Names clients may ask for."""

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""


class Serves(Protocol):
    """Whoever serves requests."""

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """Serves one request; see `Pipeline.handle`."""


class AiohttpSink:
    """A client connection of aiohttp's server."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None

    async def start(self, status: int, headers: Headers) -> None:
        """Sends the status line and the headers."""
        response = web.StreamResponse(status=status, headers=CIMultiDict(headers))
        if response.content_type == _EVENT_STREAM:
            # Proxies in front of us must not hold the stream back.
            response.headers.setdefault("X-Accel-Buffering", "no")
            response.headers.setdefault("Cache-Control", "no-cache")
        self.response = response
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGoneError from error

    async def write(self, data: bytes) -> None:
        """Sends bytes, waiting while the client is slow to take them."""
        if self.response is None:
            raise RuntimeError("write before start")
        try:
            if self._has_room(len(data)):
                await self.response.write(data)
                return
            async with asyncio.timeout(STALLED_S):
                await self.response.write(data)
        except TimeoutError as error:
            await self.abort()
            raise ClientGoneError from error
        except ConnectionError as error:
            raise ClientGoneError from error

    def _has_room(self, size: int) -> bool:
        # Spares nearly every piece of a stream the price of a timer.
        transport = self._request.transport
        return transport is None or transport.get_write_buffer_size() + size < _NEVER_WAITS

    async def close(self) -> None:
        """Ends the body."""
        if self.response is None:
            raise RuntimeError("close before start")
        try:
            await self.response.write_eof()
        except ConnectionError as error:
            raise ClientGoneError from error

    async def abort(self) -> None:
        """Cuts the connection."""
        transport = self._request.transport
        if transport is None:
            return
        connection = transport.get_extra_info("socket")
        if connection is not None:
            # A reset, because to a client of HTTP/1.0 an orderly end is the end of the body.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    async def end_with(self, error: RequestError) -> web.StreamResponse:
        """Ends an answer that cannot go on, so that nobody takes it for a whole one.

        Raises:
            RequestError: It has not begun; the error is the answer.
        """
        if self.response is None:
            raise error
        if self.response.content_type != _EVENT_STREAM:
            await self.abort()
            return self.response
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.write(error_ending(error))
                await self.close()
        except (ClientGoneError, TimeoutError):
            await self.abort()
        return self.response


_SINK = web.RequestKey("sink", AiohttpSink)


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


def data_app(
    pipeline: Serves,
    readiness: Readiness,
    clock: Clock,
    *,
    max_body_bytes: int,
    refused: Callable[[Reason], None],
    running: RunningAnswers,
) -> web.Application:
    """The application of the data port.

    Args:
        pipeline: Serves what can speculate.
        readiness: Answers for this process.
        clock: For arrival times.
        max_body_bytes: Largest body accepted.
        refused: Told about every error reply of ours.
        running: Told about every request that goes to an engine.
    """
    edge = _Edge(
        pipeline, readiness, clock, max_body_bytes=max_body_bytes, refused=refused, running=running
    )

    @web.middleware
    async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await edge.answered(request, handler)

    app = web.Application(middlewares=[errors])
    for endpoint in Endpoint:
        app.router.add_post(endpoint.value, edge.generate, expect_handler=edge.expected)
    app.router.add_get("/v1/models", edge.models)
    app.router.add_get("/v1/models/{model:.+}", edge.model)
    app.router.add_get("/health", edge.health)
    app.router.add_get("/ready", edge.ready)
    return app


class _Edge:
    """Handlers of the data port."""

    def __init__(
        self,
        pipeline: Serves,
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

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Requests that can speculate."""
        sink = request[_SINK] = AiohttpSink(request)
        body = await self._body(request)
        raw = RawRequest(
            endpoint=Endpoint(request.path),
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
            return await sink.end_with(RequestError(Reason.DRAINING, "The proxy is stopping."))
        return sink.response or web.Response()

    async def _body(self, request: web.Request) -> bytes:
        parts: list[bytes] = []
        left = self._max_body_bytes
        try:
            while True:
                async with asyncio.timeout(STALLED_S):
                    part = await request.content.readany()
                if not part:
                    return b"".join(parts)
                left -= len(part)
                if left < 0:
                    raise _too_large()
                parts.append(part)
        except TimeoutError:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body stopped coming before its end."
            ) from None
        except web.RequestPayloadError as error:
            raise RequestError(
                Reason.INVALID_REQUEST, "The request body cannot be decoded."
            ) from error

    async def expected(self, request: web.Request) -> web.Response | None:
        """Gives a client that waits for it leave to send its body, unless that is too large."""
        if (request.content_length or 0) > self._max_body_bytes:
            return self._refuse(_too_large())
        if request.headers["Expect"].lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer itself has not begun
        return None

    async def models(self, request: web.Request) -> web.Response:
        """One name for each route."""
        del request
        data = [_model(name) for name in self._readiness.models()]
        return _json(200, {"object": "list", "data": data})

    async def model(self, request: web.Request) -> web.Response:
        """One route's name."""
        name = request.match_info["model"]
        if name not in self._readiness.models():
            raise RequestError(
                Reason.UNKNOWN_MODEL, f"The model {name!r} is not served here.", param="model"
            )
        return _json(200, _model(name))

    async def health(self, request: web.Request) -> web.Response:
        """Whether the process is alive; says nothing about engines."""
        del request
        return _json(200, {"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """Whether the process can serve."""
        del request
        reason = self._readiness.not_ready()
        if reason is not None:
            return _json(503, {"status": "not ready", "reason": reason})
        return _json(200, {"status": "ready"})

    async def answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Runs a handler; whatever goes wrong, the client gets an answer it can parse."""
        try:
            return await handler(request)
        except RequestError as error:
            return self._refuse(error)
        except web.HTTPException as error:
            reply = self._refuse(_as_request_error(error, request))
            if "Allow" in error.headers:
                reply.headers["Allow"] = error.headers["Allow"]
            return reply
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything.
            _log.exception("request failed", extra={"path": request.path})
            flaw = RequestError(Reason.INTERNAL, "Internal error.")
            sink: AiohttpSink | None = request.get(_SINK)
            if sink is None or sink.response is None:
                return self._refuse(flaw)
            # A second answer must not follow into the first one.
            return await sink.end_with(flaw)

    def _refuse(self, error: RequestError) -> web.Response:
        self._refused(error.reason)
        return web.Response(
            status=error.http_status,
            body=error.body(),
            content_type="application/json",
            headers={"x-specroute-reason": error.reason.value},
        )


def _as_request_error(error: web.HTTPException, request: web.Request) -> RequestError:
    match error:
        case web.HTTPRequestEntityTooLarge():
            return _too_large()
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return RequestError(
                Reason.METHOD_NOT_ALLOWED,
                f"{request.method} is not allowed on {request.path}; allowed: {allowed}.",
            )
        case web.HTTPNotFound():
            return RequestError(Reason.UNKNOWN_PATH, f"Unknown path: {request.path}.")
        case _:
            return RequestError(Reason.INVALID_REQUEST, error.reason)


def _too_large() -> RequestError:
    return RequestError(Reason.BODY_TOO_LARGE, "The request body is too large.")


def _target(request: web.Request) -> str:
    # In the absolute form the target names a host too, which decides nothing here.
    target = request.raw_path
    return target if target.startswith("/") else request.rel_url.raw_path_qs


def _headers(request: web.Request) -> Headers:
    # aiohttp has undone a content coding of the body by the time it is read.
    return tuple(
        (name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
        for name, value in request.raw_headers
        if name.lower() != b"content-encoding"
    )


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specroute"}


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
