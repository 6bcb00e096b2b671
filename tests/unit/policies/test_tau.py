"""Tokens per step with an interval, by sums over requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.tau import MIN_REQUESTS, StepSums, Tau, standardised, tau_of


def sums_of(requests: list[tuple[int, int]]) -> StepSums:
    """Sums of requests given as (tokens, steps)."""
    return StepSums(
        len(requests),
        sum(t for t, _ in requests),
        sum(s for _, s in requests),
        sum(t * t for t, _ in requests),
        sum(t * s for t, s in requests),
        sum(s * s for _, s in requests),
    )


REQUESTS = st.lists(
    st.integers(1, 500).flatmap(lambda s: st.tuples(st.integers(s, 5 * s), st.just(s))),
    min_size=1,
    max_size=30,
)


def test_the_worked_example() -> None:
    """53 tokens in 43 steps are 1.23 a step; one request has no interval."""
    tau = tau_of(sums_of([(53, 43)]))
    assert tau is not None
    assert (round(tau.value, 2), tau.low, tau.high) == (1.23, None, None)


@given(REQUESTS)
def test_the_value_lies_in_its_interval_and_never_below_one(
    requests: list[tuple[int, int]],
) -> None:
    """Whatever the requests were."""
    tau = tau_of(sums_of(requests))
    assert tau is not None
    assert tau.value >= 1.0
    if tau.low is not None and tau.high is not None:
        assert 1.0 <= tau.low <= tau.value <= tau.high
    else:
        assert (tau.low, tau.high) == (None, None)


@given(REQUESTS)
def test_parts_weighed_by_the_arm_s_own_tokens_change_nothing(
    requests: list[tuple[int, int]],
) -> None:
    """The value is then the plain one."""
    tokens, steps = np.array(requests, dtype=np.float64).T
    one = tau_of(sums_of(requests))
    other = standardised(tokens[:, None], steps[:, None], tokens)
    assert one is not None
    assert other is not None
    assert other.value == pytest.approx(one.value)


def test_an_engine_that_never_drafts_has_exactly_one() -> None:
    """And is sure of it."""
    assert tau_of(sums_of([(100, 100)] * MIN_REQUESTS)) == Tau(1.0, 1.0, 1.0)


def test_few_requests_have_no_interval() -> None:
    """Nor do many of which one holds nearly all steps."""
    few = tau_of(sums_of([(50, 40)] * (MIN_REQUESTS - 1)))
    assert few is not None
    assert few.low is None
    one = tau_of(sums_of([(2, 1)] * 50 + [(100_000, 50_000)]))
    assert one is not None
    assert one.low is None


@pytest.mark.parametrize("sums", [StepSums(), StepSums(3, 5, 6), StepSums(3, 5, 0)])
def test_sums_that_cannot_be_true_are_none(sums: StepSums) -> None:
    """Never 0, and never below 1."""
    assert tau_of(sums) is None
    tokens, steps = np.array([[float(sums.tokens)]]), np.array([[float(sums.steps)]])
    assert standardised(tokens, steps, np.ones(1)) is None


def test_squares_that_are_missing_give_no_interval() -> None:
    """Some of the sums came from a writer that did not keep them."""
    some, none = sums_of([(53, 43), (60, 40)] * 6), StepSums(12, 600, 500)
    both = StepSums(24, some.tokens + 600, some.steps + 500, some.tt, some.ts, some.ss)
    assert tau_of(none) == Tau(1.2)
    found = tau_of(both)
    assert found is not None
    assert found.low is None


def test_parts_the_arm_has_not_met_are_left_out() -> None:
    """The figure is of those it has."""
    tokens, steps = np.array([[400.0], [0.0]]), np.array([[100.0], [0.0]])
    found = standardised(tokens, steps, np.array([500.0, 500.0]))
    assert found == Tau(4.0)
    assert standardised(tokens, steps, np.array([0.0, 500.0])) is None


def test_an_uneven_mix_is_weighed_back() -> None:
    """An arm that got nine easy requests for each hard one, in a class where both are as frequent.

    1,000 requests in 20 blocks, with a spread of lengths and of acceptance: within 2 %, five
    standard errors; and by its own mix it has what it has.
    """
    rng = np.random.default_rng(4)
    easy, block = rng.random(1000) < 0.9, np.arange(1000) // 50
    steps = rng.integers(40, 200, 1000).astype(float)
    tokens = steps * rng.normal(np.where(easy, 4.0, 2.0), 0.3)
    laid = [
        np.stack([np.bincount(block[of], x[of], 20) for of in (easy, ~easy)]).astype(float)
        for x in (tokens, steps)
    ]
    plain = standardised(laid[0], laid[1], laid[0].sum(axis=1))
    even = standardised(laid[0], laid[1], np.ones(2))
    assert plain is not None
    assert even is not None
    assert plain.value > 3.5
    assert even.value == pytest.approx(2 / (1 / 4 + 1 / 2), rel=0.02)
    assert even.low is not None
    assert even.high is not None
    assert even.low < even.value < even.high
