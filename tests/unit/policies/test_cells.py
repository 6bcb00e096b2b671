"""Sums commute, garbage is ignored, and estimates come back out."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks import example_arms
from policies.estimators.cells import CellSums, LogCostSums, add, add_counts, arm_view, increments
from policies.estimators.effects import arm_effects
from policies.estimators.tau import StepSums
from policies.types import ArmId, ClassId, Source, SpecUsage, Status, Trial

COUNT = st.none() | st.integers(-2, 300)
SPECS = st.builds(
    SpecUsage,
    steps=COUNT,
    drafted=COUNT,
    accepted=COUNT,
    accepted_per_step=st.none() | st.lists(st.integers(0, 50), max_size=6).map(tuple),
    num_speculative_tokens=st.none() | st.integers(0, 5),
)
SECONDS = st.none() | st.floats(1e-7, 1e6) | st.just(math.nan)
TRIALS = st.builds(
    Trial,
    class_id=st.just(ClassId("chat")),
    arm_id=st.just(ArmId("a")),
    status=st.sampled_from(Status),
    streamed=st.booleans(),
    propensity=st.just(0.5),
    ttft_s=SECONDS,
    tpot_s=SECONDS,
    e2e_s=SECONDS,
    tokens=st.none() | st.integers(-1, 5000),
    spec=st.none() | SPECS,
)
WORKED = Trial(
    ClassId("chat"), ArmId("arm-1"), Status.OK, streamed=True, propensity=0.5, ttft_s=0.2,
    tpot_s=0.02, e2e_s=1.24, tokens=53, spec=SpecUsage(43, 129, 10, (39, 1, 0, 3), 3),
)  # fmt: skip
EMPTY: dict[str, int] = {}


@given(st.lists(TRIALS, max_size=12), st.data())
def test_sums_are_equal_in_any_order_and_grouping(trials: list[Trial], data: st.DataObject) -> None:
    """Stored sums commute, and reading them back commutes with adding; nothing is ignored."""
    parts = [increments(trial, 300) for trial in trials]
    shuffled = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(0, len(parts)))
    left, right = (reduce(add_counts, part, EMPTY) for part in (shuffled[:cut], shuffled[cut:]))
    whole = CellSums.of(reduce(add_counts, parts, EMPTY))
    assert whole == CellSums.of(add_counts(left, right))
    assert whole == add(CellSums.of(left), CellSums.of(right))
    assert whole.ignored == 0


@given(st.lists(TRIALS, max_size=12))
def test_every_request_is_counted_once(trials: list[Trial]) -> None:
    """N is the number of trials, and statuses add up to it."""
    cell = CellSums.of(reduce(add_counts, (increments(trial, 300) for trial in trials), EMPTY))
    assert len(trials) == cell.n == sum(cell.count(status) for status in Status)


def test_estimates_of_the_worked_example() -> None:
    """Tau 1.23, alpha .20, draft rate .078 survive the trip through integers, however often added."""
    one = CellSums.of(increments(WORKED, 53))
    for cell in (one, add(one, one)):
        assert cell.acceptance_length == pytest.approx(53 / 43)
        assert cell.acceptance_rate == 0.2
        assert cell.draft_acceptance_rate == pytest.approx(10 / 129)
        assert cell.position_rates(3) == (4 / 43, 3 / 4, 1.0)
        assert cell.tokens_per_request == 53
        assert cell.quantile("ttft", 0.5) == pytest.approx(0.2, rel=0.02)
    assert one.equal_acceptance_rate(3) == pytest.approx(0.19, abs=0.001)
    assert one.quantile_interval("ttft", 0.5) is None
    assert one.log_cost["s"].n == 1


def test_an_empty_cell_knows_nothing() -> None:
    """None everywhere, never 0."""
    cell = CellSums.of({})
    assert cell.n == 0
    unknown = (
        cell.acceptance_length,
        cell.acceptance_rate,
        cell.draft_acceptance_rate,
        cell.equal_acceptance_rate(3),
        cell.tokens_per_request,
        cell.quantile("tpot", 0.99),
        cell.quantile_interval("tpot", 0.99),
    )
    assert unknown == (None,) * 7
    assert cell.position_rates(2) == (None, None)


def test_requests_that_reported_nothing_do_not_dilute() -> None:
    """A silent request among speaking ones changes no acceptance figure."""
    silent = Trial(ClassId("chat"), ArmId("a"), Status.OK, streamed=False, propensity=1, tokens=9)
    both = CellSums.of(add_counts(increments(WORKED, 53), increments(silent, 53)))
    assert both.acceptance_length == pytest.approx(53 / 43)
    assert both.plain["steps.n"] == 1
    assert both.n == 2


def test_sources_of_steps_stay_apart() -> None:
    """The best one is shown, and neither is mixed into the other."""
    streamed = replace(WORKED, tokens=100, spec=SpecUsage(steps=50, source=Source.STREAM))
    cell = CellSums.of(add_counts(increments(WORKED, 53), increments(streamed, 53)))
    assert cell.best_source is Source.REQUEST
    assert cell.acceptance_length == pytest.approx(53 / 43)
    assert cell.steps(Source.STREAM) == StepSums(1, 100, 50, 10_000, 5000, 2500)
    alone = CellSums.of(increments(streamed, 53))
    assert (alone.best_source, alone.acceptance_length) == (Source.STREAM, 2.0)
    assert CellSums.of({}).best_source is None
    assert cell.steps(Source.COUNTERS) == StepSums()


def test_positions_are_known_where_all_drafts_are_full() -> None:
    """One short draft, and they are not; nor without k."""
    full = increments(WORKED, 53)
    assert CellSums.of(full).full_position_rates(3) == (4 / 43, 3 / 4, 1.0)
    assert CellSums.of(full).full_position_rates(None) == ()
    short = replace(WORKED, spec=SpecUsage(43, 100, 10, (39, 1, 0, 3), 3))
    mixed = CellSums.of(add_counts(full, increments(short, 53)))
    assert mixed.full_position_rates(3) == ()


@pytest.mark.parametrize(
    "garbage",
    [
        {"tokens": -1}, {"n": 2**63}, {"nonsense": 1}, {"ttft.-1": 1}, {"ttft.99999": 1},
        {"hist.65": 1}, {"ttft.x": 1}, {"y.s": 1}, {"y.s.z": 1}, {"ttft.07": 1}, {"ttft.": 1},
        {"status.gone": 1}, {"y.s!.n": 1}, {"ttft.³": 1}, {"tokens": 1.5}, {"tokens": True},
        {"y.s.n": 1}, {"y.s.q": -1},
    ],
)  # fmt: skip
def test_garbage_is_ignored_and_counted(garbage: dict[str, int]) -> None:
    """A corrupted or foreign field costs itself, and shows."""
    cell = CellSums.of({"status.ok": 1, **garbage})
    assert cell.ignored == 1
    assert cell == CellSums(plain={"status.ok": 1}, ignored=1)


@pytest.mark.parametrize(
    ("n", "s", "q"),
    [(1, 30_000_000, 900_000_000), (2, 2_000_000, 0), (-1, 0, 0), (0, 5, 5), (1, 0, 10**12)],
)
def test_log_costs_that_no_requests_can_have_are_dropped(n: int, s: int, q: int) -> None:
    """Sums outside the clip, or whose square is below the mean's, would poison every comparison."""
    cell = CellSums.of({"y.s.n": n, "y.s.s": s, "y.s.q": q, "y.w3.n": 1, "y.w3.s": -2, "y.w3.q": 0})
    assert {"w3": LogCostSums(1, -2, 0)} == dict(cell.log_cost)
    assert cell.ignored >= 1


