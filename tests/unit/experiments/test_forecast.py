"""What is told of an experiment before it begins."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.sessions import Sessions, cells_of
from policies.estimators.increments import increments
from policies.types import ArmId, ClassId, Status, Trial
from router.estimates.layout import COMMON, RouteKeys, stored_increments
from router.experiments.forecast import ASSUMED_SD, Traffic, design_in, forecast, traffic_of
from router.experiments.model import (
    ExperimentName,
    Guard,
    GuardKind,
    Metric,
    Plan,
    Stage,
    Treatment,
    Unit,
)
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from router.types import POOLED
from tests.support.clock import ManualClock

PLAN = Plan(
    ExperimentName("try"),
    "m",
    "",
    Treatment(off=True),
    stages=(Stage(0.05, 3600.0, 50), Stage(0.5, 3600.0, 50), Stage(1.0, 0.0, 0)),
)
CHAT = ClassId("chat")


async def test_traffic_is_that_of_the_last_day() -> None:
    """Of the plan's classes, over all arms, without what experiments counted again."""
    clock = ManualClock(1_800_000_000.0)
    store, rng = MemoryStore(clock), np.random.default_rng(3)
    hour = int(clock.wall() // 3600)
    cells: dict[tuple[ArmId, ClassId, str], dict[str, int]] = {}
    for number in range(400):
        tpot_s = 0.02 * math.exp(rng.normal(0.0, 0.25))
        arm = ArmId("plain" if number % 2 else "fast")
        trial = Trial(
            CHAT, arm, Status.OK, streamed=True, propensity=1.0,
            ttft_s=0.01, tpot_s=tpot_s, e2e_s=2.0, tokens=101,
        )  # fmt: skip
        for name in (arm, ArmId("@other/1/control")):
            cell = cells.setdefault((name, CHAT, POOLED), {})
            for field, value in increments(trial, 300).items():
                cell[field] = cell.get(field, 0) + value
    cells[ArmId("plain"), COMMON, POOLED] = {"n": 1000}
    stored = stored_increments(cells)  # type: ignore[arg-type]
    keys = {RouteKeys("p", "m").hour(hour - back): 10**6 for back in (1, 2)}
    await store.add(Batch("w", 1, 100), [Addition(stored, keys)])
    found = await traffic_of(store, "p", PLAN, clock.wall())
    assert (found.per_hour, found.hours) == (400.0, 2)
    assert found.sd == pytest.approx(0.25, abs=0.02)
    assert found.measured == 1.0
    assert found.shares[GuardKind.ERRORS] == (0.0, 400.0)
    assert GuardKind.INVALID not in found.shares
    by_time = await traffic_of(store, "p", replace(PLAN, primary=Metric.TPOT), clock.wall())
    assert by_time.sd == pytest.approx(0.25, abs=0.02)
    none = await traffic_of(store, "p", replace(PLAN, classes=(ClassId("math"),)), clock.wall())
    assert none == Traffic(None, None, 0)


def test_more_noise_needs_more_and_more_traffic_less_time() -> None:
    """What is unknown is None, and the noise is said to be assumed."""
    quiet = forecast(PLAN, Traffic(1000.0, 0.2, 24))
    noisy = forecast(PLAN, Traffic(2000.0, 0.4, 24))
    unknown = forecast(PLAN, Traffic(None, None, 0))
    first = [told["stages"][0] for told in (quiet, noisy, unknown)]
    needed = [stage["requests_for_effect"] for stage in first]
    assert needed[0] < needed[2] < needed[1]
    assert first[0]["hours_for_effect"] == needed[0] / 1000.0
    assert first[2]["hours_for_effect"] is None
    assert (unknown["sd"], unknown["sd_is_assumed"]) == (ASSUMED_SD, True)
    assert quiet["stages"][0]["hours_at_least"] == 1.0
    assert quiet["stages"][1]["smallest_effect"] < quiet["stages"][0]["smallest_effect"]


def test_greater_harm_is_found_sooner() -> None:
    """From a twentieth to twice the time."""
    needed = [row["requests"] for row in forecast(PLAN, Traffic(None, None, 0))["harm"]]
    assert needed == sorted(needed, reverse=True)
    assert needed[-1] < 1000


def test_only_requests_that_bring_the_metric_count_for_it() -> None:
    """Where a fifth are streams, an effect on their TPOT takes five times as long."""
    plan = replace(PLAN, primary=Metric.TPOT)
    all_, some = (
        forecast(plan, Traffic(1000.0, 0.2, 24, measured=share))["stages"][0]
        for share in (1.0, 0.2)
    )
    assert some["requests_for_effect"] == all_["requests_for_effect"]
    assert some["hours_for_effect"] == pytest.approx(5.0 * all_["hours_for_effect"])


def test_more_failures_are_found_the_sooner_the_more_they_are() -> None:
    """As far as a guard watches them; without one nothing is promised."""
    shares = {GuardKind.ERRORS: (0.001, 3600.0), GuardKind.INVALID: (0.02, 360.0)}
    found = forecast(PLAN, Traffic(3600.0, 0.2, 24, shares=shares))["excesses"]
    for kind in ("error_rate", "abort_rate"):
        of_kind = [row["requests"] for row in found if row["kind"] == kind]
        assert of_kind == sorted(of_kind, reverse=True)
        assert of_kind
    needed = [row["requests"] for row in found]
    assert found[0]["hours"] == pytest.approx(needed[0] / 3600.0 + 15.0 / 3600.0)
    assert forecast(replace(PLAN, guards=()), Traffic(None, None, 0))["excesses"] == []
    guarded = replace(PLAN, guards=(Guard(GuardKind.INVALID, 0.01),))
    invalid = forecast(guarded, Traffic(3600.0, 0.2, 24, shares=shares))["excesses"]
    assert invalid[0]["hours"] == pytest.approx(invalid[0]["requests"] / 360.0 + 15.0 / 3600.0)


def test_where_all_are_treated_nothing_will_show() -> None:
    """Neither a gain nor harm: there is no control."""
    full = forecast(replace(PLAN, stages=(Stage(1.0, 3600.0, 50),)), Traffic(3600.0, 0.2, 24))
    assert (full["harm"], full["excesses"]) == ([], [])
    last = forecast(PLAN, Traffic(3600.0, 0.2, 24))["stages"][-1]
    assert (last["requests_for_effect"], last["smallest_effect"]) == (None, None)
    assert last["hours_for_effect"] is None
    assert last["hours_at_least"] == 0.0


def test_a_plan_by_sessions_reckons_with_how_alike_they_are() -> None:
    """As the last day shows it; where nobody was held out, it says that it does not know."""
    rng = np.random.default_rng(2)
    hours = [cells_of(rng, Sessions(100, 10), share=0.0) for _ in range(24)]
    sums = [of for cells in hours for (arm, _, _), of in cells.items() if "control" in arm]
    design = design_in(sums)
    # Sizes are geometric of mean 10, so the mean by requests is 19: 1 + 18 times a half.
    assert design == pytest.approx(10.0, rel=0.5)
    traffic = Traffic(3600.0, 0.35, 24, design=10.0)
    by_session, by_request = (
        forecast(replace(PLAN, unit=unit), traffic) for unit in (Unit.SESSION, Unit.REQUEST)
    )
    needed, alone = (
        [stage["requests_for_effect"] for stage in of["stages"][:2]]
        for of in (by_session, by_request)
    )
    assert all(9.0 < many / one < 13.0 for many, one in zip(needed, alone, strict=True))
    assert by_session["harm"][0]["requests"] > 9 * by_request["harm"][0]["requests"]
    assert by_session["excesses"][0]["requests"] > 9 * by_request["excesses"][0]["requests"]
    assert (by_request["design"], by_request["design_is_assumed"]) == (1.0, False)
    unknown = forecast(PLAN, Traffic(3600.0, 0.35, 24))
    assert (unknown["design"], unknown["design_is_assumed"]) == (1.0, True)
