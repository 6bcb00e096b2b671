"""Paths of the admin port: what it shows, and the one thing it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from router.admin.drain import FleetsFn, add_drain_routes

StateFn = Callable[[], dict[str, Any]]

_READING = ("GET", "HEAD")

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


def admin_app(state: StateFn, exposition: Callable[[], bytes], fleets: FleetsFn) -> web.Application:
    """The application of the admin port."""

    async def api_state(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(state()), content_type="application/json")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[_loopback_name, _same_origin])
    app.router.add_get("/api/state", api_state)
    app.router.add_get("/metrics", metrics)
    add_drain_routes(app, fleets)
    for path, name in (
        ("/", "status.html"),
        ("/status.js", "status.js"),
        ("/status.css", "status.css"),
    ):
        app.router.add_get(path, _static(name))
    return app


@web.middleware
async def _loopback_name(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuses other names for this address, by which a foreign web page could read it."""
    host = request.headers.get("Host", "").lower()
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name not in _LOOPBACK_NAMES:
        raise web.HTTPForbidden(text="The admin port answers to localhost only.\n")
    return await handler(request)


@web.middleware
async def _same_origin(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuses what a foreign web page sends; a browser lets it, and only hides the answer."""
    if request.method not in _READING:
        origin = request.headers.get("Origin")
        host = request.headers.get("Host", "")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if origin not in (None, f"http://{host}") or site not in ("none", "same-origin"):
            raise web.HTTPForbidden(text="Changes come from this page or from no page at all.\n")
    return await handler(request)


def _static(name: str) -> Callable[[web.Request], Any]:
    body = files("router.admin").joinpath("static", name).read_bytes()
    content_type = _TYPES[name.rsplit(".", 1)[1]]

    async def serve_file(_: web.Request) -> web.Response:
        return web.Response(
            body=body, content_type=content_type, charset="utf-8", headers=_PAGE_HEADERS
        )

    return serve_file
