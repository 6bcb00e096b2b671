"""Changes of cells: found by what is given, shown as events, and the past forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from policies.estimators.series import BlockSum
from policies.types import ClassId
from router.estimates.drifts import KEPT, CellSeries, Drifts, Shift, never
from router.estimates.events import EVERY, Event
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
    drifts.forget(8 + KEPT)
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
    """Finds jumps of 0.2 and more, where a block has requests of two classes at least."""
    means = [one.total / one.n for one in series if one.n >= 10.0]
    steps = np.abs(np.diff(means))
    if not len(steps) or steps.max() < 0.2:
        return None
    return Found(series[int(steps.argmax()) + 1].block, means[0], means[-1])


def looked(drifts: Drifts, classes: Mapping[ClassId, CellSeries]) -> list[Event]:
    """What is found when classes are looked at, each and then together."""
    found = [
        event
        for class_id, of in classes.items()
        for event in drifts.look(class_id, {FAST: of}, complete=9, wall=0.0)
    ]
    return [*found, *drifts.look_together(classes, complete=9, wall=0.0)]


def test_an_arm_that_changes_as_a_whole_is_one_event() -> None:
    """Before its classes tell, each for itself; and all of them forget what was before."""
    drifts = Drifts(ARMS, jumps)
    [event] = looked(drifts, {of: costs(level, 0.25) for of, level in LEVELS.items()})
    assert (event.class_id, event.arm_id, event.part) == (EVERY, FAST, POOLED)
    assert event.change is not None
    assert event.change.after - event.change.before == pytest.approx(0.25)
    assert event.change.wall == 6 * BLOCK_S
    assert drifts.told(MATH, [5, 6]).tolist() == [[True, False], [True, True]]


def test_one_class_that_changes_is_not_the_arm() -> None:
    """However far it jumps."""
    drifts = Drifts(ARMS, jumps)
    classes = {of: costs(level, 3.0 if of == CHAT else 0.0) for of, level in LEVELS.items()}
    assert looked(drifts, classes) == []
    assert drifts.told(MATH, [5]).all()


def test_an_arm_with_one_class_has_no_event_of_its_own() -> None:
    """That of the class says it all."""
    assert looked(Drifts(ARMS, jumps), {CHAT: costs(0.0, 0.5)}) == []


def test_blocks_that_left_the_window_are_still_looked_at() -> None:
    """How much a cell varies an hour hardly tells."""
    asked: list[list[int]] = []

    def watch(series: Sequence[BlockSum]) -> Shift | None:
        asked.append([one.block for one in series])
        return None

    drifts = Drifts(ARMS, watch)
    for block in (1, 2, KEPT + 1):
        series = {FAST: CellSeries((BlockSum(block, 10.0, 20.0, 50.0),), ())}
        list(drifts.look(CHAT, series, complete=block, wall=0.0))
        drifts.forget(block)
    list(
        drifts.look(
            CHAT,
            {FAST: CellSeries((BlockSum(KEPT + 3, 1.0, 1.0, 1.0),), ())},
            complete=KEPT + 3,
            wall=0.0,
        )
    )
    assert asked[-1] == [1, 2, KEPT + 1, KEPT + 3]
    drifts.forget(KEPT + 3)
    list(
        drifts.look(
            CHAT,
            {FAST: CellSeries((BlockSum(KEPT + 4, 1.0, 1.0, 1.0),), ())},
            complete=KEPT + 4,
            wall=0.0,
        )
    )
    assert asked[-1] == [KEPT + 1, KEPT + 3, KEPT + 4]
