"""Changes of cells: found by what is given, shown as events, and the past forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from policies.estimators.series import BlockSum
from policies.types import ClassId
from router.estimates.drifts import CellSeries, Drifts, Shift, never
from router.estimates.events import EVERY
from router.estimates.layout import BLOCK_S
from router.types import POOLED
from tests.support.builders import ARMS, CHAT, FAST, PLAIN

SERIES = (BlockSum(7, 10.0, 20.0, 50.0), BlockSum(8, 10.0, 10.0, 20.0))


@dataclass(frozen=True)
class Found:
    """A change at block 8."""

    block: int = 8
    before: float = 2.0
    after: float = 1.0


def last(series: Sequence[BlockSum]) -> Shift | None:
    """A detector that is never content."""
    return Found(series[-1].block)


def test_a_change_is_an_event_and_shortens_memory() -> None:
    """Of that cell alone."""
    drifts = Drifts(ARMS, last)
    cells = {FAST: CellSeries(SERIES, ()), PLAIN: CellSeries((), ())}
    [event] = drifts.look(CHAT, cells, complete=9, wall=5000.0)
    assert (event.wall, event.kind, event.class_id, event.arm_id) == (5000.0, "drift", CHAT, FAST)
    assert event.change is not None
    assert (event.change.figure, event.change.wall) == ("tau", 8.0 * BLOCK_S)
    assert (event.change.before, event.change.after) == (0.5, 1.0)
    assert drifts.told(CHAT, [7, 8]).tolist() == [[True, False], [True, True]]


def test_changes_older_than_the_window_are_forgotten() -> None:
    """There is nothing left to weigh by them."""
    drifts = Drifts(ARMS, last)
    list(drifts.look(CHAT, {FAST: CellSeries((), SERIES)}, complete=9, wall=0.0))
    drifts.forget(8)
    assert drifts.told(CHAT, [7, 8]).all()


def test_without_a_detector_nothing_changes() -> None:
    """Whatever the series."""
    drifts = Drifts(ARMS, never)
    cells = {FAST: CellSeries(SERIES, SERIES)}
    assert list(drifts.look(CHAT, cells, complete=9, wall=0.0)) == []
    assert drifts.told(CHAT, []).shape == (0, 2)


def test_a_detector_is_asked_once_for_each_new_block() -> None:
    """About complete blocks, from the last change on: its false alarms count its looks."""
    asked: list[list[int]] = []

    def watch(series: Sequence[BlockSum]) -> Shift | None:
        asked.append([one.block for one in series])
        return Found() if len(asked) == 2 else None

    drifts = Drifts(ARMS, watch)
    longer = (*SERIES, BlockSum(9, 10.0, 10.0, 20.0))
    for series, complete in ((SERIES, 7), (SERIES, 7), (SERIES, 8), (longer, 8), (longer, 9)):
        list(drifts.look(CHAT, {FAST: CellSeries(series, ())}, complete=complete, wall=0.0))
    assert asked == [[7], [7, 8], [8, 9]]


MATH, PROSE = ClassId("math"), ClassId("prose")
LEVELS = {CHAT: 0.0, MATH: -0.5, PROSE: 0.3}


def costs(level: float, jump: float) -> CellSeries:
    """Ten blocks of log cost, the last four after a jump."""
    means = [level + (jump if block >= 6 else 0.0) for block in range(10)]
    return CellSeries(
        (), tuple(BlockSum(i, 5.0, 5.0 * y, 5.0 * y * y) for i, y in enumerate(means))
    )


def jumps(series: Sequence[BlockSum]) -> Shift | None:
    """Finds jumps of 0.2 and more."""
    means = [one.total / one.n for one in series]
    steps = np.diff(means)
    if not len(steps) or np.abs(steps).max() < 0.2:
        return None
    at = int(np.abs(steps).argmax()) + 1
    return Found(series[at].block, means[0], means[-1])


def test_an_arm_that_changes_as_a_whole_is_one_event() -> None:
    """And all its classes forget what was before."""
    drifts = Drifts(ARMS, jumps)
    classes = {of: {FAST: costs(level, 0.25)} for of, level in LEVELS.items()}
    [event] = drifts.look_together(classes, complete=9, wall=0.0)
    assert (event.class_id, event.arm_id, event.part) == (EVERY, FAST, POOLED)
    assert event.change is not None
    assert event.change.after - event.change.before == pytest.approx(0.25)
    assert event.change.wall == 6 * BLOCK_S
    assert drifts.told(MATH, [5, 6]).tolist() == [[True, False], [True, True]]
    assert list(drifts.look(CHAT, classes[CHAT], complete=9, wall=0.0)) == []


def test_one_class_that_changes_is_not_the_arm() -> None:
    """However far it jumps."""
    drifts = Drifts(ARMS, jumps)
    classes = {of: {FAST: costs(level, 0.0)} for of, level in LEVELS.items()}
    classes[CHAT] = {FAST: costs(0.0, 3.0)}
    assert list(drifts.look_together(classes, complete=9, wall=0.0)) == []
    assert drifts.told(MATH, [5]).all()


def test_an_arm_with_one_class_has_no_event_of_its_own() -> None:
    """That of the class says it all."""
    drifts = Drifts(ARMS, jumps)
    classes = {CHAT: {FAST: costs(0.0, 0.5)}}
    assert list(drifts.look_together(classes, complete=9, wall=0.0)) == []
