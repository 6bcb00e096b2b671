"""What the policy of each route believes of its pools, as JSON values. It adds nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.base import ContextPolicy, Policy
from policies.beliefs import Beliefs, Exploring, TellsOfMoments, TellsOfViews, Told
from policies.types import Arm, ArmId, ArmView, ClassId
from router.breath import breathe
from router.estimates.snapshot import ClassSnapshot, Snapshot
from router.selection.plans import Plan, idle_moment

_DIGITS = 4
"""Of a density that is drawn some thirty pixels high."""

_FLAWS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What code raises that meets what it did not expect. A policy may be somebody's own."""


@dataclass(frozen=True, slots=True)
class AskedPolicy:
    """A route's policy, and what it knows now."""

    model: str
    policy: Policy | ContextPolicy
    plan: Plan
    snapshot: Snapshot


async def beliefs_json(routes: Iterable[AskedPolicy], wall: float) -> dict[str, Any]:
    """Beliefs by route and class; requests get their turn in between.

    Args:
        routes: Whose.
        wall: The moment, seconds since the epoch.
    """
    told = []
    for route in routes:
        classes = []
        for class_id, known in route.snapshot.classes.items():
            classes.append(_class_json(route, class_id, known))
            await breathe()
        told.append({"model": route.model, "policy": route.plan.policy, "classes": classes})
    return {"time": wall, "routes": told}


def _class_json(route: AskedPolicy, class_id: ClassId, known: ClassSnapshot) -> dict[str, Any]:
    arms = route.plan.arms
    told = _told(route, class_id, known.view)
    # A reload may have changed the pools between the plan and the snapshot.
    if told is None or len(told.beliefs.mean) != len(arms):
        return {"class": class_id, "grid": None, "pools": [], "exploring": None}
    beliefs = told.beliefs
    return {
        "class": class_id,
        "grid": [_ratio(at) for at in beliefs.grid.tolist()],
        "pools": [_pool_json(arm, index, beliefs) for index, arm in enumerate(arms)],
        "exploring": None
        if told.exploring is None
        else _exploring_json(told.exploring, arms, _shares(known)),
    }


def _told(route: AskedPolicy, class_id: ClassId, view: ArmView) -> Told | None:
    """What the policy tells; None where it tells nothing, or fails."""
    prepared: object = route.plan.prepared
    policy: object = route.policy
    try:
        if isinstance(prepared, TellsOfMoments):
            return prepared.told(idle_moment(class_id, len(route.plan.arms)))
        if isinstance(policy, TellsOfViews):
            return policy.told(view)
    except _FLAWS:
        return None
    return None


def _pool_json(arm: Arm, index: int, beliefs: Beliefs) -> dict[str, Any]:
    density = beliefs.density[index]
    return {
        "pool": arm.arm_id,
        "time_ratio": {
            "value": _ratio(float(beliefs.mean[index])),
            "low": _ratio(float(beliefs.low[index])),
            "high": _ratio(float(beliefs.high[index])),
        },
        "no_worse": float(beliefs.better[index]),
        "density": density.round(_DIGITS).tolist() if density.any() else None,
    }


def _exploring_json(
    exploring: Exploring, arms: tuple[Arm, ...], shares: Mapping[ArmId, float | None]
) -> dict[str, Any]:
    unproven = [arms[index].arm_id for index in exploring.unproven]
    got = [share for arm_id in unproven if (share := shares.get(arm_id)) is not None]
    return {
        "proof": exploring.proof,
        "unproven": unproven,
        "budget": exploring.budget,
        "wanted": exploring.wanted,
        "floor": exploring.floor,
        "got": sum(got) if got else None,
        "held": {arms[index].arm_id: why for index, why in exploring.held.items()},
    }


def _shares(known: ClassSnapshot) -> dict[ArmId, float | None]:
    """Of the requests of the last minutes, by arm."""
    return {arm_id: cell.share for arm_id, cell in known.cells.items()}


def _ratio(log_cost: float) -> float:
    """Time against the baseline's."""
    return round(math.exp(log_cost), 5)
