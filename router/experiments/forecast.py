"""What an experiment will need before it begins: requests, hours, and how soon harm is found.

It reads what the last day held; without any it says from what it starts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policies.estimators.cells import CellSums, arm_view
from policies.estimators.sequential import requests_to_detect
from policies.types import Arm, ArmId, ClassId
from router.estimates.layout import SLOTS_PER_HOUR, Cells, RouteKeys, merge_fields, slot_at
from router.experiments.cells import side_of
from router.experiments.evidence import log_cost_sd
from router.experiments.model import GuardKind, Plan
from router.stores.base import CounterStore

ASSUMED_SD = 0.3
"""Of log cost inside a class, where nothing was measured: see `policies.estimators.effects.S0`."""

DEFAULT_EFFECT = 0.05
_DAY_H = 24
_HARMS = (1.05, 1.1, 1.2, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the last day held of the requests that a plan is about.

    Attributes:
        per_hour: Requests; None where nothing is known. Tenants are not told apart there.
        sd: Of log cost inside class, hour and arm; None where nothing is known.
        hours: From which this is known.
    """

    per_hour: float | None
    sd: float | None
    hours: int


async def traffic_of(store: CounterStore, prefix: str, plan: Plan, wall: float) -> Traffic:
    """Reads the last day of the plan's route.

    Raises:
        StoreError: The store did not answer.
    """
    keys = RouteKeys(prefix, plan.model)
    current = slot_at(wall) // SLOTS_PER_HOUR
    hours = range(current - _DAY_H, current)
    replies = await store.read([keys.hour(hour) for hour in hours])
    held: list[Cells] = []
    for fields in replies:
        cells: Cells = {}
        merge_fields(cells, fields)
        held.append({key: sums for key, sums in cells.items() if _about(plan, key[0], key[1])})
    return traffic_in([cells for cells in held if cells])


def _about(plan: Plan, arm_id: ArmId, class_id: ClassId) -> bool:
    wanted = class_id in plan.classes if plan.classes else class_id != "*"
    return wanted and side_of(arm_id) is None


def traffic_in(hours: list[Cells]) -> Traffic:
    """The same of sums that are there; each hour has something in it."""
    if not hours:
        return Traffic(None, None, 0)
    requests = sum(sums.get("n", 0) for cells in hours for sums in cells.values())
    arms = tuple(sorted({arm_id for cells in hours for arm_id, _, _ in cells}))
    names = tuple(Arm(arm_id, "", baseline=index == 0) for index, arm_id in enumerate(arms))
    blocks: list[tuple[float, Mapping[ArmId, CellSums]]] = []
    for cells in hours:
        by_class: dict[ClassId, dict[ArmId, CellSums]] = {}
        for (arm_id, class_id, part), sums in cells.items():
            if not part:
                by_class.setdefault(class_id, {})[arm_id] = CellSums.of(sums)
        blocks += [(1.0, pair) for pair in by_class.values()]
    sd = log_cost_sd(arm_view(ClassId("*"), names, blocks))
    return Traffic(requests / len(hours), sd or None, len(hours))


def forecast(
    plan: Plan, traffic: Traffic, *, effect: float = DEFAULT_EFFECT, power: float = 0.8
) -> dict[str, Any]:
    """What to expect of a plan, as JSON values; None where nothing is known.

    Args:
        plan: What is tried.
        traffic: What to reckon with.
        effect: Smallest gain that matters, as a share of time: 0.05 for 5 %.
        power: Chance to see it.
    """
    sd = traffic.sd or ASSUMED_SD
    stages = []
    for stage in plan.stages:
        share = min(stage.share, 0.5) if stage.share == 1.0 else stage.share
        needed = requests_to_detect(-math.log1p(-effect), sd, share, power=power)
        least = math.ceil(stage.min_requests / min(share, 1.0 - share))
        stages.append(
            {
                "share": stage.share,
                "dwell_h": stage.dwell_s / 3600.0,
                "requests_for_effect": needed,
                "hours_for_effect": _hours(needed, traffic),
                "hours_at_least": max(stage.dwell_s / 3600.0, _hours(least, traffic) or 0.0),
                "smallest_effect": _smallest(traffic, sd, share, stage.dwell_s, power),
            }
        )
    return {
        "effect": effect,
        "power": power,
        "sd": sd,
        "sd_is_assumed": traffic.sd is None,
        "requests_per_hour": traffic.per_hour,
        "from_hours": traffic.hours,
        "stages": stages,
        "harm": _harm(plan, traffic, sd),
    }


def _harm(plan: Plan, traffic: Traffic, sd: float) -> list[dict[str, Any]]:
    """How many requests it takes until costs that are so many times the control's are found."""
    limits = [guard.limit for guard in plan.guards if guard.kind is GuardKind.COST]
    share = plan.stages[0].share
    found = []
    for ratio in _HARMS:
        # Slower for certain (the primary metric), or by more than the guard bears.
        beyond = [math.log(ratio)] + [math.log(ratio / limit) for limit in limits if ratio > limit]
        needed = min(requests_to_detect(e, sd, min(share, 0.5), power=0.99) for e in beyond)
        found.append({"ratio": ratio, "requests": needed, "hours": _hours(needed, traffic)})
    return found


def _hours(requests: int, traffic: Traffic) -> float | None:
    return requests / traffic.per_hour if traffic.per_hour else None


def _smallest(
    traffic: Traffic, sd: float, share: float, dwell_s: float, power: float
) -> float | None:
    """The smallest gain that a stage's dwell time shows."""
    if not traffic.per_hour or dwell_s <= 0:
        return None
    requests = traffic.per_hour * dwell_s / 3600.0
    low, high = 1e-3, 3.0
    try:
        if requests_to_detect(high, sd, share, power=power) > requests:
            return None
        while high / low > 1.01:  # noqa: PLR2004 - one percent of itself is close enough
            middle = math.sqrt(low * high)
            enough = requests_to_detect(middle, sd, share, power=power) <= requests
            low, high = (low, middle) if enough else (middle, high)
    except ValueError:
        return None
    return -math.expm1(-high)
