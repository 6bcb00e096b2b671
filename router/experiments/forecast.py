"""What an experiment will need before it begins: requests, hours, and how soon harm is found.

It reads what the last day held; without any it says from what it starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from policies.estimators import histogram
from policies.estimators.cells import CellSums, LogCostSums, arm_view
from policies.estimators.increments import FIXED_POINT
from policies.estimators.sequential import rate_difference, requests_to_detect
from policies.types import Arm, ArmId, ClassId, Counts
from router.estimates.layout import SLOTS_PER_HOUR, Cells, RouteKeys, merge_fields, slot_at
from router.experiments.cells import side_of
from router.experiments.evidence import SHARES, guard_level, log_cost_sd
from router.experiments.model import GuardKind, Metric, Plan
from router.stores.base import CounterStore

ASSUMED_SD = 0.3
"""Of log cost inside a class, where nothing was measured: see `policies.estimators.effects.S0`."""

ASSUMED_SHARE = 0.001
"""Of the control that fails, where nothing was measured. Judgement."""

DEFAULT_EFFECT = 0.05
_DAY_H = 24
_HARMS = (1.05, 1.1, 1.2, 1.5, 2.0)
_EXCESSES = (0.02, 0.05, 0.1, 0.2)
_EACH = 0.995
"""Chance that as many are treated as were reckoned with, and to find harm then: so within what is
printed it is found in 99 of 100."""

_DELAY_S = 15.0
"""From the end of a request until a look sees it: sums are read back every ten seconds."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the last day held of the requests that a plan is about.

    Attributes:
        per_hour: Requests; None where nothing is known. Tenants are not told apart there.
        sd: Of the log of the metric inside class, hour and arm; None where nothing is known.
        hours: From which this is known.
        measured: Share of the requests that bring the metric.
        shares: Of each kind of guard that watches a share: how much of it there is as a matter of
            course, and of how many in an hour. Kinds of which nothing is known are missing.
    """

    per_hour: float | None
    sd: float | None
    hours: int
    measured: float = 1.0
    shares: Mapping[GuardKind, tuple[float, float]] = field(default_factory=dict)

    @property
    def measured_per_hour(self) -> float | None:
        """Requests that bring the metric; None where nothing is known."""
        return None if self.per_hour is None else self.per_hour * self.measured


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
    return traffic_in([cells for cells in held if cells], plan.primary)


def _about(plan: Plan, arm_id: ArmId, class_id: ClassId) -> bool:
    wanted = class_id in plan.classes if plan.classes else class_id != "*"
    return wanted and side_of(arm_id) is None


def traffic_in(hours: list[Cells], metric: Metric = Metric.COST) -> Traffic:
    """The same of sums that are there; each hour has something in it."""
    if not hours:
        return Traffic(None, None, 0)
    arms = tuple(sorted({arm_id for cells in hours for arm_id, _, _ in cells}))
    names = tuple(Arm(arm_id, "", baseline=index == 0) for index, arm_id in enumerate(arms))
    blocks: list[tuple[float, Mapping[ArmId, CellSums]]] = []
    for cells in hours:
        by_class: dict[ClassId, dict[ArmId, CellSums]] = {}
        for (arm_id, class_id, part), sums in cells.items():
            if not part:
                by_class.setdefault(class_id, {})[arm_id] = _of_metric(CellSums.of(sums), metric)
        blocks += [(1.0, pair) for pair in by_class.values()]
    found = [cell for _, pair in blocks for cell in pair.values()]
    requests = sum(cell.n for cell in found)
    if not requests:
        return Traffic(None, None, 0)
    measured = sum(sums.n for cell in found for sums in cell.log_cost.values())
    sd = log_cost_sd(arm_view(ClassId("*"), names, blocks))
    return Traffic(
        requests / len(hours),
        sd or None,
        len(hours),
        min(measured / requests, 1.0),
        dict(_usual([cell.plain for cell in found], len(hours))),
    )


def _usual(counts: Sequence[Counts], hours: int) -> Iterator[tuple[GuardKind, tuple[float, float]]]:
    for kind, (hits, trials) in SHARES.items():
        n = sum(of.get(trials, 0) for of in counts)
        if n:
            yield kind, (sum(of.get(hits, 0) for of in counts) / n, n / hours)


def _of_metric(cell: CellSums, metric: Metric) -> CellSums:
    """A cell whose log costs are of the metric, as well as it can be told before the start.

    Single times are read off their histograms, to 2 %. Of streams no e2e is kept by length, and
    cost, which is the e2e of a typical length, stands for it.
    """
    if metric in (Metric.COST, Metric.E2E):
        return cell
    n, s, q = 0, 0.0, 0.0
    for index, count in cell.histogram(metric.value).items():
        y = math.log(histogram.representative(index))
        n, s, q = n + count, s + count * y, q + count * y * y
    sums = LogCostSums(n, round(s * FIXED_POINT), round(q * FIXED_POINT))
    return replace(cell, log_cost={metric.value: sums} if n else {})


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
        share, needed, smallest = stage.share, None, None
        if share < 1.0:  # else there is nothing to compare with
            needed = requests_to_detect(-math.log1p(-effect), sd, share, power=power)
            smallest = _smallest(traffic, sd, share, stage.dwell_s, power)
        least = math.ceil(stage.min_requests / (min(share, 1.0 - share) if share < 1.0 else 1.0))
        stages.append(
            {
                "share": share,
                "dwell_h": stage.dwell_s / 3600.0,
                "requests_for_effect": needed,
                "hours_for_effect": needed and _hours(needed, traffic.measured_per_hour),
                "hours_at_least": max(
                    stage.dwell_s / 3600.0, _hours(least, traffic.per_hour) or 0.0
                ),
                "smallest_effect": smallest,
            }
        )
    return {
        "effect": effect,
        "power": power,
        "metric": plan.primary.value,
        "sd": sd,
        "sd_is_assumed": traffic.sd is None,
        "requests_per_hour": traffic.per_hour,
        "measured_share": traffic.measured,
        "from_hours": traffic.hours,
        "stages": stages,
        "harm": _harm(plan, traffic, sd),
        "excesses": _excesses(plan, traffic),
    }


def _harm(plan: Plan, traffic: Traffic, sd: float) -> list[dict[str, Any]]:
    """How many requests it takes until times that are so many times the control's are found."""
    limits = [guard.limit for guard in plan.guards if guard.kind is GuardKind.COST]
    if plan.primary is not Metric.COST:
        limits = []
    share = plan.stages[0].share
    if share == 1.0:
        return []
    found = []
    for ratio in _HARMS:
        # Slower for certain (the primary metric), or by more than the guard bears.
        beyond = [math.log(ratio)] + [math.log(ratio / limit) for limit in limits if ratio > limit]
        needed = min(requests_to_detect(e, sd, share, power=_EACH) for e in beyond)
        needed = _surely(needed, share)
        hours = _hours(needed, traffic.measured_per_hour, _DELAY_S)
        found.append({"ratio": ratio, "requests": needed, "hours": hours})
    return found


