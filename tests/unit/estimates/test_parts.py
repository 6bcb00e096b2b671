"""Sums of a class by stratum and part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks import example_arms
from policies.estimators.cells import CellSums, LogCostSums, add
from policies.types import ArmId
from router.estimates.layout import segment_of
from router.estimates.parts import MIN_N, Gathered, Strata, gathered, strata_of
from router.types import POOLED, SegmentId

ARMS = example_arms(3)
A, A_COPYING, B = map(SegmentId, ("a", "a+", "b"))
Cells = dict[SegmentId, dict[ArmId, CellSums]]


def cell(ys: Mapping[str, list[float]], failed: int = 0) -> CellSums:
    """A cell of requests with these log costs by kind."""
    costs = {
        kind: LogCostSums(
            len(of), sum(round(y * 1e6) for y in of), sum(round(y * y * 1e6) for y in of)
        )
        for kind, of in ys.items()
        if of
    }
    n = sum(map(len, ys.values()))
    return CellSums({"n": n + failed, "status.ok": n, "status.failed": failed}, {}, {}, costs)


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([POOLED, A, A_COPYING, B]),
        st.integers(0, 2),
        st.sampled_from(["s", "w5"]),
        st.floats(-9, 11),
    ),
    max_size=40,
)


def cells_of(requests: list[tuple[SegmentId, int, str, float]]) -> Cells:
    """What these requests add to their block: each to its class, and to its part."""
    cells: Cells = {}
    for part, arm, kind, y in requests:
        for into in {POOLED, part}:
            row = cells.setdefault(into, {})
            one = cell({kind: [y]})
            arm_id = ARMS[arm].arm_id
            row[arm_id] = add(row[arm_id], one) if arm_id in row else one
    return cells


def by_hand(
    requests: list[tuple[SegmentId, int, str, float]], group: SegmentId, figure: int
) -> list[float]:
    """Sums of a figure over the requests of a segment, by arm."""
    return [
        sum(
            (1.0, y, y * y)[figure]
            for part, a, _, y in requests
            if segment_of(part) == group and a == arm
        )
        for arm in range(3)
    ]


@given(st.lists(REQUESTS, min_size=1, max_size=4))
def test_groups_add_up_to_their_class(
    blocks: list[list[tuple[SegmentId, int, str, float]]],
) -> None:
    """Whatever is told apart, nothing is lost and nothing counts twice."""
    strata = [strata_of(ARMS, cells_of(of)) for of in blocks]
    keys = [POOLED, A, B]
    made = gathered(strata, ARMS).grouped(keys, segment_of)
    rows = [*made.starts, len(made.sums)]
    every = [request for of in blocks for request in of]
    for index, key in enumerate(keys):
        sums = made.sums[rows[index] : rows[index + 1]].sum(axis=0)
        for figure in range(3):
            assert sums[figure] == pytest.approx(by_hand(every, key, figure), abs=1e-3)
    whole = gathered(strata, ARMS).grouped([POOLED], lambda _: POOLED)
    assert whole.sums.sum(axis=0) == pytest.approx(made.sums.sum(axis=0))
    _, ended = made.weighted(np.ones(len(blocks)))
    assert ended.sum(axis=(0, 1, 2)) == pytest.approx(
        [sum(arm == a for _, a, _, _ in every) for arm in range(3)]
    )


@given(REQUESTS)
def test_strata_are_blocks_and_kinds(requests: list[tuple[SegmentId, int, str, float]]) -> None:
    """Parts that go together share them."""
    made = gathered([strata_of(ARMS, cells_of(requests))] * 2, ARMS).grouped(
        [POOLED], lambda _: POOLED
    )
    kinds = {kind for _, _, kind, _ in requests}
    assert len(made.sums) == max(2 * len(kinds), 1)


def test_weights_are_those_of_blocks() -> None:
    """The requests that ended too."""
    one = strata_of(ARMS, {POOLED: {ARMS[1].arm_id: cell({"s": [1.0, 3.0]}, failed=2)}})
    made = gathered([one, None, one], ARMS).grouped([POOLED], lambda _: POOLED)
    sums, ended = made.weighted(np.array([1.0, 7.0, 0.5]))
    assert sums[:, :, 1].tolist() == [[2.0, 4.0, 10.0], [1.0, 2.0, 5.0]]
    assert ended[0, :, :, 1].tolist() == [[2.0, 2.0, 0.0], [0.0] * 3, [1.0, 1.0, 0.0]]


def test_parts_that_hold_more_than_the_whole_leave_nothing() -> None:
    """Another program wrote into the store; no count falls below 0."""
    small, large = cell({"s": [1.0]}), cell({"s": [1.0, 2.0]}, failed=1)
    made = strata_of(ARMS, {POOLED: {ARMS[1].arm_id: small}, A: {ARMS[1].arm_id: large}})
    names = dict(zip(made.ended_part.tolist(), made.names, strict=True))
    assert [names[code] for code in made.part.tolist()] == [A]
    assert made.ended.min() == 0.0


def test_arms_that_are_gone_are_left_out() -> None:
    """Of an earlier configuration."""
    made = strata_of(ARMS, {POOLED: {ArmId("gone"): cell({"s": [1.0]})}})
    assert len(made.sums) == 0
    assert made.ended.sum() == 0.0


def test_nothing_is_one_empty_group() -> None:
    """Every group has a row, so that sums by group can be taken."""
    made = gathered([], ARMS).grouped([POOLED, A], lambda _: POOLED)
    assert made.sums.shape == (2, 3, 3)
    assert not made.sums.any()
    assert made.starts == (0, 1)


def thin(requests: int, blocks: int) -> Gathered:
    """So many requests of a segment in each of so many blocks."""
    one: Strata = strata_of(ARMS, cells_of([(A, 0, "s", 1.0)] * requests))
    return gathered([one] * blocks, ARMS)


@pytest.mark.parametrize(
    ("requests", "blocks", "told"),
    [(MIN_N, 1, True), (MIN_N - 1, 1, False), (2, MIN_N // 2, True), (1, 2 * MIN_N, False)],
)
def test_a_part_is_told_apart_from_some_data_on(requests: int, blocks: int, *, told: bool) -> None:
    """And two observations to a stratum: one alone says nothing about arms."""
    assert (A in thin(requests, blocks).telling(segment_of)) is told
