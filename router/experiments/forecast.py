"""What an experiment will need before it begins: requests, hours, and how soon harm is found.

It reads what the last day held; without any it says from what it starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from policies.estimators import histogram
from policies.estimators.cells import CellSums, LogCostSums, arm_view
from policies.estimators.clusters import BUCKETS, Contrast
from policies.estimators.increments import FIXED_POINT
from policies.estimators.sequential import effective_share, rate_difference, requests_to_detect
from policies.types import Arm, ArmId, ClassId, Counts
from router.estimates.layout import SLOTS_PER_HOUR, Cells, RouteKeys, merge_fields, slot_at
from router.experiments.cells import HOLDOUT, by_bucket, side_arm, side_of
from router.experiments.evidence import SHARES, guard_level, log_cost_sd
from router.experiments.model import GuardKind, Metric, Plan, Variant
from router.experiments.seen import logs_by_bucket
from router.stores.base import CounterStore

ASSUMED_SD = 0.3
"""Of log cost inside a class, where nothing was measured: see `policies.estimators.effects.S0`."""

ASSUMED_SHARE = 0.001
"""Of the control that fails, where nothing was measured. Judgement."""

DEFAULT_EFFECT = 0.05
_SESSIONS = side_arm(HOLDOUT, 0, Variant.TREATMENT)
"""Sums of nearly all requests, by bucket of their session."""

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
        design: Design effect of sessions: how many of their requests are worth one that is
            independent. None where nothing is known: nobody was held out.
    """

    per_hour: float | None
    sd: float | None
    hours: int
    measured: float = 1.0
    shares: Mapping[GuardKind, tuple[float, float]] = field(default_factory=dict)
    design: float | None = None

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
    sessions: list[Mapping[str, int]] = []
    for fields in replies:
        cells: Cells = {}
        merge_fields(cells, fields)
        about = {key: sums for key, sums in cells.items() if _about(plan, key[1])}
        held.append({key: sums for key, sums in about.items() if side_of(key[0]) is None})
        sessions += [sums for key, sums in about.items() if key[0] == _SESSIONS]
    found = traffic_in([cells for cells in held if cells], plan.primary)
    return replace(found, design=design_in(sessions))


def _about(plan: Plan, class_id: ClassId) -> bool:
    return class_id in plan.classes if plan.classes else class_id != "*"


def design_in(cells: Iterable[Mapping[str, int]]) -> float | None:
    """Design effect of log cost by what buckets differ by inside cells; None if nothing is known.

    Args:
        cells: Sums of the same units by class and stretch of time.

    Example:
        >>> design_in([{"n": 3}]) is None
        True
    """
    rows, df, residual = [], 0, 0.0
    for sums in cells:
        whole, parts = by_bucket(sums)
        for kind, cost in CellSums.of(whole).log_cost.items():
            rows.append(logs_by_bucket(parts, f"y.{kind}"))
            df += cost.n - 1
            residual += (cost.q - cost.s**2 / FIXED_POINT / cost.n) / FIXED_POINT
    if not rows or df <= 0 or residual <= 0.0:
        return None
    n, total = (np.stack([row[of] for row in rows]) for of in range(2))
    # A contrast with itself has twice the variance of the mean.
    found = Contrast.of(np.stack([n, n], axis=2), np.stack([total, total], axis=2)).estimate
    if found is None:
        return None
    return max(found.variance / 2.0 * float(n.sum()) / (residual / df), 1.0)


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
    noise = _Noise.of(plan, traffic, sd)
    stages = []
    for stage in plan.stages:
        share, needed, smallest = stage.share, None, None
        if share < 1.0:  # else there is nothing to compare with
            needed = noise.requests(-math.log1p(-effect), share, power)
            smallest = _smallest(traffic, noise, share, stage.dwell_s, power)
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
        "design": noise.design,
        "design_is_assumed": plan.clustered and traffic.design is None,
        "requests_per_hour": traffic.per_hour,
        "measured_share": traffic.measured,
        "from_hours": traffic.hours,
        "stages": stages,
        "harm": _harm(plan, traffic, noise),
        "excesses": _excesses(plan, traffic, noise),
    }


@dataclass(frozen=True, slots=True)
class _Noise:
    """What requests differ by.

    Attributes:
        sd: Of one of them.
        design: Design effect of their units; 1 where it is not known.
        df: Most degrees of freedom that it will be known with.
    """

    sd: float
    design: float
    df: float

    @classmethod
    def of(cls, plan: Plan, traffic: Traffic, sd: float) -> _Noise:
        if not plan.clustered:
            return cls(sd, 1.0, math.inf)
        return cls(sd, traffic.design or 1.0, 2.0 * (BUCKETS - 1.0))

    def requests(self, effect: float, share: float, power: float) -> int:
        """How many show an effect."""
        return requests_to_detect(
            effect, self.sd, share, power=power, design=self.design, df=self.df
        )

    def worth(self, level: float) -> float:
        """Independent requests that one is worth to a guard of shares."""
        if math.isinf(self.df):
            return 1.0
        return effective_share(self.design, self.df / 2.0, 1.0 - (1.0 - level) / 2.0)


def _harm(plan: Plan, traffic: Traffic, noise: _Noise) -> list[dict[str, Any]]:
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
        needed = min(noise.requests(e, share, _EACH) for e in beyond)
        needed = _surely(needed, share, noise.design)
        hours = _hours(needed, traffic.measured_per_hour, _DELAY_S)
        found.append({"ratio": ratio, "requests": needed, "hours": hours})
    return found


def _surely(needed: int, share: float, design: float) -> int:
    """Requests of which surely as many are treated as are among `needed` on the average."""
    z = NormalDist().inv_cdf(_EACH) * math.sqrt(design)
    treated = needed * share
    # With n requests n share - z sqrt(n share (1 - share)) are treated at least.
    root = (z * math.sqrt(1.0 - share) + math.sqrt(z * z * (1.0 - share) + 4.0 * treated)) / 2.0
    return math.ceil(root * root / share)


def _excesses(plan: Plan, traffic: Traffic, noise: _Noise) -> list[dict[str, Any]]:
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
            level = guard_level(plan)
            worth = noise.worth(level)
            # Of the cost's design effect: that of a share is hardly more.
            needed = math.ceil(
                _requests_to_breach(usual, excess, guard.limit, share, level) / worth
            )
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
    traffic: Traffic, noise: _Noise, share: float, dwell_s: float, power: float
) -> float | None:
    """The smallest gain that a stage's dwell time shows."""
    if not traffic.measured_per_hour or dwell_s <= 0:
        return None
    requests = traffic.measured_per_hour * dwell_s / 3600.0
    low, high = 1e-3, 3.0
    try:
        if noise.requests(high, share, power) > requests:
            return None
        while high / low > 1.01:  # noqa: PLR2004 - one percent of itself is close enough
            middle = math.sqrt(low * high)
            enough = noise.requests(middle, share, power) <= requests
            low, high = (low, middle) if enough else (middle, high)
    except ValueError:
        return None
    return -math.expm1(-high)
