"""Paths of the dashboard on the admin port: pages, live state, the past, decisions, advice."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from router.clock import Clock
from router.dashboard.feed import Feed, StateFn
from router.dashboard.pages import add_pages
from router.recommend.aside import NoRecommendationError, Recommender

MAX_DECISIONS = 200
"""Decisions told at a time."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What the pages are fed from."""

    history: Callable[[float, str | None], Awaitable[dict[str, Any]]]
    """Given since when and of which class (None for all together)."""
    decisions: Callable[[str | None, int], Awaitable[list[dict[str, Any]]]]
    """The newest decisions, or the one with a request id; given the id and how many at most."""
    beliefs: Callable[[], Awaitable[dict[str, Any]]]
    """What the policies believe."""
    clock: Clock


def add_dashboard(app: web.Application, state: StateFn, sources: Sources) -> None:
    """Adds pages and what feeds them."""

    async def history(request: web.Request) -> web.Response:
        since = _seconds(request.query.get("since"), sources.clock.wall() - 3600.0)
        return _json(200, await sources.history(since, request.query.get("class")))

    async def decisions(request: web.Request) -> web.Response:
        limit = int(_seconds(request.query.get("limit"), 50.0))
        found = await sources.decisions(None, min(max(limit, 1), MAX_DECISIONS))
        return _json(200, {"decisions": found})

    async def decision(request: web.Request) -> web.Response:
        request_id = request.match_info["request_id"]
        found = await sources.decisions(request_id, 1)
        if not found:
            return _json(404, {"error": f"no decision about {request_id} is remembered"})
        return _json(200, found[0])

    async def beliefs(_: web.Request) -> web.Response:
        return _json(200, await sources.beliefs())

    recommender = Recommender(state, sources.clock)

    async def recommend(request: web.Request) -> web.Response:
        try:
            return _json(200, await recommender.answer(anew="anew" in request.query))
        except NoRecommendationError as error:
            return _json(503, {"error": f"nothing is recommended: {error}"})

    feed = Feed(state, sources.clock)
    app.on_shutdown.append(feed.close)
    app.router.add_get("/api/events", feed.serve)
    app.router.add_get("/api/history", history)
    app.router.add_get("/api/beliefs", beliefs)
    app.router.add_get("/api/recommend", recommend)
    app.router.add_get("/api/decisions", decisions)
    app.router.add_get("/api/decisions/{request_id}", decision)
    add_pages(app)


def _seconds(text: str | None, otherwise: float) -> float:
    try:
        value = float(text) if text is not None else otherwise
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise web.HTTPBadRequest(text=f"{text!r} is no number\n")
    return value


def _json(status: int, body: object) -> web.Response:
    return web.Response(
        status=status,
        body=orjson.dumps(body),
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
