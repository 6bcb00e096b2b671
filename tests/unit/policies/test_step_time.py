"""Step time by load: what a request adds, and what the curve promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bench.verify_models import step_sums
from policies.estimators.cells import add_counts
from policies.estimators.load import HIGHEST
from policies.estimators.step_time import (
    FIELDS,
    RANGE_S,
    StepTime,
    StepTimeModel,
    curve,
    increments,
)
from policies.types import ArmId, ClassId, Counts, FloatArray, SpecUsage, Status, Trial

TRIAL = Trial(
    ClassId("chat"),
    ArmId("fast"),
    Status.OK,
    streamed=True,
    propensity=0.5,
    tpot_s=0.01,
    tokens=101,
    spec=SpecUsage(steps=51, drafted=150, accepted=50),
    load=4,
)


def model(
    load: FloatArray, step_s: FloatArray, *, noise: float = 0.05, seed: int = 0
) -> StepTimeModel:
    """From loads and times of shape (blocks, requests), with some noise."""
    rng = np.random.default_rng(seed)
    noisy = step_s * (1.0 + noise * rng.standard_normal(step_s.shape))
    found = StepTime.fit(step_sums(load.astype(np.int64), noisy))
    assert found is not None
    return found


def loads(low: int, high: int, *, blocks: int = 24, requests: int = 60) -> FloatArray:
    """Loads drawn evenly from a range."""
    drawn = np.random.default_rng(9).integers(low, high + 1, (blocks, requests))
    return drawn.astype(np.float64)


def test_a_request_adds_powers_and_products_of_its_load_and_step_time() -> None:
    """First to last content are 50 steps of 20 ms; each verifies a token and its draft."""
    assert increments(TRIAL) == {
        "st.2.n": 1,
        "st.2.l": 4,
        "st.2.ll": 16,
        "st.2.s": 20_000,
        "st.2.sl": 80_000,
        "st.2.q": 400_000,
        "st.vn": 1,
        "st.v": 3941,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.FAILED},
        {"streamed": False},
        {"load": None},
        {"load": 0},
        {"spec": None},
        {"spec": SpecUsage(drafted=150, accepted=50)},
        {"spec": SpecUsage(steps=8)},
        {"spec": SpecUsage(steps=102)},
        {"tokens": None},
        {"tokens": 15},
        {"tpot_s": None},
        {"tpot_s": float("nan")},
        {"tpot_s": -0.1},
    ],
)
def test_a_request_that_cannot_tell_adds_nothing(changes: dict[str, Any]) -> None:
    """Missing is None, never 0; a handful of steps is no measure of one."""
    assert increments(replace(TRIAL, **changes)) == {}


def test_drafts_that_are_unknown_or_absurd_have_no_field() -> None:
    """The step time counts all the same."""
    for drafted in (None, -1, 51 * 2000):
        sums = increments(replace(TRIAL, spec=SpecUsage(steps=51, drafted=drafted)))
        assert {"st.vn", "st.v"}.isdisjoint(sums)
        assert sums["st.2.n"] == 1


@pytest.mark.parametrize(("tpot_s", "step_s"), [(1e-7, RANGE_S[0]), (1e4, RANGE_S[1])])
def test_absurd_times_are_clipped(tpot_s: float, step_s: float) -> None:
    """One of them moves a sum by a bounded step."""
    assert increments(replace(TRIAL, tpot_s=tpot_s))["st.2.s"] == round(step_s * 1e6)


def test_ten_million_of_the_largest_requests_fit_into_62_bits() -> None:
    """Nothing that adds overflows."""
    spec = SpecUsage(steps=9, drafted=9 * 1024)
    largest = increments(replace(TRIAL, tpot_s=1e4, load=10**9, spec=spec))
    assert largest["st.10.l"] == HIGHEST
    assert set(largest) <= FIELDS
    assert max(largest.values()) * 10_000_000 < 2**62


def test_sums_in_bulk_are_those_of_the_requests_one_by_one() -> None:
    """What the checks measure is what the product adds."""
    rng = np.random.default_rng(1)
    load = np.maximum(np.rint(np.exp(rng.normal(2.0, 1.5, (3, 40)))), 1.0).astype(np.int64)
    step_s = 0.01 * np.exp(0.3 * rng.standard_normal(load.shape))
    for (_, bands), row, times in zip(step_sums(load, step_s), load, step_s, strict=True):
        sums: Counts = {}
        for at, time in zip(row.tolist(), times.tolist(), strict=True):
            trial = replace(TRIAL, load=at, tpot_s=time * 50 / 100, spec=SpecUsage(steps=51))
            sums = add_counts(sums, increments(trial))
        bulk: Counts = {}
        for cell in bands.values():
            bulk = add_counts(bulk, cell)
        assert bulk == sums


def test_no_sums_give_no_model() -> None:
    """Nor do sums that cannot be true, nor blocks without weight."""
    good = {2: {"st.3.n": 1, "st.3.l": 6, "st.3.ll": 36, "st.3.s": 9000, "st.3.sl": 54000}}
    assert StepTime.fit([]) is None
    assert StepTime.fit([(1.0, {})]) is None
    assert StepTime.fit([(1.0, {2: {**good[2], "st.3.q": 1}})]) is None
    assert StepTime.fit([(0.0, {2: {**good[2], "st.3.q": 81_000}})]) is None
    assert StepTime.fit([(1.0, {2: {**good[2], "st.3.q": 81_000}})]) is not None


@pytest.mark.parametrize("turn", [0.0, 32.0])
def test_the_curve_follows_a_line_and_a_turn(turn: float) -> None:
    """Within a few per cent where data are plenty; the truth is in nearly all intervals of 99.9 %."""

    def truth(load: FloatArray) -> FloatArray:
        return np.asarray(0.009 + 3e-4 * np.maximum(load - turn, 0.0))

    load = loads(1, 80)
    found = model(load, truth(load))
    for at in (2, 10, 32, 60):
        true, seen = float(truth(np.array([float(at)]))[0]), found.predict(at, 0.999)
        assert not seen.extrapolated
        assert seen.low is not None
        assert seen.high is not None
        assert seen.low <= true <= seen.high
        assert seen.mean == pytest.approx(true, rel=0.03)
    assert found.misfit is not None
    assert found.misfit > 0.01


def test_the_curve_never_falls() -> None:
    """Even where chance made it look so."""
    load = loads(1, 60, blocks=8, requests=10)
    found = model(load, np.full_like(load, 0.01), noise=0.5)
    means = [found.predict(at).mean for at in range(1, 61)]
    assert all(after >= before - 1e-12 for before, after in pairwise(means))


def test_beyond_what_was_seen_the_interval_grows_and_says_so() -> None:
    """From no change to a time in proportion to the load."""
    load = loads(1, 8)
    found = model(load, 0.01 + 0.0 * load)
    edge, far = found.predict(8), found.predict(80)
    assert (edge.extrapolated, far.extrapolated) == (False, True)
    assert edge.low is not None
    assert edge.high is not None
    assert far.low is not None
    assert far.high is not None
    assert far.low == pytest.approx(edge.low, rel=0.02)
    assert far.high == pytest.approx(10 * edge.high, rel=0.02)


def test_between_loads_that_were_seen_the_bounds_are_theirs() -> None:
    """A gap is no knowledge: the step time is between those of its edges."""
    load = np.where(loads(0, 1) > 0, 1.0, 60.0)
    found = model(load, np.where(load > 1, 0.02, 0.01))
    inside = found.predict(20)
    assert inside.extrapolated
    assert inside.low is not None
    assert inside.high is not None
    assert inside.low <= 0.0101
    assert inside.high >= 0.0199


def test_a_step_at_the_size_of_a_graph_is_called_a_misfit() -> None:
    """No continuous curve holds it."""
    load = loads(1, 60)
    found = model(load, np.where(load > 32, 0.02, 0.01))
    assert found.misfit is not None
    assert found.misfit < 0.01


def test_few_stretches_of_time_give_an_estimate_without_an_interval() -> None:
    """Requests of two minutes say little about other minutes."""
    load = loads(1, 8, blocks=2, requests=500)
    seen = model(load, 0.01 + 0.0 * load).predict(4)
    assert (seen.low, seen.high) == (None, None)
    assert seen.mean == pytest.approx(0.01, rel=0.02)


def test_tokens_to_verify_are_averaged_over_the_requests_that_tell() -> None:
    """Unknown where none does."""
    told = StepTime.fit([(1.0, {1: increments(TRIAL)})])
    assert told is not None
    assert told.verified_tokens == pytest.approx(3.941)
    untold = StepTime.fit([(1.0, {1: increments(replace(TRIAL, spec=SpecUsage(steps=51)))})])
    assert untold is not None
    assert untold.verified_tokens is None


def test_the_columns_are_continuous_and_rise_one_after_the_other() -> None:
    """1, then how far each segment has been gone through."""
    assert curve(1.0).tolist() == [1.0, *[0.0] * 10]
    assert curve(96.0).tolist() == [*[1.0] * 10, 0.0]
    assert curve(192.0)[-1] == 1.0
    steps = [curve(load / 10.0) for load in range(10, 2000)]
    assert all(np.abs(after - before).max() <= 0.1001 for before, after in pairwise(steps))


@pytest.mark.parametrize("value", [2**63, 12 * 2**63, -(2**70)])
def test_sums_beyond_64_bits_do_not_stop_the_model(value: int) -> None:
    """Slots of a store that holds garbage are added up before anybody looks at them."""
    assert StepTime.fit([(1.0, {0: {"st.vn": value, "st.v": value}})]) is None
