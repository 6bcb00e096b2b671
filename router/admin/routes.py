"""Paths of the admin port: it shows, and it takes a few orders from whoever may give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from router.admin.drain import DrainFn, add_drain_routes
from router.admin.orders import Desks, add_order_routes
from router.dashboard.guard import Guard
from router.dashboard.routes import Sources, add_dashboard

StateFn = Callable[[], Awaitable[dict[str, Any]]]
ReloadFn = Callable[[], Awaitable[dict[str, Any] | None]]
"""Reads the configuration again and tells what came of it; None where there is no file to read."""


def admin_app(
    state: StateFn,
    exposition: Callable[[], Awaitable[bytes]],
    reload: ReloadFn,
    drain: DrainFn,
    *,
    sources: Sources,
    token: str | None = None,
    desks: Desks | None = None,
) -> web.Application:
    """The application of the admin port.

    Args:
        state: Makes the state.
        exposition: Makes the text that Prometheus scrapes.
        reload: Reads the configuration again.
        drain: Takes a server out, or puts it back.
        sources: What the dashboard is fed from.
        token: That everybody has to show; None on loopback.
        desks: Who take orders about tenants and experiments.
    """

    async def api_state(_: web.Request) -> web.Response:
        return _json(200, await state())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def api_reload(_: web.Request) -> web.Response:
        done = await reload()
        if done is None:
            return _json(409, {"error": "The configuration did not come from a file."})
        return _json(200 if done["result"] == "applied" else 422, done)

    app = web.Application()
    Guard(token, sources.clock).install(app)
    app.router.add_get("/api/state", api_state)
    app.router.add_post("/api/reload", api_reload)
    app.router.add_get("/metrics", metrics)
    add_drain_routes(app, drain)
    if desks is not None:
        add_order_routes(app, desks)
    add_dashboard(app, state, sources)
    return app


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
