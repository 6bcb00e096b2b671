"""Experiments whose units bring many requests that are alike."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.sessions import CASES, TRIED, Sessions, cells_of, watched
from router.estimates.layout import Cells
from router.experiments.evidence import evidence_of, gains_by_metric
from router.experiments.model import DEFAULT_GUARDS, GuardKind, Unit
from router.experiments.seen import Seen, seen

ALIKE = CASES["20 an hour of 60 requests"]


def test_sessions_that_nobody_treats_otherwise_are_left_alone() -> None:
    """Where as many requests by themselves would have said for certain that they are worse."""
    runs = [watched(seed, ALIKE, hours=12) for seed in range(15)]
    assert not any(run.left for run in runs)
    assert all(run.held for run in runs)
    alone = [watched(seed, ALIKE, hours=12, by_unit=False) for seed in range(15)]
    assert sum(run.left for run in alone) >= 5
    assert sum(run.held for run in alone) <= 5


def test_a_treatment_that_is_far_slower_is_left() -> None:
    """It takes more sessions, not more requests of them."""
    runs = [watched(seed, ALIKE, effect=math.log(1.5)) for seed in range(5)]
    assert all(run.left and run.held for run in runs)


def test_sessions_of_one_request_lose_next_to_nothing() -> None:
    """Their interval is as wide as that of requests, but for the fewer degrees of freedom."""
    of = CASES["one request each"]
    by_unit, alone = (watched(7, of, hours=6, by_unit=by).last.gain for by in (True, False))
    assert by_unit is not None
    assert alone is not None
    assert by_unit[0] == pytest.approx(alone[0], abs=1e-3)
    assert 0.99 < (by_unit[2] - by_unit[1]) / (alone[2] - alone[1]) < 1.4


def with_failing(of: Sessions, seed: int, treated: float) -> Seen:
    """A day in which so many sessions of the treated fail as a whole, and 2 % of the control."""
    rng = np.random.default_rng(seed)
    hours: list[tuple[int, Cells]] = []
    for hour in range(24):
        both = [
            cells_of(rng, replace(of, failing=failing), share=share)
            for share, failing in ((0.0, 0.02), (1.0, treated))
        ]
        hours.append((hour, {key: s for cells in both for key, s in cells.items() if s["n"]}))
    return seen(TRIED, hours)


def test_failures_of_a_session_are_one() -> None:
    """A session that fails over and over says little; many sessions that do say all."""
    experiment = replace(TRIED, plan=replace(TRIED.plan, guards=DEFAULT_GUARDS))
    few = Sessions(10, 60)
    for seed in range(15):
        guards = evidence_of(experiment, with_failing(few, seed, 0.02)).guards
        assert not any(reading.breached for reading in guards)
    worse = evidence_of(experiment, with_failing(Sessions(200, 10), 1, 0.2))
    assert [str(of.guard.kind) for of in worse.guards if of.breached] == [GuardKind.ERRORS]


def test_sums_without_buckets_say_nothing_of_sessions() -> None:
    """Of how alike their requests are nothing is known, so neither is the noise."""
    rng = np.random.default_rng(1)
    cells = {
        key: {name: n for name, n in sums.items() if not name.startswith("u")}
        for key, sums in cells_of(rng, Sessions(500, 2)).items()
    }
    experiment = replace(TRIED, plan=replace(TRIED.plan, guards=DEFAULT_GUARDS))
    found = evidence_of(experiment, seen(experiment, [(0, cells)]))
    assert found.gain is None
    assert not any(reading.breached for reading in found.guards)
    by_request = replace(experiment, plan=replace(experiment.plan, unit=Unit.REQUEST))
    assert evidence_of(by_request, seen(by_request, [(0, cells)])).gain is not None


def test_hours_add_up_in_any_parts() -> None:
    """Hours that are over are put together once."""
    rng = np.random.default_rng(4)
    hours = [(hour, cells_of(rng, Sessions(60, 5))) for hour in range(5)]
    whole = seen(TRIED, hours)
    parts = Seen.together_with((seen(TRIED, hours[:3]), seen(TRIED, hours[3:])), 1)
    for metric, gain in gains_by_metric(whole).items():
        other = gains_by_metric(parts)[metric]
        assert (gain is None) is (other is None)
        if gain is not None and other is not None:
            assert (other.value, other.low) == pytest.approx((gain.value, gain.low))
