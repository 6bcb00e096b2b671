"""Whether a plan fits what is configured. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from policies.registry import build_any_policy
from router.classify.configured import class_ids
from router.config.models import Config
from router.config.routes import Route
from router.experiments.bodies import PlanError
from router.experiments.model import Plan, Treatment
from router.fleet.model import build_routes


def check_plan(plan: Plan, config: Config) -> None:
    """Refuses a plan that names what is not there.

    Raises:
        PlanError: The message names the member and what there is.
    """
    routes = {route.model: route for route in config.routes}
    _among("model", plan.model, routes)
    route = routes[plan.model]
    known = class_ids(config.classify)
    for class_id in plan.classes:
        _among("classes", class_id, known)
    tenants = {tenant.id for tenant in config.tenants.known}
    for tenant in plan.tenants:
        _among("tenants", tenant, tenants)
    groups = {tenant.group for tenant in config.tenants.known if tenant.group}
    for group in plan.groups:
        _among("groups", group, groups)
    for name, does in (("treatment", plan.treatment), ("control", plan.control)):
        _check_variant(name, does, route, config)


def _check_variant(name: str, does: Treatment, route: Route, config: Config) -> None:
    if does.arm is not None:
        _among(f"{name}.arm", does.arm, [pool.name for pool in route.pools])
    if does.policy is not None:
        arms = build_routes(config)[route.model].arms
        try:
            build_any_policy(does.policy, dict(does.parameters), arms, class_ids(config.classify))
        except ValueError as error:
            raise PlanError(f"{name}.policy: {error}") from error


def _among(member: str, given: str, there: Collection[str]) -> None:
    if given in there:
        return
    close = difflib.get_close_matches(given, there, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    listed = ", ".join(sorted(there)) or "none"
    raise PlanError(f"{member}: {given!r} is not configured{hint} There are: {listed}")
