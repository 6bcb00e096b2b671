"""Paths of the admin port by which operators manage keys, experiments and quarantines.

`GET /api/openapi.json` describes them, out of the same table that serves them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from router import __version__
from router.errors import StoreError
from router.experiments.bodies import PlanError, WrittenPlan
from router.experiments.desk import ExperimentDesk, UnknownExperimentError
from router.experiments.forecast import DEFAULT_EFFECT
from router.experiments.model import ExperimentName
from router.experiments.report import markdown
from router.experiments.rollout import TransitionError
from router.sentinel.desk import QuarantineDesk, UnknownQuarantineError, cell_name
from router.tenants.keyring import KeyDesk
from router.tenants.keys import KeyOrderError
from router.types import TenantId

_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")
_MOST_BYTES = 256 * 1024


class Order(BaseModel):
    """Who orders it, and why; both stand in the audit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    who: str = Field("admin port", min_length=1, max_length=128)
    why: str = Field("", max_length=2000)


class RampOrder(Order):
    """To which stage; stages are counted from 0."""

    stage: int | None = Field(None, ge=0, description="null for the next.")


class StartOrder(Order):
    """What is to begin."""

    plan: WrittenPlan


class PlanOrder(BaseModel):
    """What is thought of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: WrittenPlan
    effect: float = Field(
        DEFAULT_EFFECT, gt=0, lt=1, description="Smallest gain that matters, as a share of time."
    )


class SwitchOrder(Order):
    """Whether any request may be sent to a pool that speculates."""

    on: bool


class RotateOrder(BaseModel):
    """How long the old key still holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_s: float = Field(86_400.0, ge=0, le=90 * 86_400, description="In seconds.")


class LiftOrder(Order):
    """Which pool may serve a class again."""

    model: str = Field(min_length=1, max_length=256)
    pool: str = Field(min_length=1, max_length=256)
    class_id: str = Field(alias="class", min_length=1, max_length=256)


