"""Takes one server out for new requests, or puts it back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from aiohttp import web

from router.fleet.state import FleetState, ReplicaState
from router.types import ReplicaId


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """What an operator wants of one server."""

    replica_id: str
    model: str | None
    """The route that is meant; None where the name alone tells."""
    draining: bool


Answer = tuple[int, dict[str, Any]]
"""Status and body of the reply."""

_NAMED = 16
"""Servers that an error names."""

DrainFn = Callable[[DrainOrder], Awaitable[Answer]]


def add_drain_routes(app: web.Application, drain: DrainFn) -> None:
    """Adds `POST /api/replicas/POOL/N/drain` and `/undrain`; `?model=` names the route."""
    for action, draining in (("drain", True), ("undrain", False)):
        path = f"/api/replicas/{{pool}}/{{number}}/{action}"
        app.router.add_post(path, _handler(drain, draining=draining))


def _handler(drain: DrainFn, *, draining: bool) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(request: web.Request) -> web.Response:
        replica_id = f"{request.match_info['pool']}/{request.match_info['number']}"
        order = DrainOrder(replica_id, request.query.get("model"), draining)
        status, body = await drain(order)
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")

    return handler


def drain_here(fleets: Mapping[str, FleetState], order: DrainOrder) -> Answer:
    """Carries out an order on the fleets of this process, which are given by model."""
    replica_id = ReplicaId(order.replica_id)
    holders = {
        model: fleet
        for model, fleet in fleets.items()
        if order.model in (None, model) and _state(fleet, replica_id) is not None
    }
    if not holders:
        return 404, {
            "error": f"no server is called {replica_id}{_those_there(fleets, order.model)}"
        }
    if len(holders) > 1:
        models = ", ".join(holders)
        return 409, {"error": f"{replica_id} is in several routes: {models}"}
    [(model, fleet)] = holders.items()
    fleet.drain(replica_id, draining=order.draining)
    state = _state(fleet, replica_id)
    return 200, {
        "id": replica_id,
        "model": model,
        "draining": order.draining,
        "in_flight": state.in_flight if state else 0,
    }


def together(answers: Sequence[Answer]) -> Answer:
    """The answers of several processes to one order, as one; there must be one."""
    refused = next((answer for answer in answers if answer[0] != 200), None)  # noqa: PLR2004 - OK
    if refused is not None:
        return refused
    status, body = answers[0]
    return status, {**body, "in_flight": sum(body["in_flight"] for _, body in answers)}


def order_json(order: DrainOrder) -> dict[str, Any]:
    """An order as JSON values."""
    return asdict(order)


def _those_there(fleets: Mapping[str, FleetState], model: str | None) -> str:
    """What an operator may have meant, for the end of a sentence."""
    if model is not None and model not in fleets:
        return f": no route has the model {model!r}; there are {', '.join(map(repr, fleets))}"
    names = [
        state.replica.replica_id
        for name, fleet in fleets.items()
        if model in (None, name)
        for states in fleet.view().values()
        for state in states
    ]
    shown = ", ".join(dict.fromkeys(names[:_NAMED]))
    return f"; there are {shown}{', …' if len(names) > _NAMED else ''}" if names else ""


def _state(fleet: FleetState, replica_id: ReplicaId) -> ReplicaState | None:
    for states in fleet.view().values():
        for state in states:
            if state.replica.replica_id == replica_id:
                return state
    return None
