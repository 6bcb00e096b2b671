"""Whether a cell has changed: blocks, looks, memory and causes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.verify_models import Cell
from policies.estimators.drift import (
    FIELDS,
    MIN_HISTORY,
    NOTHING,
    Block,
    Cause,
    Change,
    Shift,
    cause_of,
    cost_block,
    find_change,
    increments,
    memory,
    scan,
    shift_at,
    steps_block,
)
from policies.types import ArmId, ClassId, SpecUsage, Status, Trial

TRIAL = Trial(
    ClassId("chat"),
    ArmId("fast"),
    Status.OK,
    streamed=False,
    propensity=0.5,
    tokens=100,
    spec=SpecUsage(steps=40),
)
JUMP = 1.0 / 2.0 - 1.0 / 2.8


def blocks(count: int, *, seed: int = 0, **cell: Any) -> list[Block]:
    """Of a cell that may jump."""
    return Cell(**cell).blocks(np.random.default_rng(seed), count)


def test_a_request_adds_its_steps_per_token() -> None:
    """Streamed or not: it says nothing about time."""
    assert increments(TRIAL) == {"dr.n": 1, "dr.s": 400_000, "dr.q": 160_000}
    assert set(increments(TRIAL)) == FIELDS


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.FAILED},
        {"tokens": None},
        {"tokens": 15},
        {"spec": None},
        {"spec": SpecUsage(drafted=5, accepted=2)},
        {"spec": SpecUsage(steps=0)},
        {"spec": SpecUsage(steps=101)},
    ],
)
def test_a_request_that_cannot_tell_adds_nothing(changes: dict[str, Any]) -> None:
    """Missing is None, never 0."""
    assert increments(replace(TRIAL, **changes)) == {}


def test_a_block_is_read_back_from_its_sums() -> None:
    """Mean and spread; what cannot be is nothing."""
    block = steps_block({"dr.n": 2, "dr.s": 900_000, "dr.q": 410_000})
    assert (block.n, block.mean, block.df) == (2.0, 0.45, 1.0)
    assert block.within == pytest.approx(0.005)
    for sums in (
        {},
        {"dr.n": 1},
        {"dr.n": 1, "dr.s": 2_000_000, "dr.q": 1},
        {"dr.s": 5, "dr.q": 5},
    ):
        assert steps_block(sums) == NOTHING


def test_costs_are_compared_within_strata() -> None:
    """A mix that moves between strata is no difference of the arm."""
    n = np.array([[30.0, 10.0], [10.0, 30.0], [5.0, 0.0]])
    mean = np.array([[1.3, 1.0], [5.3, 5.0], [9.0, 0.0]])
    block = cost_block(n, n * mean, n * (mean**2 + 0.04))
    assert block.mean == pytest.approx(0.3)
    assert block.n == pytest.approx(15.0)
    assert block.within == pytest.approx(80 * 0.04)
    assert block.df == 76.0
    assert cost_block(n[2:], n[2:], n[2:]) == NOTHING


def test_a_jump_is_found_where_it_was() -> None:
    """With what was before and after, and how strong the sign is."""
    change = find_change(blocks(44, jump=JUMP, at=40))
    assert change is not None
    assert change.at_block == 40
    assert 1.0 / change.before == pytest.approx(2.8, rel=0.02)
    assert 1.0 / change.after == pytest.approx(2.0, rel=0.02)
    assert change.evidence > 2.0


def test_nothing_is_found_without_a_history() -> None:
    """Nobody knows yet how much blocks vary."""
    assert find_change([]) is None
    assert find_change(blocks(MIN_HISTORY, jump=JUMP, at=4)) is None
    assert find_change([NOTHING] * 60) is None


def test_what_wanders_from_block_to_block_is_no_jump() -> None:
    """The same step is a change where blocks are alike, and none where they are not."""
    step = 0.05
    assert find_change(blocks(50, jump=step, at=46)) is not None
    assert find_change(blocks(50, jump=step, at=46, wander=0.04, correlation=0.6)) is None


def test_blocks_of_few_requests_are_put_together() -> None:
    """The change is placed to within the blocks that were put together."""
    found = list(scan(blocks(240, requests=2.0, jump=JUMP, at=180)))
    assert len(found) == 1
    assert abs(found[0].at_block - 180) <= 6


def test_blocks_without_requests_are_passed_over() -> None:
    """They move nothing but the index."""
    quiet = [NOTHING] * 7
    kept = blocks(44, jump=JUMP, at=40)
    found = find_change([*kept[:20], *quiet, *kept[20:]])
    assert found is not None
    assert found.at_block == 47


def test_a_scan_finds_changes_one_after_the_other() -> None:
    """Each look begins after the last change."""
    up, down = blocks(40, jump=JUMP, at=0), blocks(80, jump=JUMP, at=40, seed=1)
    found = list(scan([*down, *blocks(40, seed=2)]))
    assert [change.at_block for change in found] == [40, 80]
    assert list(scan(up)) == []


def test_memory_ends_at_the_last_change() -> None:
    """Without one it is whole."""
    assert memory(3, []).tolist() == [1.0, 1.0, 1.0]
    changes = [Change(1, 0.3, 0.4, 3.0), Change(2, 0.4, 0.5, 3.0)]
    assert memory(4, changes).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_shift_is_measured_whether_or_not_there_is_a_change() -> None:
    """With a variance that grows with how much blocks wander."""
    calm = shift_at(blocks(44, jump=JUMP, at=40), 40)
    wandering = shift_at(blocks(44, jump=JUMP, at=40, wander=0.04, correlation=0.5), 40)
    assert calm is not None
    assert wandering is not None
    assert calm.value == pytest.approx(JUMP, abs=0.03)
    assert wandering.variance > 4 * calm.variance
    assert shift_at(blocks(MIN_HISTORY - 1), 4) is None
    assert shift_at(blocks(44), 44) is None
    assert shift_at(blocks(44), 0) is None


@pytest.mark.parametrize(
    ("others", "cause"),
    [
        ([0.14, 0.12, 0.15], Cause.ENGINE),
        ([0.0, 0.01, -0.01], Cause.CONTENT),
        ([0.07, 0.07, 0.07], Cause.UNCLEAR),
        ([0.0, 0.14, 0.0, 0.14], Cause.UNCLEAR),
        ([-0.14, -0.12], Cause.CONTENT),
        ([], Cause.UNCLEAR),
    ],
)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_jump_is_the_engine_s_if_the_other_classes_jumped_too(
    others: list[float], cause: Cause, sign: float
) -> None:
    """In whichever direction; where they disagree nobody knows."""
    known = [Shift(sign * value, 1e-4) for value in others]
    assert cause_of(Shift(sign * 0.14, 1e-4), known) == cause


def test_uncertain_shifts_leave_the_cause_unclear() -> None:
    """Few requests are no evidence that nothing happened."""
    assert cause_of(Shift(0.14, 1e-4), [Shift(0.0, 0.1), Shift(0.0, 0.1)]) is Cause.UNCLEAR
    assert cause_of(Shift(0.0, 1e-4), [Shift(0.0, 1e-4)]) is Cause.UNCLEAR
