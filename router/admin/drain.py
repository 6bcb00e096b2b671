"""Takes one server out for new requests, or puts it back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from router.fleet.state import FleetState, ReplicaState
from router.types import ReplicaId

FleetsFn = Callable[[], Mapping[str, FleetState]]
"""Gives the fleet of every route, by model."""


def add_drain_routes(app: web.Application, fleets: FleetsFn) -> None:
    """Adds `POST /api/replicas/POOL/N/drain` and `/undrain`; `?model=` names the route."""
    for action, draining in (("drain", True), ("undrain", False)):
        path = f"/api/replicas/{{pool}}/{{number}}/{action}"
        app.router.add_post(path, _handler(fleets, draining=draining))


def _handler(
    fleets: FleetsFn, *, draining: bool
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(request: web.Request) -> web.Response:
        replica_id = ReplicaId(f"{request.match_info['pool']}/{request.match_info['number']}")
        asked = request.query.get("model")
        holders = {
            model: fleet
            for model, fleet in fleets().items()
            if asked in (None, model) and _state(fleet, replica_id) is not None
        }
        if not holders:
            return _answer(404, {"error": f"no server is called {replica_id}"})
        if len(holders) > 1:
            models = ", ".join(holders)
            return _answer(409, {"error": f"{replica_id} is in several routes: {models}"})
        [(model, fleet)] = holders.items()
        fleet.drain(replica_id, draining=draining)
        state = _state(fleet, replica_id)
        return _answer(
            200,
            {
                "id": replica_id,
                "model": model,
                "draining": draining,
                "in_flight": state.in_flight if state else 0,
            },
        )

    return handler


def _state(fleet: FleetState, replica_id: ReplicaId) -> ReplicaState | None:
    for states in fleet.view().values():
        for state in states:
            if state.replica.replica_id == replica_id:
                return state
    return None


def _answer(status: int, body: Mapping[str, object]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
