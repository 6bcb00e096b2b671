"""Paths of the admin port: it shows, and it takes a few orders from whoever is on this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from router.admin.drain import DrainFn, add_drain_routes
from router.admin.orders import Desks, add_order_routes

StateFn = Callable[[], Awaitable[dict[str, Any]]]
ReloadFn = Callable[[], Awaitable[dict[str, Any] | None]]
"""Reads the configuration again and tells what came of it; None where there is no file to read."""

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


def admin_app(
    state: StateFn,
    exposition: Callable[[], Awaitable[bytes]],
    reload: ReloadFn,
    drain: DrainFn,
    desks: Desks | None = None,
) -> web.Application:
    """The application of the admin port."""

    async def api_state(_: web.Request) -> web.Response:
        return _json(200, await state())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def api_reload(_: web.Request) -> web.Response:
        done = await reload()
        if done is None:
            return _json(409, {"error": "The configuration did not come from a file."})
        return _json(200 if done["result"] == "applied" else 422, done)

    app = web.Application(middlewares=[_loopback_name, _same_origin])
    app.router.add_get("/api/state", api_state)
    app.router.add_post("/api/reload", api_reload)
    app.router.add_get("/metrics", metrics)
    add_drain_routes(app, drain)
    if desks is not None:
        add_order_routes(app, desks)
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


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _static(name: str) -> Callable[[web.Request], Any]:
    body = files("router.admin").joinpath("static", name).read_bytes()
    content_type = _TYPES[name.rsplit(".", 1)[1]]

    async def serve_file(_: web.Request) -> web.Response:
        return web.Response(
            body=body, content_type=content_type, charset="utf-8", headers=_PAGE_HEADERS
        )

    return serve_file
