"""Estimates of a policy that was not run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.offpolicy import (
    LEAST_ESS,
    LEAST_N,
    LEAST_PROPENSITY,
    Logged,
    cross_fitted,
    evaluate,
)
from policies.types import ArmId, FloatArray

ARMS = (ArmId("plain"), ArmId("fast"), ArmId("copy"))
EFFECT = np.array([0.0, -0.5, 0.2])


def log_of(
    shares: FloatArray | list[float], n: int = 2000, *, seed: int = 1, noise: float = 0.3
) -> Logged:
    """Choices by fixed shares; plain costs 1, one group, stretches of 40 requests."""
    rng = np.random.default_rng(seed)
    p = np.tile(np.asarray(shares, dtype=np.float64), (n, 1))
    arm = (rng.random(n)[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1).astype(np.int64)
    cost = 1.0 + EFFECT[arm] + rng.normal(0.0, noise, n)
    rows = np.arange(n)
    return Logged(ARMS, arm, p[rows, arm], p, cost, np.zeros(n, np.int64), rows // 40)


def all_to(arm: int, n: int = 2000) -> FloatArray:
    """A policy that knows one arm."""
    return np.tile(np.eye(3)[arm], (n, 1))


def test_the_logging_policy_itself_is_judged_as_what_it_was() -> None:
    """All weights are 1: every estimate but the doubly robust one is the mean, exactly."""
    log = log_of([0.5, 0.3, 0.2])
    answer = evaluate(log, log.probabilities)
    assert answer.ips is not None
    assert answer.snips is not None
    assert answer.dr is not None
    assert answer.ess == pytest.approx(2000.0)
    assert answer.ips.value == answer.snips.value == float(log.cost.mean())
    assert answer.dr.value == pytest.approx(float(log.cost.mean()), abs=0.02)


def test_ips_and_snips_are_their_formulas() -> None:
    """Weighted sums, worked out by hand."""
    log = log_of([0.5, 0.3, 0.2])
    answer = evaluate(log, all_to(1))
    w = (log.arm == 1) / 0.3
    assert answer.ips is not None
    assert answer.snips is not None
    assert answer.ips.value == pytest.approx(float((w * log.cost).mean()))
    assert answer.snips.value == pytest.approx(float(log.cost[log.arm == 1].mean()))
    assert answer.ess == pytest.approx(float((log.arm == 1).sum()))


def test_the_doubly_robust_estimate_is_the_narrowest() -> None:
    """What is known of arms takes away what weights add."""
    answer = evaluate(log_of([0.5, 0.3, 0.2]), all_to(2), baseline=0)
    assert answer.ips is not None
    assert answer.dr is not None
    assert answer.dr.se < 0.5 * answer.ips.se
    assert answer.dr.low < 1.2 < answer.dr.high
    assert answer.against_baseline is not None
    assert answer.against_baseline.low < 0.2 < answer.against_baseline.high


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_expectation_costs_width_not_truth(seed: int) -> None:
    """Groups that hide what costs differ by: weights alone put it right."""
    log = log_of([0.6, 0.2, 0.2], seed=seed)
    rng = np.random.default_rng(seed + 100)
    cost = log.cost + rng.choice([-1.0, 1.0], len(log.cost))
    answer = evaluate(replace(log, cost=cost), all_to(1))
    assert answer.dr is not None
    assert abs(answer.dr.value - 0.5) < 4.0 * answer.dr.se


def test_an_arm_that_was_never_drawn_cannot_be_judged() -> None:
    """The reason names it."""
    answer = evaluate(log_of([0.5, 0.5, 0.0]), all_to(2))
    assert answer.dr is None
    assert answer.unsupported == 1.0
    assert answer.refused == ("copy never appears in the log; the policy wants 100% there",)


def test_an_arm_that_was_hardly_ever_drawn_cannot_be_judged() -> None:
    """However often it turned up by chance."""
    p = LEAST_PROPENSITY / 2
    answer = evaluate(log_of([0.5, 0.5 - p, p], 20_000), all_to(2, 20_000))
    assert "less than 0.5%" in answer.refused[0]


def test_a_policy_that_hardly_ever_wants_what_was_not_drawn_is_judged_with_a_note() -> None:
    """Up to one choice in a hundred."""
    answer = evaluate(log_of([0.5, 0.5, 0.0]), np.tile([0.5, 0.495, 0.005], (2000, 1)))
    assert answer.dr is not None
    assert any("next to nothing" in note for note in answer.notes)


def test_a_small_effective_sample_is_refused() -> None:
    """With how large it is."""
    answer = evaluate(log_of([0.94, 0.03, 0.03], 600), all_to(1, 600))
    assert 0.0 < answer.ess < LEAST_ESS
    assert "requests' worth" in answer.refused[0]


def test_few_requests_are_refused() -> None:
    """Requests without a cost do not count."""
    log = log_of([0.4, 0.3, 0.3], LEAST_N + 10)
    cost = log.cost.copy()
    cost[:20] = np.nan
    answer = evaluate(replace(log, cost=cost), all_to(1, LEAST_N + 10))
    assert (answer.n, answer.unmeasured) == (LEAST_N - 10, 20)
    assert answer.refused == (
        f"{LEAST_N - 10} requests with a measured cost; {LEAST_N} are the least",
    )


def test_an_empty_log_is_refused() -> None:
    """And does not fail."""
    assert evaluate(log_of([1.0, 0.0, 0.0], 0), all_to(0, 0)).refused == (
        "the log holds no request",
    )


def test_missing_propensities_are_refused() -> None:
    """Nothing is put in their place."""
    log = log_of([0.4, 0.3, 0.3])
    propensity = log.propensity.copy()
    propensity[::10] = np.nan
    answer = evaluate(replace(log, propensity=propensity), all_to(1))
    assert answer.refused == ("200 of 2000 requests have no propensity",)


def test_propensities_that_are_not_the_probability_of_their_arm_are_refused() -> None:
    """The log is not of what was drawn by."""
    log = log_of([0.4, 0.3, 0.3])
    answer = evaluate(replace(log, propensity=log.propensity * 0.9), all_to(1))
    assert "not the probability of their arm" in answer.refused[0]


def test_a_few_faulty_lines_are_left_out_with_a_note() -> None:
    """Up to one in a hundred."""
    log = log_of([0.4, 0.3, 0.3])
    propensity = log.propensity.copy()
    propensity[:5] = np.nan
    answer = evaluate(replace(log, propensity=propensity), all_to(1))
    assert answer.dr is not None
    assert any("contradictory" in note for note in answer.notes)


def test_cut_weights_are_declared() -> None:
    """How many, and that it may bias."""
    answer = evaluate(log_of([0.8, 0.1, 0.1]), all_to(1), clip=5.0)
    assert answer.clipped == pytest.approx(0.1, abs=0.03)
    assert any("was cut" in note for note in answer.notes)
    assert answer.ips is not None
    assert answer.ips.value < 0.4, "half the weight is lost"
    assert answer.dr is not None
    assert answer.dr.value == pytest.approx(0.5, abs=0.1)


def test_without_plain_decoding_in_the_log_there_is_no_comparison_with_it() -> None:
    """The rest of the answer stands."""
    answer = evaluate(log_of([0.0, 0.5, 0.5]), all_to(1), baseline=0)
    assert answer.dr is not None
    assert answer.against_baseline is None
    assert any("too little plain decoding" in note for note in answer.notes)


def test_what_requests_of_a_time_have_in_common_widens_the_interval() -> None:
    """A level of each stretch is one observation, not forty."""
    log = log_of([0.5, 0.3, 0.2])
    level = np.random.default_rng(3).normal(0.0, 0.3, 50)[log.cluster]
    calm, moved = (evaluate(replace(log, cost=log.cost + add), all_to(0)) for add in (0.0, level))
    assert calm.dr is not None
    assert moved.dr is not None
    assert moved.dr.se > 2.0 * calm.dr.se


def test_expectations_come_from_other_requests() -> None:
    """A request's own cost does not move what is expected of it."""
    log = log_of([0.5, 0.3, 0.2])
    cost = log.cost.copy()
    cost[7] += 1000.0
    before, after = cross_fitted(log), cross_fitted(replace(log, cost=cost))
    assert before[7].tolist() == after[7].tolist()
    assert before[900].tolist() != after[900].tolist()
