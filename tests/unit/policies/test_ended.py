"""How requests end is compared within strata, at all looks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.ended import (
    ABANDONED_MARGIN,
    abandoned_beyond,
    excess,
    of_the_same_time,
)
from policies.estimators.verdict import FAILURE_MARGIN
from policies.types import FloatArray

BLOCKS, PER_BLOCK = 30, 60
HALF = np.full(BLOCKS, 0.5)
MOVED = np.where(np.arange(BLOCKS) < BLOCKS // 2, 0.1, 0.95)
"""Share of the arm: it gets the traffic half way."""
OUTAGE = np.where(np.arange(BLOCKS) < BLOCKS // 2, 0.0, 0.1)
"""Share that fails on either side: from the same time on."""


def drawn(
    rates: tuple[FloatArray, FloatArray], share: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Requests that ended so and all, shape (blocks, 2)."""
    rng = np.random.default_rng(seed)
    arm = rng.binomial(PER_BLOCK, share)
    n = np.stack([PER_BLOCK - arm, arm], axis=1)
    return rng.binomial(n, np.stack(rates, axis=1)).astype(float), n.astype(float)


def ever_above(hits: FloatArray, n: FloatArray, margin: float) -> bool:
    """Whether any look after a block finds the arm above."""
    return any(excess(hits[:look], n[:look], 0).above(margin)[1] for look in range(1, len(n) + 1))


@pytest.mark.parametrize(
    ("rate", "share"),
    [
        (np.full(BLOCKS, 0.1), HALF),
        (np.full(BLOCKS, 0.1), np.full(BLOCKS, 0.98)),
        (np.full(BLOCKS, 0.3), np.full(BLOCKS, 0.05)),
        (np.full(BLOCKS, 0.01), HALF),
        (OUTAGE, MOVED),
        (6.0 * OUTAGE, MOVED),
    ],
)
def test_whoever_ends_like_the_baseline_is_above_at_no_look(
    rate: FloatArray, share: FloatArray
) -> None:
    """Whenever it has the traffic, and however few requests the baseline has."""
    found = sum(
        ever_above(*drawn((rate, rate), share, seed), FAILURE_MARGIN) for seed in range(200)
    )
    assert found <= 2


def test_without_a_margin_it_holds_at_all_looks_together() -> None:
    """Far more seldom than one arm in twenty, of 300."""
    rate = np.full(BLOCKS, 0.1)
    assert sum(ever_above(*drawn((rate, rate), HALF, seed), 0.0) for seed in range(300)) <= 6


def test_an_arm_that_fails_more_is_found() -> None:
    """Eight in a hundred more, while both have an outage besides."""
    more = OUTAGE + 0.08
    found = sum(
        bool(excess(*drawn((OUTAGE, more), HALF, seed), 0).above(FAILURE_MARGIN)[1])
        for seed in range(50)
    )
    assert found >= 35


def test_sums_over_the_window_would_have_blamed_the_arm() -> None:
    """The difference is that of each moment, and not that of the halves."""
    hits, n = drawn((OUTAGE, OUTAGE), MOVED, 1)
    whole = hits.sum(axis=0) / n.sum(axis=0)
    assert whole[1] - whole[0] > 0.08
    assert abs(excess(hits, n, 0).value[1]) < 0.05


def test_strata_with_one_side_say_nothing() -> None:
    """However many requests are in them, and however they ended."""
    hits, n = drawn((OUTAGE, OUTAGE + 0.1), HALF, 2)
    alone = np.array([[0.0, 900.0], [900.0, 0.0], [0.0, 0.0]])
    one = excess(hits, n, 0)
    two = excess(np.concatenate([hits, alone]), np.concatenate([n, alone]), 0)
    for name in ("value", "low", "met", "pairs"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name))


def test_an_arm_that_meets_nobody_is_unknown() -> None:
    """Nor is the baseline above itself."""
    found = excess(np.array([[0.0, 0.0], [0.0, 50.0]]), np.array([[50.0, 0.0], [0.0, 50.0]]), 0)
    assert (found.value.tolist(), found.low.tolist()) == ([0.0, 0.0], [-1.0, -1.0])
    assert not found.above(-2.0).any()
    hardly = excess(np.array([[0.0, 900.0]]), np.array([[4.0, 900.0]]), 0)
    assert not hardly.above(FAILURE_MARGIN)[1]
    assert excess(np.array([[0.0, 900.0]]), np.array([[5.0, 900.0]]), 0).above(FAILURE_MARGIN)[1]


@pytest.mark.parametrize(
    ("failed", "n", "expected"),
    [(30, 30, True), (5, 5, True), (2, 2, False), (2, 5, False), (0, 50, False)],
)
def test_a_few_that_fail_prove_little(failed: int, n: int, *, expected: bool) -> None:
    """Against a baseline that served fifty."""
    found = excess(np.array([[0.0, failed]]), np.array([[50.0, n]]), 0)
    assert bool(found.above(FAILURE_MARGIN)[1]) is expected


