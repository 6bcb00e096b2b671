"""Tokens per step with an interval, by sums over requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.tau import MIN_REQUESTS, StepSums, Stratum, Tau, standardised, tau_of


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
def test_parts_that_are_met_as_often_as_the_class_change_nothing(
    requests: list[tuple[int, int]],
) -> None:
    """With the arm's own tokens as weights the standardised figure is the plain one."""
    sums = sums_of(requests)
    parts = [Stratum(t, s, float(t)) for t, s in requests]
    one, other = tau_of(sums), standardised(sums, parts)
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
    assert standardised(sums, [Stratum(sums.tokens, sums.steps, 1.0)]) is None


def test_parts_the_arm_has_not_met_are_left_out() -> None:
    """The figure is of those it has."""
    sums = sums_of([(40, 10)] * 10)
    found = standardised(sums, [Stratum(400, 100, 500.0), Stratum(0, 0, 500.0)])
    assert found is not None
    assert found.value == 4.0
    assert standardised(sums, [Stratum(400, 100, 0.0)]) is None


def test_an_uneven_mix_is_weighed_back() -> None:
    """An arm that got nine easy requests for each hard one, in a class where both are as frequent.

    1,000 requests, spread of lengths and of acceptance: within 2 %, five standard errors.
    """
    rng = np.random.default_rng(4)
    easy = rng.random(1000) < 0.9
    steps = rng.integers(40, 200, 1000)
    tokens = np.round(steps * rng.normal(np.where(easy, 4.0, 2.0), 0.3)).astype(int)
    sums = sums_of([(int(t), int(s)) for t, s in zip(tokens, steps, strict=True)])
    parts = [Stratum(int(tokens[of].sum()), int(steps[of].sum()), 1.0) for of in (easy, ~easy)]
    plain, even = tau_of(sums), standardised(sums, parts)
    assert plain is not None
    assert even is not None
    assert plain.value > 3.5
    assert even.value == pytest.approx(2 / (1 / 4 + 1 / 2), rel=0.02)
    assert even.low is not None
    assert even.high is not None
    assert even.low < even.value < even.high
