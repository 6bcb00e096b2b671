"""An experiment whose units are sessions that bring many requests which are alike.

Log cost is `level of the hour + effect + what is the session's + what is the request's`. A session
has as many requests as a geometric law gives, all in one hour and class, and fails as a whole where
it fails. What judges is the product's own code, from sums as the store holds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.trials import CHAT, EXPERIMENT, LEVEL_SD
from policies.estimators.clusters import BUCKETS
from policies.estimators.histogram import bucket
from policies.estimators.increments import FIXED_POINT
from policies.types import FloatArray
from router.estimates.layout import CellKey, Cells
from router.experiments.cells import side_arm
from router.experiments.evidence import evidence_of
from router.experiments.forecast import Traffic, design_in, forecast
from router.experiments.model import DEFAULT_GUARDS, Unit, Variant
from router.experiments.rollout import Evidence, harm
from router.experiments.seen import Seen, seen
from router.types import POOLED

TRIED: Final = replace(EXPERIMENT, plan=replace(EXPERIMENT.plan, unit=Unit.SESSION))
_SIDES: Final = (Variant.CONTROL, Variant.TREATMENT)


@dataclass(frozen=True, slots=True)
class Sessions:
    """What comes in an hour.

    Attributes:
        per_hour: Sessions.
        requests: Of a session, in the middle.
        between: Sd of log cost between sessions.
        within: Sd inside one.
        failing: Share of the sessions all of whose requests fail.
    """

    per_hour: int
    requests: int
    between: float = 0.25
    within: float = 0.25
    failing: float = 0.0


CASES: Final = {
    "one request each": Sessions(1000, 1, 0.0, 0.35),
    "100 an hour of 10 requests": Sessions(100, 10),
    "20 an hour of 60 requests": Sessions(20, 60),
    "100 an hour of 10, 2 % of which fail": Sessions(100, 10, failing=0.02),
}


def cells_of(
    rng: np.random.Generator, of: Sessions, *, effect: float = 0.0, share: float = 0.5
) -> Cells:
    """The sums of an hour, with those of the treated slower by so much on the log."""
    sizes = rng.geometric(1.0 / of.requests, of.per_hour)
    ids = np.repeat(np.arange(of.per_hour), sizes)
    side = (rng.random(of.per_hour) < share).astype(int)[ids]
    part = rng.integers(0, BUCKETS, of.per_hour)[ids]
    good = (rng.random(of.per_hour) >= of.failing)[ids]
    y = 1.0 + LEVEL_SD * rng.standard_normal() + effect * side
    y = y + of.between * rng.standard_normal(of.per_hour)[ids]
    y = y + of.within * rng.standard_normal(len(ids))
    cells: Cells = {}
    for column, variant in enumerate(_SIDES):
        key: CellKey = (side_arm(TRIED.plan.name, 1, variant), CHAT, POOLED)
        mine = side == column
        cells[key] = _sums(y[mine], part[mine], good[mine])
    return cells


def _sums(
    y: FloatArray, part: np.ndarray[tuple[int], np.dtype[np.int64]], good: np.ndarray
) -> dict[str, int]:
    """Of one side; TPOT and TTFT go with the cost."""
    cost = y[good]
    n = len(cost)
    sums = {"n": len(y), "status.ok": n, "status.failed": len(y) - n}
    logs = {"y.s": cost, "t.tpot": cost - np.log(300.0), "t.ttft": cost - np.log(30.0)}
    for stem, values in logs.items():
        sums |= _logs(stem, values, squares=True)
    for family in ("tpot", "ttft"):
        for seconds in np.exp(logs[f"t.{family}"]).tolist():
            name = f"{family}.{bucket(seconds)}"
            sums[name] = sums.get(name, 0) + 1
    for index in np.unique(part).tolist():
        there = part == index
        sums[f"u{index:02d}.n"] = int(there.sum())
        sums[f"u{index:02d}.status.failed"] = int((there & ~good).sum())
        for stem, values in logs.items():
            sums |= _logs(f"u{index:02d}.{stem}", values[part[good] == index], squares=False)
    return sums


def _logs(stem: str, values: FloatArray, *, squares: bool) -> dict[str, int]:
    sums = {f"{stem}.n": len(values), f"{stem}.s": round(float(values.sum()) * FIXED_POINT)}
    if squares:
        sums[f"{stem}.q"] = round(float((values**2).sum()) * FIXED_POINT)
    return sums


@dataclass(frozen=True, slots=True)
class Watched:
    """What came of an experiment that was looked at each hour.

    Attributes:
        left: Whether it was rolled back.
        held: Whether the gain's interval held the truth at each look.
        last: What the last look saw.
    """

    left: bool
    held: bool
    last: Evidence


def watched(
    seed: int, of: Sessions, *, hours: int = 24, effect: float = 0.0, by_unit: bool = True
) -> Watched:
    """A day of an experiment. Not `by_unit`: as if each request were a unit."""
    rng = np.random.default_rng(seed)
    unit = Unit.SESSION if by_unit else Unit.REQUEST
    tried = replace(TRIED, plan=replace(TRIED.plan, unit=unit, guards=DEFAULT_GUARDS))
    truth = -float(np.expm1(effect))
    known = Seen.together_with((), 1)
    left, held = False, True
    evidence = evidence_of(tried, known)
    for hour in range(hours):
        cells: Mapping[CellKey, dict[str, int]] = cells_of(rng, of, effect=effect)
        known = Seen.together_with((known, seen(tried, [(hour, dict(cells))])), 1)
        evidence = replace(evidence_of(tried, known), ratio_alarm=False)
        left = left or harm(evidence) is not None
        gain = evidence.gain
        held = held and (gain is None or gain[1] <= truth <= gain[2])
    return Watched(left, held, evidence)


def found_as_planned(seed: int, of: Sessions, gain: float) -> tuple[bool, bool]:
    """Of a gain, with as many hours as the product plans by the day before: found, and held."""
    rng = np.random.default_rng(seed)
    control = side_arm(TRIED.plan.name, 1, Variant.CONTROL)
    day = [cells_of(rng, of, share=0.0)[control, CHAT, POOLED] for _ in range(24)]
    per_hour = sum(sums["n"] for sums in day) / len(day)
    sd = math.hypot(of.between, of.within)
    traffic = Traffic(per_hour, sd, len(day), design=design_in(day))
    [stage] = forecast(TRIED.plan, traffic, effect=gain)["stages"]
    hours = math.ceil(stage["hours_for_effect"])
    seen_ = watched(seed, of, hours=hours, effect=math.log1p(-gain)).last.gain
    if seen_ is None:
        return False, False
    return seen_[1] > 0.0, seen_[1] <= gain <= seen_[2]
