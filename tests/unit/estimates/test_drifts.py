"""Changes of cells: found by what is given, shown as events, and the past forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimators.series import BlockSum
from router.estimates.drifts import CellSeries, Drifts, Shift, never
from router.estimates.layout import BLOCK_S
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
    assert (event.change.before, event.change.after) == (2.0, 1.0)
    weights = drifts.weights(CHAT, [7, 8], np.array([0.5, 1.0]))
    assert weights.tolist() == [[0.5, 0.0], [1.0, 1.0]]


def test_changes_older_than_the_window_are_forgotten() -> None:
    """There is nothing left to weigh by them."""
    drifts = Drifts(ARMS, last)
    list(drifts.look(CHAT, {FAST: CellSeries((), SERIES)}, complete=9, wall=0.0))
    drifts.forget(8)
    assert drifts.weights(CHAT, [7, 8], np.ones(2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_without_a_detector_nothing_changes() -> None:
    """Whatever the series."""
    drifts = Drifts(ARMS, never)
    cells = {FAST: CellSeries(SERIES, SERIES)}
    assert list(drifts.look(CHAT, cells, complete=9, wall=0.0)) == []
    assert drifts.weights(CHAT, [], np.ones(0)).shape == (0, 2)


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