def test_numbers_that_cannot_be_true_decide_nothing() -> None:
    """They count as none, and nothing becomes NaN."""
    n = np.array([[50.0, math.nan, math.inf, -5.0, 1e300]] * 3)
    found = excess(n[:, ::-1], n, 0)
    for name in ("value", "low", "met", "pairs"):
        assert np.isfinite(getattr(found, name)).all()
    ended = np.stack([n, n, n], axis=1)
    for figures in of_the_same_time(ended, 0):
        assert (np.isfinite(figures) & (figures >= 0.0)).all()


def ended_of(
    failed: tuple[FloatArray, FloatArray],
    abandoned: tuple[FloatArray, FloatArray],
    share: FloatArray,
    seed: int,
) -> FloatArray:
    """Requests served, failed and abandoned, shape (blocks, 3, 2)."""
    left, n = drawn(abandoned, share, seed)
    rng = np.random.default_rng((seed, 1))
    broken = rng.binomial((n - left).astype(int), np.stack(failed, axis=1)).astype(float)
    return np.stack([n - left - broken, broken, left], axis=1)


NONE = np.zeros(BLOCKS)


def test_where_nothing_fails_and_clients_leave_both_alike_sums_stay_as_they_are() -> None:
    """To the last bit, in 200 runs."""
    rate = np.full(BLOCKS, 0.15)
    for seed in range(200):
        ended = ended_of((NONE, NONE), (rate, rate), MOVED, seed)
        served, failed = of_the_same_time(ended, 0)
        assert served.tolist() == ended[:, 0].sum(axis=0).tolist()
        assert failed.tolist() == [0.0, 0.0]


def test_an_outage_of_all_is_held_against_nobody() -> None:
    """The arm that had the traffic then has the share of the one that had not."""
    shares, crude = [], []
    for seed in range(50):
        ended = ended_of((OUTAGE, OUTAGE), (NONE, NONE), MOVED, seed)
        served, failed = of_the_same_time(ended, 0)
        assert served + failed == pytest.approx(ended[:, :2].sum(axis=(0, 1)))
        shares.append(failed / (served + failed))
        crude.append(ended[:, 1].sum(axis=0) / ended[:, :2].sum(axis=(0, 1)))
    assert np.diff(np.mean(crude, axis=0)) > 0.08
    assert np.diff(np.mean(shares, axis=0)) == pytest.approx(0.0, abs=0.015)


def test_an_arm_that_fails_by_itself_keeps_its_failures() -> None:
    """The baseline's share is never touched."""
    ended = ended_of((NONE, NONE + 0.2), (NONE, NONE), HALF, 3)
    served, failed = of_the_same_time(ended, 0)
    whole = ended.sum(axis=0)
    assert failed / (served + failed) == pytest.approx(whole[1] / whole[:2].sum(axis=0), abs=0.005)
    assert served[0] == whole[0, 0]


def test_where_the_baseline_was_not_met_what_the_arm_did_stands() -> None:
    """It failed, whatever the baseline did at other times."""
    ended = np.array([[[90.0, 0.0], [10.0, 0.0], [0, 0]], [[0.0, 5.0], [0.0, 95.0], [0, 0]]])
    served, failed = of_the_same_time(ended, 0)
    assert (served.tolist(), failed.tolist()) == ([90.0, 5.0], [10.0, 95.0])


def test_answers_that_are_abandoned_more_often_have_failed() -> None:
    """As far as that is sure; those of an arm that never answers too."""
    ended = ended_of((NONE, NONE), (NONE + 0.05, NONE + 0.3), HALF, 4)
    served, failed = of_the_same_time(ended, 0)
    assert 0.15 < failed[1] / (served + failed)[1] < 0.25
    assert failed[0] == 0.0
    never = ended_of((NONE, NONE), (NONE, NONE + 1.0), HALF, 5)
    served, failed = of_the_same_time(never, 0)
    assert served[1] == 0.0
    assert failed[1] > 500.0


def test_clients_that_leave_at_random_add_nothing_at_any_look() -> None:
    """Whether the baseline serves half or is a mere control: of 200 runs hardly any."""
    rate = np.full(BLOCKS, 0.2)
    for share in (HALF, np.full(BLOCKS, 0.97)):
        above = added = 0
        for seed in range(100):
            ended = ended_of((NONE, NONE), (rate, rate), share, seed)
            above += ever_above(ended[:, 2], ended.sum(axis=1), ABANDONED_MARGIN)
            looks = [abandoned_beyond(ended[:look], 0)[1] for look in range(1, BLOCKS + 1)]
            added += max(looks) > 0.01 * ended[:, :, 1].sum()
        assert (above, added) == (0, 0)


def test_groups_are_laid_out_in_front() -> None:
    """Each by itself."""
    one = ended_of((OUTAGE, OUTAGE), (NONE, NONE + 0.3), MOVED, 6)
    two = ended_of((NONE, OUTAGE), (NONE, NONE), HALF, 7)
    both = of_the_same_time(np.stack([one, two]), 0)
    for index, alone in enumerate((one, two)):
        for figures, single in zip(both, of_the_same_time(alone, 0), strict=True):
            np.testing.assert_allclose(figures[index], single)
