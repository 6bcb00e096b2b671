"""Changes of drafting are seen within a few requests, and none where nothing changed."""

from __future__ import annotations

import numpy as np

from policies.estimators.breaks import latest_break
from policies.types import FloatArray


def rows(taus: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One request a row, of 50 to 400 tokens, whose tau is spread by a quarter."""
    tokens = rng.integers(50, 400, len(taus)).astype(np.float64)
    steps = np.maximum(tokens / (taus * np.exp(rng.normal(0.0, 0.25, len(taus)))), 1.0)
    sums = np.stack(
        [np.ones(len(taus)), tokens, steps, tokens**2, tokens * steps, steps**2], axis=1
    )
    return sums[:, :, None]


def test_a_collapse_is_seen_after_a_few_requests() -> None:
    """Tau from 5 to 1.6 is seen after eight requests in nine of ten runs, where it happened."""
    found = []
    for seed in range(100):
        taus = np.concatenate([np.full(60, 5.0), np.full(8, 1.6)])
        found.append(latest_break(rows(taus, np.random.default_rng(seed)))[0])
    right = np.abs(np.array(found) - 60) <= 2
    assert right.mean() >= 0.9


def test_no_change_is_seen_where_there_is_none() -> None:
    """In a hundred runs of 300 requests there is at most one false alarm, looking at each tenth."""
    alarms = 0
    for seed in range(100):
        sums = rows(np.full(300, 2.5), np.random.default_rng(seed))
        alarms += any(latest_break(sums[:end])[0] > 0 for end in range(10, 301, 10))
    assert alarms <= 1


def test_the_later_of_two_changes_is_told() -> None:
    """Down and up again: what counts is from when it has been as it is."""
    taus = np.concatenate([np.full(80, 5.0), np.full(40, 1.5), np.full(30, 5.0)])
    found = latest_break(rows(taus, np.random.default_rng(3)))
    assert abs(int(found[0]) - 120) <= 2


def test_numbers_that_cannot_be_are_no_change() -> None:
    """NaN and zeros find nothing and raise nothing."""
    assert latest_break(np.full((20, 6, 2), np.nan)).tolist() == [0, 0]
    assert latest_break(np.zeros((1, 6, 2))).tolist() == [0, 0]
