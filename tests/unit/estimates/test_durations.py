"""Durations as rows, and back as histograms by block."""

from __future__ import annotations

from policies.checks import example_arms
from policies.estimators.cells import CellSums
from router.estimates.durations import Durations, rows_of

ARMS = example_arms(2)
ONE, OTHER = (arm.arm_id for arm in ARMS)


def test_rows_give_the_histograms_back() -> None:
    """By family, arm and block; a block without requests of the class is an empty one."""
    first = {ONE: CellSums.of({"ttft.300": 2, "tpot.200": 1}), OTHER: CellSums.of({"ttft.301": 5})}
    last = {ONE: CellSums.of({"ttft.302": 1})}
    made = Durations.of([rows_of(ARMS, first), None, rows_of(ARMS, last)], 2)
    ttft = made.histogram("ttft", 0)
    assert (ttft.first, ttft.n) == (300, 3)
    assert ttft.counts.tolist() == [[2, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert made.histogram("ttft", 1).counts.tolist() == [[5], [0], [0]]
    assert made.histogram("tpot", 1).n == 0


def test_bands_of_length_are_those_that_were_met() -> None:
    """By arm, in the order of their length."""
    cell = {ONE: CellSums.of({"e2ew7.300": 1, "e2ewx.300": 1, "e2ew3.300": 2, "e2e.300": 1})}
    made = Durations.of([rows_of(ARMS, cell)], 2)
    assert list(made.bands(0)) == [("3", "e2ew3"), ("7", "e2ew7"), ("x", "e2ewx")]
    assert list(made.bands(1)) == []


def test_nothing_is_no_rows() -> None:
    """Neither blocks nor arms need be there."""
    assert Durations.of([], 2).histogram("tpot", 0).n == 0
    assert Durations.of([rows_of(ARMS, {})], 2).histogram("tpot", 0).n == 0


def test_counts_that_cannot_be_are_bounded() -> None:
    """What another program wrote takes no more room than others."""
    made = Durations.of([rows_of(ARMS, {ONE: CellSums.of({"ttft.5": 2**60})})], 2)
    assert made.histogram("ttft", 0).n == 2**31 - 1
