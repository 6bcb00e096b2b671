"""The data port: paths, error replies, and the client's side of the relay over aiohttp."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import orjson
from aiohttp import web
from multidict import CIMultiDict

from router.clock import Clock
from router.errors import Reason, RequestError
from router.pipeline import Pipeline, RawRequest
from router.relay.sink import ClientGoneError
from router.types import Endpoint, Headers

_log = logging.getLogger("specroute.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Readiness(Protocol):
    """Whether this process can serve."""

    def models(self) -> tuple[str, ...]:
        """Names clients may ask for."""

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""


class AiohttpSink:
    """A client connection of aiohttp's server."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None

    async def start(self, status: int, headers: Headers) -> None:
        """Sends the status line and the headers."""
        response = web.StreamResponse(status=status, headers=CIMultiDict(headers))
        if (response.content_type or "").lower() == "text/event-stream":
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
            await self.response.write(data)
        except ConnectionError as error:
            raise ClientGoneError from error

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
        if transport is not None:
            transport.abort()


def data_app(
    pipeline: Pipeline,
    readiness: Readiness,
    clock: Clock,
    *,
    max_body_bytes: int,
    refused: Callable[[Reason], None],
) -> web.Application:
    """The application of the data port.

    Args:
        pipeline: Serves what can speculate.
        readiness: Answers for this process.
        clock: For arrival times.
        max_body_bytes: Largest body accepted.
        refused: Told about every error reply of ours.
    """
    edge = _Edge(pipeline, readiness, clock, refused)

    @web.middleware
    async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await edge.answered(request, handler)

    app = web.Application(client_max_size=max_body_bytes, middlewares=[errors])
    for endpoint in Endpoint:
        app.router.add_post(endpoint.value, edge.generate)
    app.router.add_get("/v1/models", edge.models)
    app.router.add_get("/v1/models/{model:.+}", edge.model)
    app.router.add_get("/health", edge.health)
    app.router.add_get("/ready", edge.ready)
    return app


class _Edge:
    """Handlers of the data port."""

    def __init__(
        self,
        pipeline: Pipeline,
        readiness: Readiness,
        clock: Clock,
        refused: Callable[[Reason], None],
    ) -> None:
        self._pipeline = pipeline
        self._readiness = readiness
        self._clock = clock
        self._refused = refused

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Requests that can speculate."""
        arrival_s = self._clock.monotonic()
        sink = AiohttpSink(request)
        raw = RawRequest(
            endpoint=Endpoint(request.path),
            path_qs=request.raw_path,
            headers=_headers(request),
            body=await request.read(),
            arrival_s=arrival_s,
        )
        await self._pipeline.handle(raw, sink)
        return sink.response or web.Response()

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
            return self._refuse(_as_request_error(error, request))
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything.
            _log.exception("request failed", extra={"path": request.path})
            return self._refuse(RequestError(Reason.INTERNAL, "Internal error."))

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
            return RequestError(Reason.BODY_TOO_LARGE, "The request body is too large.")
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
