"""Log times of single requests, as sums."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.estimators.cells import CellSums, add, add_counts
from policies.estimators.increments import FIXED_POINT, increments
from policies.estimators.times import log_times, sums_of_time
from policies.types import ArmId, ClassId, Status, Trial

STREAM = Trial(
    ClassId("chat"),
    ArmId("a"),
    Status.OK,
    streamed=True,
    propensity=1.0,
    ttft_s=0.3,
    tpot_s=0.02,
    e2e_s=2.3,
    tokens=101,
)


def sums_of(trial: Trial) -> dict[str, int]:
    """All that a request adds to a side of an experiment."""
    sums = increments(trial, 300)
    return {**sums, **log_times(trial, sums)}


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (STREAM, {"tpot": 0.02, "ttft": 0.3, "e6": 2.3 / 101}),
        (replace(STREAM, tokens=9, tpot_s=0.2), {"ttft": 0.3}),
        (replace(STREAM, tokens=None), {"ttft": 0.3, "ex": 2.3}),
        (replace(STREAM, streamed=False, ttft_s=None, tpot_s=None), {}),
        (replace(STREAM, status=Status.FAILED), {}),
        (replace(STREAM, ttft_s=math.nan, e2e_s=-1.0), {"tpot": 0.02}),
    ],
)
def test_a_time_is_kept_where_it_was_measured(trial: Trial, expected: dict[str, float]) -> None:
    """As its logarithm; what is no cost already, and what can be true."""
    made = log_times(trial, increments(trial, 300))
    assert {name.split(".")[1] for name in made} == set(expected)
    for kind, seconds in expected.items():
        assert made[f"t.{kind}.s"] == round(math.log(seconds) * FIXED_POINT)
        assert made[f"t.{kind}.q"] == round(math.log(seconds) ** 2 * FIXED_POINT)


def test_sums_are_exact_however_they_are_added() -> None:
    """Before they are read back, and after."""
    others = [sums_of(replace(STREAM, ttft_s=0.1 * n, e2e_s=2.0 + 0.1 * n)) for n in range(1, 9)]
    stored: dict[str, int] = {}
    cell = CellSums()
    for sums in others:
        stored = add_counts(stored, sums)
        cell = add(cell, CellSums.of(sums))
    assert cell == CellSums.of(stored)
    assert (sums_of_time(cell, "ttft")["ttft"].n, cell.ignored) == (8, 0)


def test_e2e_is_compared_at_like_length() -> None:
    """Streams by band, whole answers by their cost, in strata of their own."""
    whole = replace(STREAM, streamed=False, ttft_s=None, tpot_s=None)
    stored: dict[str, int] = {}
    for trial in (STREAM, replace(STREAM, tokens=40), whole):
        stored = add_counts(stored, sums_of(trial))
    assert set(sums_of_time(CellSums.of(stored), "e2e")) == {"e5", "e6", "w6"}


def test_sums_that_cannot_be_true_are_ignored() -> None:
    """And counted."""
    cell = CellSums.of({"t.tpot.n": -1, "t.tpot.s": 5, "t.tpot.q": 5, "t.x y.n": 1})
    assert (sums_of_time(cell, "tpot"), cell.ignored) == ({}, 4)
