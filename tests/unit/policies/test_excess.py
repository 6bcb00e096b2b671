"""Evidence that answers are damaged more often: what it says, and how rarely it errs."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from policies.estimators.excess import (
    BORNE_ODDS,
    Stratum,
    e_value,
    no_evidence,
    odds_ratios,
    rate_e_value,
    sign_e_value,
)

SEEDS = 500


def gathered(strata: list[Stratum]) -> float:
    """E-value of several strata."""
    return e_value(sum((odds_ratios(stratum) for stratum in strata), no_evidence()))


@pytest.mark.parametrize(
    "stratum",
    [
        Stratum(0, 0, 10, 3),
        Stratum(10, 3, 0, 0),
        Stratum(10, 0, 10, 0),
        Stratum(10, 10, 10, 10),
        Stratum(10, 11, 10, 0),
        Stratum(10, -1, 10, 3),
    ],
)
def test_a_stratum_that_says_nothing(stratum: Stratum) -> None:
    """One side is missing, or all answers are alike, or the counts cannot be true."""
    assert gathered([stratum]) == 1.0


def test_expectation_under_the_borne_odds_is_one() -> None:
    """Given the margins, the ratio's mean over Fisher's distribution is exactly 1."""
    tried, control, hits = 7, 5, 4
    ways = np.array(
        [comb(tried, k) * comb(control, hits - k) * BORNE_ODDS**k for k in range(hits + 1)]
    )
    ratios = np.array(
        [np.exp(odds_ratios(Stratum(tried, k, control, hits - k))) for k in range(hits + 1)]
    )
    mean = (ways / ways.sum()) @ ratios
    assert mean == pytest.approx(np.ones(len(no_evidence())))


def test_what_damages_both_alike_says_nothing() -> None:
    """A time in which half of all answers are invalid, whoever gives them."""
    calm = [Stratum(90, 0, 10, 0)] * 20
    storm = [Stratum(10, 5, 90, 45)] * 20
    assert gathered(calm + storm) < 1.0


def test_damage_is_found_beside_a_small_control() -> None:
    """One in a hundred against none; the smaller the control, the longer it takes."""
    assert gathered([Stratum(100, 1, 100, 0)] * 25) > 1000.0
    assert gathered([Stratum(900, 9, 100, 0)] * 2) < 1000.0


def test_a_large_stratum_is_no_trouble() -> None:
    """Millions of answers, nearly all invalid."""
    assert np.isfinite(odds_ratios(Stratum(100_000, 99_000, 50_000, 49_000))).all()
    assert e_value([800.0, 0.0]) == np.inf


def test_a_healthy_method_is_rarely_suspected_at_any_look() -> None:
    """The chance that a test ever reaches e is at most 1 / e: 500 seeds, 300 looks each."""
    rng = np.random.default_rng(20_261)
    found = {"odds": 0, "sign": 0, "rate": 0}
    level = 20.0
    for _ in range(SEEDS):
        logs, worse, better, hits = no_evidence(), 0, 0, 0
        reached = dict.fromkeys(found, False)
        for look in range(1, 301):
            bad, good = rng.binomial(20, 0.02), rng.binomial(10, 0.02)
            logs = logs + odds_ratios(Stratum(20, int(bad), 10, int(good)))
            worse, better = worse + rng.binomial(1, 0.1), better + rng.binomial(1, 0.1)
            hits += rng.binomial(5, 0.002)
            reached["odds"] |= e_value(logs) >= level
            reached["sign"] |= sign_e_value(worse, better) >= level
            reached["rate"] |= rate_e_value(hits, 5 * look, 0.002) >= level
        for name, was in reached.items():
            found[name] += was
    assert all(count <= SEEDS / level for count in found.values()), found


def test_pairs_count_in_one_direction_only() -> None:
    """A method that is better than the baseline is not suspected."""
    assert sign_e_value(0, 30) < 1.0
    assert sign_e_value(30, 0) > 1e6
    assert sign_e_value(0, 0) == 1.0
