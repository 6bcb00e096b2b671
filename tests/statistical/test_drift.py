"""Drift is found soon, and seldom where there is none.

The small form of `bench/verify_models.py`, whose worlds and measures it uses. Seeds are fixed, so
every figure is reproducible; each tolerance says what it allows for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.verify_models import TAU, TIME, Cell, alarms, causes, delays
from policies.estimators.drift import FALSE_PER_DAY, LOOKS_PER_DAY, Cause

MIXED = Cell(wander=0.02, correlation=0.5)
SLOW = Cell(wander=0.02, correlation=0.8)


@pytest.mark.parametrize(
    "cell", [Cell(), MIXED, SLOW], ids=["sampling alone", "mix wanders", "mix wanders slowly"]
)
def test_cells_that_do_not_change_give_no_alarm(cell: Cell) -> None:
    """10 days at a hundredth of an alarm a day: the chance of two or more is half a per cent."""
    looks = 120
    seeds = 10 * LOOKS_PER_DAY // looks
    assert alarms(cell, seeds, looks).sum() <= 1
    assert pytest.approx(0.01) == FALSE_PER_DAY


@pytest.mark.parametrize(
    ("cell", "most"),
    [
        (Cell(jump=TAU), 1),
        (replace(MIXED, jump=TAU), 2),
        (replace(SLOW, jump=TAU), 2),
        (Cell(30.0, 0.3, jump=TIME), 4),
    ],
    ids=["tau 2.8 to 2.0", "mix wanders", "mix wanders slowly", "time +30 %, 60 and 60 requests"],
)
def test_a_jump_is_found_within_blocks(cell: Cell, most: int) -> None:
    """In half of the seeds; nearly all within ten blocks, and at the right place."""
    found = delays(cell, 20, most=30)
    assert np.median(found.blocks) <= most
    assert (found.blocks <= 10).mean() >= 0.9
    assert np.nanmean(found.off) <= 1.0


def test_the_engine_is_told_from_the_content() -> None:
    """Never the one for the other, in 40 seeds each; seldom neither."""
    together = causes(replace(MIXED, jump=TAU), 1.0, 40)
    alone = causes(replace(MIXED, jump=TAU), 0.0, 40)
    assert together[Cause.CONTENT] == alone[Cause.ENGINE] == 0.0
    assert together[Cause.ENGINE] >= 0.8
    assert alone[Cause.CONTENT] >= 0.8