@given(
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["n", "y.s.n", "y.s.s", "y.s.q", "ttft.3"]),
        st.integers() | st.just(0),
        max_size=8,
    )
)
def test_reading_never_raises(counts: dict[str, int]) -> None:
    """Whatever a store holds, reading answers."""
    cell = CellSums.of(counts)
    assert cell.ignored <= len(counts)
    assert cell.quantile("ttft", 0.5) is None or cell.latency["ttft"]


ARMS = example_arms(2)


def cell_of(y: list[float], kind: str = "s") -> CellSums:
    """A cell with these log costs and as many requests that ended well, plus one that failed."""
    return CellSums.of(
        {
            "n": len(y) + 1,
            "status.ok": len(y),
            "status.failed": 1,
            f"y.{kind}.n": len(y),
            f"y.{kind}.s": round(sum(y) * 1e6),
            f"y.{kind}.q": round(sum(value**2 for value in y) * 1e6),
        }
    )


def test_each_block_and_kind_is_a_stratum() -> None:
    """Weights multiply sums; arms the route no longer has, and blocks without weight, are left out."""
    plain, fast = ARMS[0].arm_id, ARMS[1].arm_id
    view = arm_view(
        ClassId("chat"),
        ARMS,
        [
            (1.0, {plain: cell_of([1.0, 1.0]), fast: cell_of([0.5])}),
            (
                0.5,
                {plain: cell_of([2.0], "w3"), fast: cell_of([1.0]), ArmId("gone"): cell_of([0.0])},
            ),
            (0.0, {plain: cell_of([9.0])}),
            (math.nan, {plain: cell_of([9.0])}),
        ],
    )
    assert view.n.tolist() == [[2.0, 1.0], [0.0, 0.5], [0.5, 0.0]]
    assert view.total.tolist() == [[2.0, 0.5], [0.0, 0.5], [1.0, 0.0]]
    assert view.total_sq.tolist() == [[2.0, 0.25], [0.0, 0.5], [2.0, 0.0]]
    assert view.served.tolist() == [2.5, 1.5]
    assert view.failed.tolist() == [1.5, 1.5]


def test_no_blocks_make_an_empty_view() -> None:
    """A class nobody asked for has a view too."""
    view = arm_view(ClassId("chat"), ARMS, [])
    assert (0, 2) == view.n.shape == view.total.shape == view.total_sq.shape


def test_effects_survive_the_fixed_point() -> None:
    """Millionths are far below the noise: the effect comes back to 1e-5."""
    rng = np.random.default_rng(3)
    levels = rng.normal(-3, 0.3, 200)
    blocks = [
        (
            1.0,
            {
                ARMS[0].arm_id: cell_of(levels.tolist()),
                ARMS[1].arm_id: cell_of((levels - 0.4).tolist()),
            },
        )
    ]
    effects = arm_effects(arm_view(ClassId("chat"), ARMS, blocks))
    assert effects.mean[1] == pytest.approx(-0.4, abs=1e-5)