def _surely(needed: int, share: float) -> int:
    """Requests of which surely as many are treated as are among `needed` on the average."""
    z = NormalDist().inv_cdf(_EACH)
    treated = needed * share
    # With n requests n share - z sqrt(n share (1 - share)) are treated at least.
    root = (z * math.sqrt(1.0 - share) + math.sqrt(z * z * (1.0 - share) + 4.0 * treated)) / 2.0
    return math.ceil(root * root / share)


def _excesses(plan: Plan, traffic: Traffic) -> list[dict[str, Any]]:
    """How many requests it takes until shares above the control's by so much are found."""
    share = plan.stages[0].share
    found: list[dict[str, Any]] = []
    if share == 1.0:
        return found
    for guard in plan.guards:
        if guard.kind not in SHARES:
            continue
        usual, per_hour = traffic.shares.get(guard.kind, (ASSUMED_SHARE, None))
        for excess in _EXCESSES:
            if excess <= guard.limit or usual + excess >= 1.0:
                continue
            needed = _requests_to_breach(usual, excess, guard.limit, share, guard_level(plan))
            hours = _hours(needed, per_hour, _DELAY_S)
            row = {"kind": guard.kind.value, "excess": excess, "requests": needed, "hours": hours}
            found.append(row)
    return found


def _requests_to_breach(
    usual: float, excess: float, limit: float, share: float, level: float
) -> int:
    """Requests, both sides together, after which a guard of shares is surely breached."""
    z = NormalDist().inv_cdf(_EACH)

    def breached(n: int) -> bool:
        treated, control = max(round(n * share), 1), max(round(n * (1.0 - share)), 1)
        bad = usual + excess
        hits = treated * bad - z * math.sqrt(treated * bad * (1.0 - bad))
        others = control * usual + z * math.sqrt(control * usual * (1.0 - usual))
        at = (max(math.floor(hits), 0), treated), (min(math.ceil(others), control), control)
        found = rate_difference(*at, level)
        return found is not None and found.low > limit

    high = 8
    while not breached(high):
        high *= 2
    low = high // 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if breached(middle) else (middle, high)
    return high


def _hours(requests: int, per_hour: float | None, delay_s: float = 0.0) -> float | None:
    return requests / per_hour + delay_s / 3600.0 if per_hour else None


def _smallest(
    traffic: Traffic, sd: float, share: float, dwell_s: float, power: float
) -> float | None:
    """The smallest gain that a stage's dwell time shows."""
    if not traffic.measured_per_hour or dwell_s <= 0:
        return None
    requests = traffic.measured_per_hour * dwell_s / 3600.0
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