class Nothing(BaseModel):
    """No member."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Desks:
    """Who carries orders out."""

    keys: KeyDesk
    experiments: ExperimentDesk
    tenants: Callable[[], frozenset[str]]
    """Tenants that are configured now."""
    quarantines: QuarantineDesk
    holdout: Callable[[str], Awaitable[object]]
    """What was saved in a month, by model and tenant."""
    wall: Callable[[], float]


Answer = tuple[int, object]
_Act = Callable[[Desks, Mapping[str, str], Any], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class _Path:
    method: str
    path: str
    summary: str
    body: type[BaseModel] | None
    act: _Act


async def _list_keys(desks: Desks, _: Mapping[str, str], __: Any) -> Answer:
    now = desks.wall()
    return 200, {"keys": [record.shown(now) for record in await desks.keys.listed()]}


async def _create_key(desks: Desks, at: Mapping[str, str], _: Any) -> Answer:
    tenant = at["tenant"]
    if tenant not in desks.tenants():
        there = ", ".join(sorted(desks.tenants())) or "none"
        return 404, {"error": f"no tenant is called {tenant!r} in tenants.known; there are {there}"}
    key, record = await desks.keys.create(TenantId(tenant))
    return 201, {"key": key, **record.shown(desks.wall())}


async def _rotate_key(desks: Desks, at: Mapping[str, str], order: RotateOrder) -> Answer:
    key, record = await desks.keys.rotate(at["key_id"], order.grace_s)
    return 201, {"key": key, **record.shown(desks.wall())}


async def _revoke_key(desks: Desks, at: Mapping[str, str], _: Any) -> Answer:
    return 200, (await desks.keys.revoke(at["key_id"])).shown(desks.wall())


async def _list(desks: Desks, _: Mapping[str, str], __: Any) -> Answer:
    return 200, await desks.experiments.listed()


async def _plan(desks: Desks, _: Mapping[str, str], order: PlanOrder) -> Answer:
    given = order.plan.model_dump(mode="json")
    return 200, await desks.experiments.plan(given, effect=order.effect)


async def _start(desks: Desks, _: Mapping[str, str], order: StartOrder) -> Answer:
    return 201, await desks.experiments.start(order.plan.model_dump(mode="json"), order.who)


async def _show(desks: Desks, at: Mapping[str, str], _: Any) -> Answer:
    return 200, await desks.experiments.shown(ExperimentName(at["name"]))


async def _report(desks: Desks, at: Mapping[str, str], _: Any) -> Answer:
    return 200, markdown(await desks.experiments.shown(ExperimentName(at["name"])))


async def _ramp(desks: Desks, at: Mapping[str, str], order: RampOrder) -> Answer:
    name = ExperimentName(at["name"])
    return 200, await desks.experiments.ramp(name, order.who, order.stage)


async def _pause(desks: Desks, at: Mapping[str, str], order: Order) -> Answer:
    return 200, await desks.experiments.pause(ExperimentName(at["name"]), order.who, order.why)


async def _resume(desks: Desks, at: Mapping[str, str], order: Order) -> Answer:
    return 200, await desks.experiments.resume(ExperimentName(at["name"]), order.who)


async def _stop(desks: Desks, at: Mapping[str, str], order: Order) -> Answer:
    return 200, await desks.experiments.stop(ExperimentName(at["name"]), order.who, order.why)


async def _switch(desks: Desks, _: Mapping[str, str], order: SwitchOrder) -> Answer:
    return 200, await desks.experiments.switch(on=order.on, who=order.who, why=order.why)


async def _quarantines(desks: Desks, _: Mapping[str, str], __: Any) -> Answer:
    return 200, await desks.quarantines.listed()


async def _lift(desks: Desks, _: Mapping[str, str], order: LiftOrder) -> Answer:
    cell = cell_name(order.pool, order.class_id)
    return 200, await desks.quarantines.lift(order.model, cell, order.who, order.why)


async def _holdout(desks: Desks, at: Mapping[str, str], _: Any) -> Answer:
    month = at["month"]
    if _MONTH.fullmatch(month) is None:
        return 422, {"error": f"{month!r} is no month; write YYYY-MM"}
    return 200, {"month": month, "models": await desks.holdout(month)}


_UNKNOWN = (UnknownExperimentError, UnknownQuarantineError)
_ONE = "/api/experiments/{name}"

PATHS = (
    _Path("GET", "/api/tenants/keys", "All keys, without the keys themselves.", None, _list_keys),
    _Path(
        "POST",
        "/api/tenants/{tenant}/keys",
        "Make a key; it is shown this once.",
        Nothing,
        _create_key,
    ),
    _Path(
        "POST",
        "/api/tenants/keys/{key_id}/rotate",
        "Make a key in the place of another, which holds for a while.",
        RotateOrder,
        _rotate_key,
    ),
    _Path("POST", "/api/tenants/keys/{key_id}/revoke", "Revoke a key.", Nothing, _revoke_key),
    _Path("GET", "/api/experiments", "All experiments.", None, _list),
    _Path("POST", "/api/experiments", "Let an experiment begin.", StartOrder, _start),
    _Path("POST", "/api/experiments/plan", "What a plan will need.", PlanOrder, _plan),
    _Path("GET", _ONE, "One experiment: plan, figures, audit.", None, _show),
    _Path("GET", f"{_ONE}/report", "The same as a page in Markdown.", None, _report),
    _Path("POST", f"{_ONE}/ramp", "Move to another stage.", RampOrder, _ramp),
    _Path("POST", f"{_ONE}/pause", "Treat nobody for a while.", Order, _pause),
    _Path("POST", f"{_ONE}/resume", "Go on.", Order, _resume),
    _Path("POST", f"{_ONE}/stop", "End it; everybody is back on the control.", Order, _stop),
    _Path("GET", "/api/quarantine", "What is quarantined, and why.", None, _quarantines),
    _Path("POST", "/api/quarantine/lift", "Let a pool serve a class again.", LiftOrder, _lift),
    _Path("GET", "/api/holdout/{month}", "What was saved, by tenant.", None, _holdout),
    _Path("POST", "/api/speculation", "Turn speculation off or on.", SwitchOrder, _switch),
)
"""All there is."""


def add_order_routes(app: web.Application, desks: Desks) -> None:
    """Adds all paths, and the document that describes them."""
    described = orjson.dumps(openapi())

    async def document(_: web.Request) -> web.Response:
        return web.Response(body=described, content_type="application/json")

    app.router.add_get("/api/openapi.json", document)
    for path in PATHS:
        app.router.add_route(path.method, path.path, _handler(desks, path))


def openapi() -> dict[str, Any]:
    """The paths as an OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for path in PATHS:
        said: dict[str, Any] = {
            "summary": path.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in _names(path.path)
            ],
            "responses": {
                "default": {
                    "description": "Done; or, from 400 on, an object with the member `error`.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
            },
        }
        if path.body is not None:
            schema = path.body.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            schemas[path.body.__name__] = schema
            reference = {"$ref": f"#/components/schemas/{path.body.__name__}"}
            said["requestBody"] = {"content": {"application/json": {"schema": reference}}}
        paths.setdefault(path.path, {})[path.method.lower()] = said
    return {
        "openapi": "3.1.0",
        "info": {"title": "Specroute: tenants, experiments, quarantines", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _handler(desks: Desks, path: _Path) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(request: web.Request) -> web.Response:
        try:
            order = None if path.body is None else await _order(request, path.body)
            status, told = await path.act(desks, request.match_info, order)
        except (PlanError, ValidationError, ValueError) as error:
            status, told = 422, {"error": _words(error)}
        except (*_UNKNOWN, TransitionError, KeyOrderError) as error:
            status = 404 if isinstance(error, _UNKNOWN) else 409
            told = {"error": str(error)}
        except StoreError as error:
            status, told = 503, {"error": f"the store does not answer: {error}"}
        if isinstance(told, str):
            return web.Response(status=status, text=told, content_type="text/markdown")
        return web.Response(
            status=status,
            body=orjson.dumps(told),
            content_type="application/json",
            headers={"Cache-Control": "no-store"},  # an answer may hold a key
        )

    return handler


async def _order(request: web.Request, body: type[BaseModel]) -> BaseModel:
    if (request.content_length or 0) > _MOST_BYTES:
        raise ValueError("the body is too large")
    data = await request.read()
    return body.model_validate_json(data or b"{}")


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        told = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, told["loc"])) or "body"
        return f"{place}: {told['msg']}"
    return str(error)
