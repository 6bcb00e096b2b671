"""Acceptance: definitions, conversions, and what is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.acceptance import (
    acceptance_length,
    acceptance_rate,
    alpha_from_tau,
    draft_acceptance_rate,
    draft_rate_from_tau,
    position_rates,
    stopped_early,
    tau_from_alpha,
    tau_from_position_rates,
)

WORKED = (39, 1, 0, 3)


def test_worked_example_of_the_glossary() -> None:
    """43 steps, k 3, histogram 39/1/0/3: accepted 10, drafted 129, rates .078 and .20, tau 1.23."""
    assert stopped_early(WORKED, 3) == (10, 40)
    assert round(draft_acceptance_rate(10, 129) or 0.0, 3) == 0.078
    assert acceptance_rate(WORKED, 3) == 0.2
    assert round(acceptance_length(53, 43) or 0.0, 2) == 1.23


@pytest.mark.parametrize(("k", "tau"), [(5, 3.69), (4, 3.36)])
def test_tau_at_alpha_point_eight(k: int, tau: float) -> None:
    """3.69 at k 5; the 3.4 found in articles is k 4."""
    assert tau == round(tau_from_alpha(0.8, k), 2)


@given(st.floats(0, 1), st.integers(1, 32))
def test_alpha_and_tau_invert_each_other(alpha: float, k: int) -> None:
    """Round trip through tau, to 1e-9 in tau (alpha itself is flat near 0 for large k)."""
    tau = tau_from_alpha(alpha, k)
    back = alpha_from_tau(tau, k)
    assert back is not None
    assert abs(tau_from_alpha(back, k) - tau) < 1e-9


@given(st.floats(0, 0.999), st.integers(0, 32))
def test_tau_is_the_closed_form(alpha: float, k: int) -> None:
    """Equation 1 of Leviathan et al. where it is defined."""
    assert tau_from_alpha(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha), rel=1e-9)


@pytest.mark.parametrize(("tau", "k"), [(0.99, 3), (4.01, 3), (1.0, 0), (float("nan"), 3)])
def test_a_tau_no_alpha_can_give_has_none(tau: float, k: int) -> None:
    """Outside [1, k + 1], or without drafts, there is no alpha."""
    assert alpha_from_tau(tau, k) is None


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 3), (1.1, 3), (0.5, -1), (float("nan"), 3)])
def test_tau_refuses_what_is_no_probability(alpha: float, k: int) -> None:
    """A caller that passes a rate of its own making is told."""
    with pytest.raises(ValueError, match="alpha must be within"):
        tau_from_alpha(alpha, k)


def test_unknown_is_none_never_zero() -> None:
    """Totals that say nothing or contradict themselves have no rate."""
    assert acceptance_length(0, 0) is None
    assert acceptance_length(3, 5) is None
    assert draft_acceptance_rate(0, 0) is None
    assert draft_acceptance_rate(5, 3) is None
    assert acceptance_rate((0, 0), 1) is None
    assert acceptance_rate((), 1) is None
    assert acceptance_rate((1, 2, 3), 1) is None
    assert acceptance_rate((-1, 2), 1) is None


def test_positions_are_conditional() -> None:
    """4 of 43 drafts passed position 1, 3 of 4 position 2, 3 of 3 position 3."""
    assert position_rates(WORKED, 3) == (4 / 43, 3 / 4, 1.0)


def test_a_position_no_draft_reached_is_unknown() -> None:
    """Nothing got past position 1, so positions 2 and 3 have no rate; a trimmed histogram is fine."""
    assert position_rates((5,), 3) == (0.0, None, None)
    assert position_rates((1, 1, 1), 1) == (None,)


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9))
def test_alpha_is_the_pooled_rate_of_its_positions(histogram: list[int]) -> None:
    """Accepted over trials, position by position, adds up to alpha."""
    k = len(histogram) - 1
    reached = [sum(histogram[i:]) for i in range(k + 1)]
    trials, hits = sum(reached[:k]), sum(reached[1:])
    expected = hits / trials if trials else None
    assert expected == pytest.approx(acceptance_rate(histogram, k))


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9).filter(any))
def test_all_forms_of_a_histogram_tell_the_same_tau(histogram: list[int]) -> None:
    """Steps that all draft k tokens: by position, by totals, and by the engines' rate."""
    k, steps = len(histogram) - 1, sum(histogram)
    accepted = sum(j * count for j, count in enumerate(histogram))
    tau = acceptance_length(steps + accepted, steps)
    assert tau is not None
    known = [rate for rate in position_rates(histogram, k) if rate is not None]
    assert tau_from_position_rates(known) == pytest.approx(tau)
    assert draft_rate_from_tau(tau, k) == pytest.approx(draft_acceptance_rate(accepted, k * steps))


@given(st.floats(0, 1), st.integers(1, 32))
def test_equal_positions_are_the_formula(alpha: float, k: int) -> None:
    """By position and in closed form."""
    assert tau_from_position_rates([alpha] * k) == pytest.approx(tau_from_alpha(alpha, k))


def test_the_engines_rate_falls_with_k_at_equal_alpha() -> None:
    """So it ranks no arms: .65 at k 3 and .45 at k 7 are the same drafter."""
    rates = [draft_rate_from_tau(tau_from_alpha(0.8, k), k) for k in (3, 7)]
    assert [round(rate or 0.0, 2) for rate in rates] == [0.65, 0.45]
    assert draft_rate_from_tau(5.0, 3) is None
    assert draft_rate_from_tau(1.0, 0) is None
